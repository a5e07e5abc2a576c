"""`basis-rl cache check`: a table against a data set and a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared_data import shared_data
from tiny_run import QUESTIONS, write_config, write_data

from basis_rl import cli
from basis_rl.passrates import PassRates, Provenance, prompt_hash, prompt_key
from basis_rl.passrates.inspect.check import Report, Run, check
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.prompts import Prompt, Repeats, load_prompts

MADE = Provenance(model="owner/m", verifier="math", temperature=0.7)


def prompts(texts: list[str], keys: list[str] | None = None) -> list[Prompt]:
    keys = keys or [prompt_key(text) for text in texts]
    return [Prompt(key, text, None, {}) for key, text in zip(keys, texts, strict=True)]


def table_of(texts: list[str], **options: Any) -> PassRates:
    keys = [prompt_key(text) for text in texts]
    return PassRates.from_counts(keys, [i % 3 for i in range(len(keys))], 2, **options)


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["cache", "check", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_table_that_fits() -> None:
    texts = list("abc")
    report = check(table_of(texts, provenance=MADE), prompts(texts), Run(MADE, [Reward("math")]))
    assert report.is_fine
    assert report.warnings == []
    assert (report.coverage, report.missing.count, report.unused.count) == (1.0, 0, 0)
    assert report.share_at_zero == pytest.approx(1 / 3)
    assert report.share_at_one == pytest.approx(1 / 3)
    assert report.expected is not None


def test_missing_and_unused_prompts() -> None:
    report = check(table_of(list("abcdefgh")), prompts(list("abxyzuv")), Run())
    assert report.coverage == pytest.approx(2 / 7)
    assert report.missing.count == 5
    assert report.missing.first == [f"{prompt_key(t)}: {t}" for t in "xyz"]
    assert report.unused.count == 6
    assert report.unused.first == [prompt_key(t) for t in "cde"]
    assert "knows 28.5% of the prompts and 100.0% are needed" in report.problems[0]
    fitting = check(table_of(list("abcdefgh")), prompts(list("abxyzuv")), Run(min_coverage=0.2))
    assert fitting.is_fine


def test_coverage_is_never_rounded_up() -> None:
    texts = [str(i) for i in range(3000)]
    report = check(table_of(texts[1:]), prompts(texts), Run())
    assert "knows 99.9% of the prompts and 100.0% are needed" in report.problems[0]


def test_texts_that_changed_under_their_key() -> None:
    hashes = [prompt_hash("1+1="), prompt_hash("2+2="), ""]
    table = PassRates.from_counts(["a", "b", "c"], [1, 1, 1], 2, prompt_hashes=hashes)
    data = prompts(["1+1=", "2 + 2 =", "3+3="], ["a", "b", "c"])
    report = check(table, data, Run(), named_keys=True)
    assert report.changed is not None
    assert (report.changed.count, report.changed.first) == (1, ["b: 2 + 2 ="])
    assert "1 prompts have another text" in report.problems[0]
    unknown = check(PassRates.from_counts(["a"], [1], 2), data[:1], Run(), named_keys=True)
    assert unknown.changed is None
    assert any("no hashes of the prompts" in text for text in unknown.warnings)
    assert unknown.is_fine


@pytest.mark.parametrize(
    ("stored", "asked", "form"),
    [
        ("1+1=", " 1+1=\n", "without white space at the ends"),
        ("a  b", "a b", None),
        ("a b", "a  b", "with single spaces"),
        ("1+1=\n", "1+1=", "with one line end behind it"),
        ("\u00e9", "e\u0301", "in Unicode's form NFC"),
        ("e\u0301", "\u00e9", "in Unicode's form NFD"),
        ("a\nb", "a\r\nb", "with Unix line ends"),
        ([{"role": "user", "content": "x"}], "x", "as a chat message"),
        ("x", [{"role": "user", "content": "x"}], "as a text, not a chat"),
        (
            [{"role": "user", "content": "x"}],
            [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}],
            "without the system message",
        ),
        (
            [{"role": "user", "content": "x"}],
            [{"role": "user", "content": " x"}],
            "without white space at the ends",
        ),
        ("x", [{"role": "user", "content": [{"type": "text", "text": "x"}]}], None),
        ("a", "A", "in lower case"),
        ("A", "a", None),
    ],
)
def test_missing_prompts_that_are_known_in_another_form(
    stored: Any, asked: Any, form: str | None
) -> None:
    table = PassRates.from_counts([prompt_key(stored)], [1], 2)
    report = check(table, [Prompt(prompt_key(asked), asked, None, {})], Run())
    assert report.known_as == ({} if form is None else {form: 1})
    assert any("of the missing prompts" in text for text in report.warnings) == (form is not None)


def test_provenance_errors_first_and_what_is_allowed() -> None:
    table = table_of(["a"], provenance=MADE)
    other = Provenance(model="owner/other", temperature=1.0)
    report = check(table, prompts(["a"]), Run(other, [Reward("exact")]))
    assert [d.name for d in report.differences] == ["model", "verifier", "temperature"]
    assert len(report.problems) == 2
    assert "temperature is 0.7 in the pass rates and 1.0 in this run" in report.warnings[0]
    allowing = Run(other, [Reward("exact")], allowed=["model", "verifier"])
    report = check(table, prompts(["a"]), allowing)
    assert report.is_fine
    assert [d.name for d in report.allowed] == ["model", "verifier"]


def test_rates_without_smoothing_at_the_ends() -> None:
    rates = [0, 0.5, 0.5, 1]
    table = PassRates.from_rates([prompt_key(t) for t in "abcd"], rates, provenance=MADE)
    report = check(table, prompts(list("abcd")), Run(smoothing="none"))
    assert report.expected is None
    assert "50.0% of the pass rates are exactly 0 or 1" in report.warnings[0]


def test_raw_rates_of_an_adaptive_table() -> None:
    made = Provenance(extra={"adaptive": {"rollouts": 24}})
    table = PassRates.from_counts([prompt_key(t) for t in "ab"], [3, 8], 8, provenance=made)
    for smoothing, warned in (("none", True), ("jeffreys", False)):
        report = check(table, prompts(list("ab")), Run(smoothing=smoothing))
        assert any("sampled adaptively" in warning for warning in report.warnings) is warned


# From here on through the command line.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": t, "answer": a} for t, a in ("a1", "b2", "a1", "a3", "c4")]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table_of(list("abc"), provenance=MADE).save("t.parquet")
    return tmp_path


def report_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = run([*arguments, "--json"])
    output = capsys.readouterr()
    assert output.err == ""
    return code, json.loads(output.out)


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["t.parquet", "--data", "data.jsonl"]) == 0
    output = capsys.readouterr()
    assert output.err == ""  # repeats are in the report
    assert "t.parquet: knows 3 of 3 prompts (100.0%; at least 100.0% needed)" in output.out
    assert "repeated rows: 2 of 5, left out" in output.out
    assert "repeats with another answer: 1" in output.out
    assert "answer '3', before '1'" in output.out
    assert "prompts at exactly 0: 33.3%, at exactly 1: 33.3%" in output.out
    assert "smoothing jeffreys" in output.out
    assert "with n = 64" in output.out
    assert output.out.endswith("fine, apart from the warnings\n")


@pytest.mark.parametrize(
    ("arguments", "code", "problems"),
    [
        (["--model", "owner/m", "--verifier", "math"], 0, 0),
        (["--model", "owner/other"], 1, 1),
        (["--verifier", "exact", "--model", "owner/other"], 1, 2),
        (["--temperature", "1.0"], 0, 0),
        (["--no-chat", "--smoothing", "none"], 0, 0),
        (["--chat"], 1, 1),
        (["--chat", "--min-coverage", "0"], 0, 0),
    ],
)
def test_exit_codes(
    arguments: list[str],
    code: int,
    problems: int,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, report = report_of(["t.parquet", "--data", "data.jsonl", *arguments], capsys)
    assert found == code
    assert len(report["problems"]) == problems
    assert report["is_fine"] == (code == 0)
    assert report["repeated"] == 2
    assert report["conflicts"]["count"] == 1
    assert set(report["expected"]) == {"error", "reward_variance", "at"}
    if "--chat" in arguments:
        assert report["known_as"] == {"as a text, not a chat": 3}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --data, or --config"),
        (["--data", "none.jsonl"], "none.jsonl"),
        (["--data", "data.jsonl", "--set", "a=1"], "name one with --config"),
        (["--data", "data.jsonl", "--config", "none.yaml"], "none.yaml"),
        (["--data", "data.jsonl", "--smoothing", "all"], "'all'"),
        (["--data", "data.jsonl", "--min-coverage", "2"], "2"),
    ],
)
def test_mistakes(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["t.parquet", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err.splitlines()[-1]


def test_named_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"{i}+1=", "id": f"p{i}"} for i in range(5)]
    Path("named.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hashes = [prompt_hash(row["prompt"]) for row in rows[:4]] + [prompt_hash("4 + 1 =")]
    keys = [row["id"] for row in rows]
    PassRates.from_counts(keys, [1] * 5, 2, prompt_hashes=hashes).save("named.parquet")
    arguments = ["named.parquet", "--data", "named.jsonl", "--key-column", "id"]
    code, report = report_of(arguments, capsys)
    assert code == 1
    assert report["changed"] == {"count": 1, "first": ["p4: 4+1="]}


def test_real_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(shared_data("train/math_train.parquet"))
    known = load_prompts(data, repeats=Repeats())
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 0.5, len(known))
    keys = [prompt.key for prompt in known[100:]]
    table = PassRates.from_counts(keys, rng.binomial(8, rates[100:]), 8, provenance=MADE)
    path = str(tmp_path / "t.parquet")
    table.save(path)
    answer = ["--answer-column", "reward_model.ground_truth.target"]
    code, report = report_of([path, "--data", data, *answer], capsys)
    assert code == 1
    assert report["prompts"] == len(known)
    assert report["missing"]["count"] == 100
    assert report["missing"]["first"][0].startswith(known[0].key)
    assert report["unused"]["count"] == 0
    smoothed = (table.successes + 0.5) / 9.0  # type: ignore[operator]
    true = float(np.sqrt(np.mean((smoothed - rates[100:]) ** 2)))
    assert report["expected"]["error"] == pytest.approx(true, rel=0.05)
    code, _ = report_of([path, "--data", data, "--min-coverage", "0.98"], capsys)
    assert code == 0


# Against a training configuration, by the trainer's own rules.


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    pytest.importorskip("trl")
    return write_data(tmp_path)


def test_a_configuration_that_fits(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, config)
    code, report = report_of([config["pass_rates"], "--config", path], capsys)
    assert (code, report["problems"]) == (0, [])
    assert report["prompts"] == len(QUESTIONS)
    assert report["smoothing"] == "jeffreys"
    data = ["--data", config["data"]["train"], "--limit", "5"]
    code, report = report_of([config["pass_rates"], "--config", path, *data], capsys)
    assert report["prompts"] == 5


def test_a_configuration_that_does_not_fit(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = PassRates.load(config["pass_rates"])
    assert table.successes is not None
    made = Provenance(model="owner/other", verifier="math", temperature=0.5, max_tokens=3)
    PassRates.from_counts(table.keys[4:], table.successes[4:], 8, provenance=made).save(
        config["pass_rates"]
    )
    path = write_config(tmp_path, config)
    check_config = [config["pass_rates"], "--config", path]
    code, report = report_of(check_config, capsys)
    assert code == 1
    assert len(report["problems"]) == 3
    assert [d["name"] for d in report["differences"]] == ["model", "verifier", "temperature"]
    changes = [
        "estimator={name: basis, missing: prior, smoothing: none}",
        f"pass_rates={{path: {config['pass_rates']}, allow: [model, verifier]}}",
    ]
    settings = [part for change in changes for part in ("--set", change)]
    code, report = report_of([*check_config, *settings], capsys)
    assert (code, report["problems"]) == (0, [])
    assert (report["min_coverage"], report["smoothing"]) == (0.5, "none")
    assert run([*check_config, "--model", "x"]) == 2
    assert "leave --model out" in capsys.readouterr().err


def test_rates_that_the_estimator_refuses(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = PassRates.load(config["pass_rates"])
    rates = np.minimum(table.means, 1)
    PassRates.from_rates(table.keys, rates).save(config["pass_rates"])
    path = write_config(tmp_path, config)
    code, report = report_of([config["pass_rates"], "--config", path], capsys)
    assert code == 1
    assert "cache import --n N" in report["problems"][0]
    without = ["--set", "estimator={name: basis, smoothing: none}"]
    code, report = report_of([config["pass_rates"], "--config", path, *without], capsys)
    assert (code, report["problems"]) == (0, [])
    # `train --check` says the same, before a model is loaded.
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", path, "--check"])
    assert stopped.value.code == 2
    assert "cache import --n N" in capsys.readouterr().err


def test_a_report_is_json() -> None:
    report = check(table_of(["a"]), prompts(["b"]), Run())
    assert isinstance(report, Report)
    assert json.loads(json.dumps(report.to_dict()))["missing"]["count"] == 1


def test_rewards_without_smoothing_are_not_stuck_at_0_or_1() -> None:
    """A mean reward of 0, of rewards -1 and 1, is no end."""
    rewards = [[-1.0, 1.0], [-1.0, 1.0]]
    prompts = [Prompt(key, key, None, {}) for key in "ab"]
    for table, stuck in (
        (PassRates.from_rewards(["a", "b"], rewards), False),
        (PassRates.from_counts(["a", "b"], [0, 1], 2), True),
    ):
        found = check(table, prompts, Run(smoothing="none"))
        assert found.share_at_zero > 0
        assert any("whatever the policy learns" in text for text in found.warnings) == stuck


def test_a_least_coverage_of_nan_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(folder / "data.jsonl"), "--min-coverage", "nan"]
    with pytest.raises(SystemExit, match="2"):
        cli.main(["cache", "check", str(folder / "t.parquet"), *options])
    assert "--min-coverage" in capsys.readouterr().err


def test_rates_do_not_fit_the_default_smoothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [prompt_key(text) for text in "abc"]
    PassRates.from_rates(keys, [0.1, 0.5, 0.9], provenance=MADE).save("rates.parquet")
    data = ["rates.parquet", "--data", "data.jsonl"]
    for smoothing in ([], ["--smoothing", "jeffreys"], ["--smoothing", "empirical-bayes"]):
        assert run([*data, *smoothing]) == 1
        output = capsys.readouterr().out
        assert "cache import --n N" in output
        assert "fine" not in output
    assert run([*data, "--smoothing", "none"]) == 0


def test_what_the_table_says_of_itself_is_repeated() -> None:
    notes = {
        "completions": 320,
        "verifier_failures": {"time limit": 30},
        "unverified_rollouts": 3,
        "warning": "mixes policies: so it is",
    }
    report = check(table_of(["a"], provenance=MADE.replace(extra=notes)), prompts(["a"]), Run())
    assert report.warnings[0] == "the table mixes policies: so it is"
    assert report.warnings[1].startswith("33 of 320 verdicts (10.3%) were lost")
    assert "failed on 30 rollouts, which count 0 (time limit 30), and 3" in report.warnings[1]
    none = {"completions": 320, "verifier_failures": {}, "unverified_rollouts": 0}
    report = check(table_of(["a"], provenance=MADE.replace(extra=none)), prompts(["a"]), Run())
    assert report.warnings == []


def test_what_the_table_does_not_tell() -> None:
    wanted = Run(Provenance(model="owner/m", revision="r", max_tokens=9), [Reward("math")])
    known = Provenance(verifier="math")
    report = check(table_of(["a"], provenance=known), prompts(["a"]), wanted)
    assert report.is_fine
    assert report.untold == ["model", "temperature", "revision", "max_tokens"]
    assert report.warnings == [
        "not compared, since the table does not tell: model, temperature, revision, max_tokens"
    ]
    assert check(table_of(["a"], provenance=MADE), prompts(["a"]), Run()).untold == []


def test_shares_are_rounded_alike(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"q{i}"} for i in range(158)]
    Path("many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table_of([f"q{i}" for i in range(100)], provenance=MADE).save("some.parquet")
    assert run(["some.parquet", "--data", "many.jsonl"]) == 1
    output = capsys.readouterr().out
    assert output.count("63.2%") == 2
    assert "63.3%" not in output


def test_texts_that_end_a_completion(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = PassRates.load(config["pass_rates"])
    assert table.successes is not None
    made = table.provenance.replace(stop=["\nQuestion"])
    PassRates.from_counts(table.keys, table.successes, 8, provenance=made).save(
        config["pass_rates"]
    )
    path = write_config(tmp_path, config)
    check_config = [config["pass_rates"], "--config", path]
    code, report = report_of(check_config, capsys)
    assert (code, [d["name"] for d in report["differences"]]) == (0, ["stop"])
    assert report["differences"][0]["run"] == []
    stop = ["--set", r'trl.generation_kwargs={stop_strings: "\nQuestion"}']
    code, report = report_of([*check_config, *stop], capsys)
    assert report["differences"] == []


def test_texts_name_keys_of_the_configuration(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, config)
    check_config = [config["pass_rates"], "--config", path]
    assert run([*check_config, "--set", "estimator={preset: papr}"]) == 2
    assert "did you mean 'paper'" in capsys.readouterr().err
    code, report = report_of([*check_config, "--set", "reward.functions=[math]"], capsys)
    assert code == 1
    assert "pass_rates.allow: [verifier]" in report["problems"][0]
