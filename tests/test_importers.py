"""Each format of `cache import`: counts, recognition, damage, missing values, steps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates import PassRates, prompt_key
from basis_rl.passrates.importers import import_pass_rates, read_records
from basis_rl.passrates.importers.detect import FORMATS
from basis_rl.passrates.importers.formats.open_instruct import token_key
from basis_rl.passrates.importers.read import first_row
from basis_rl.passrates.importers.record import Notes, Options
from basis_rl.passrates.importers.source import open_source
from basis_rl.passrates.importers.values import measured

DUMPS = Path(__file__).parent / "fixtures" / "importers"
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
VERL = "system\nYou are a helpful assistant.\nuser\n{}\nassistant\n"
QUESTIONS = ["1+1=", "2+3=", "7*6="]
SYSTEM = {"role": "system", "content": "Add."}


def counts(table: PassRates) -> dict[str, tuple[int, int]]:
    """Successes and n of each key."""
    assert table.successes is not None
    pairs = zip(table.successes.tolist(), table.n.tolist(), strict=True)
    return dict(zip(table.keys, pairs, strict=True))


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# source, format, options, and (successes, n) by prompt or key
CASES: dict[str, tuple[str, dict[str, Any], dict[Any, tuple[int, int]]]] = {
    "lm_eval": (
        "lm-eval",
        {},
        {f"Q: {i}+{i}=\nA:": (right, 1) for i, right in enumerate([0, 0, 0, 0, 0, 0])},
    ),
    "evalplus": (
        "evalplus",
        {},
        {"HumanEval/0": (2, 4), "HumanEval/1": (1, 4), "HumanEval/2": (0, 4)},
    ),
    "nemo_rl": (
        "nemo-rl",
        {"steps": (1, 1)},
        {f"<|system|>Add.<|user|>{q}": (k, 2) for q, k in zip(QUESTIONS, [1, 0, 2], strict=True)},
    ),
    "nemo_rl_validation": (
        "nemo-rl",
        {},
        {f"<|user|>{q}": (k, 1) for q, k in zip(QUESTIONS, [1, 0, 1], strict=True)},
    ),
    "skyrl": (
        "skyrl",
        {},
        {CHAT.format(q): c for q, c in zip(QUESTIONS, [(1, 2), (1, 2), (1, 1)], strict=True)},
    ),
    "areal": (
        "areal",
        {"steps": (0, 0)},
        {CHAT.format("1+1="): (3, 4), CHAT.format("2+3="): (0, 4)},
    ),
    "verifiers": (
        "verifiers",
        {},
        {(q, "Add."): c for q, c in zip(QUESTIONS, [(1, 2), (1, 1), (0, 2)], strict=True)},
    ),
    "verifiers_results": (
        "verifiers-results",
        {},
        {(q,): c for q, c in zip(QUESTIONS, [(1, 2), (1, 1), (2, 2)], strict=True)},
    ),
    "lighteval": ("lighteval", {}, {"1+1=": (3, 4), "2+3=": (0, 4)}),
    "spo": ("spo", {}, dict(zip(QUESTIONS, [(2, 4), (0, 4), (3, 3)], strict=True))),
}


def key_of(name: Any, form: str) -> str:
    if form == "evalplus":
        return str(name)
    if isinstance(name, tuple):
        return prompt_key([SYSTEM, *user(name[0])] if len(name) == 2 else user(name[0]))
    return prompt_key(name)


def lm_eval_rewards() -> dict[str, tuple[int, int]]:
    """The metric of every document, read without the package."""
    (samples,) = (DUMPS / "lm_eval").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    return {f"Q: {r['doc']['question']}\nA:": (int(r["odd_length"]), 1) for r in rows}


@pytest.mark.parametrize("name", CASES)
def test_counts_of_every_format(name: str) -> None:
    form, options, expected = CASES[name]
    if name == "lm_eval":
        expected = lm_eval_rewards()
        assert 0 < sum(k for k, _ in expected.values()) < 6
    imported = import_pass_rates(DUMPS / name, **options)
    assert imported.report.format == form
    assert counts(imported.table) == {key_of(p, form): c for p, c in expected.items()}
    assert imported.report.rollouts == sum(n for _, n in expected.values())


FIXTURES = {**{name: case[0] for name, case in CASES.items()}}
FIXTURES |= {"verl_v1": "verl", "verl_validation": "verl", "trl": "trl"}
FIXTURES |= {"open_instruct": "open-instruct", "open_r1": "open-r1", "columns": "columns"}


def data_files(name: str) -> list[Path]:
    """Files of a fixture that are the dump itself."""
    beside = ("results_20", "aggregated", "metadata", "run_metadata", "samples.jsonl")
    files = [p for p in sorted((DUMPS / name).rglob("*")) if p.is_file()]
    return [p for p in files if not p.name.startswith(beside)]


@pytest.mark.parametrize("name", FIXTURES)
def test_every_fixture_is_recognised_as_its_format_and_no_other(name: str) -> None:
    assert data_files(name)
    for file in data_files(name):
        row = first_row(file)
        assert row is not None
        claims = [
            form.name
            for form in FORMATS.values()
            if form.detect(row) and (not form.suffixes or file.name.endswith(form.suffixes))
        ]
        expected = [FIXTURES[name]] if FIXTURES[name] != "columns" else []
        assert claims == expected
        found = open_source(str(file), None, Options(steps=None), Notes(), any_step=True)
        assert found.form.name == FIXTURES[name]


def test_every_format_has_a_fixture() -> None:
    assert set(FIXTURES.values()) == set(FORMATS)


# verl


def verl_by_hand(steps: list[int]) -> dict[str, list[float]]:
    rewards: dict[str, list[float]] = {}
    for step in steps:
        for line in (DUMPS / "verl_v1" / f"{step}.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["score"] == row["score"]:
                rewards.setdefault(prompt_key(row["input"]), []).append(row["score"])
    return rewards


def test_verl_reads_the_steps_asked_for() -> None:
    for steps in ((1, 1), (2, 3)):
        imported = import_pass_rates(DUMPS / "verl_v1", steps=steps)
        expected = verl_by_hand(list(range(steps[0], steps[1] + 1)))
        assert counts(imported.table) == {
            key: (int(sum(some)), len(some)) for key, some in expected.items()
        }
    assert imported.report.missing == 1  # NaN: a judge without a verdict
    assert imported.report.rollouts == 31
    assert imported.table.provenance.extra["import"]["steps"] == [2, 3]


def test_steps_are_noted_and_several_mix_policies() -> None:
    one = import_pass_rates(DUMPS / "verl_v1", steps=(1, 1)).table.provenance.extra
    both = import_pass_rates(DUMPS / "verl_v1", steps=(1, 2)).table.provenance.extra
    assert [one["absorbed"][0]["steps"], both["absorbed"][0]["steps"]] == [[1, 1], [1, 2]]
    assert "warning" not in one
    assert "steps 1 to 2" in both["warning"]


def test_a_dump_with_several_steps_needs_a_range() -> None:
    with pytest.raises(PassRatesError, match=r"3 training steps, 1 to 3.*--steps 1:1"):
        import_pass_rates(DUMPS / "verl_v1")
    with pytest.raises(PassRatesError, match=r"no rollout of steps 7 to 9: the dump has 1 to 3"):
        import_pass_rates(DUMPS / "verl_v1", steps=(7, 9))
    with pytest.raises(PassRatesError, match=r"--steps 3:1: write the earlier step first, 1:3"):
        import_pass_rates(DUMPS / "verl_v1", steps=(3, 1))


def test_only_the_range_asked_for_is_read(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "verl_v1", tmp_path / "dump")
    text = (tmp_path / "dump" / "3.jsonl").read_text().splitlines()
    (tmp_path / "dump" / "3.jsonl").write_text("\n".join([*text[:4], text[4][:20], *text[5:]]))
    assert len(import_pass_rates(tmp_path / "dump", steps=(1, 2)).table) == 4
    with pytest.raises(BasisError, match=r"3\.jsonl is damaged at line 5"):
        import_pass_rates(tmp_path / "dump", steps=(1, 3))


def test_a_step_in_two_folders_is_refused(tmp_path: Path) -> None:
    for name in ("train", "validation"):
        shutil.copytree(DUMPS / "verl_v1", tmp_path / name)
    with pytest.raises(PassRatesError, match=r"step 1 is in .*train and step 1 in .*validation"):
        import_pass_rates(tmp_path, steps=(1, 1))


def test_steps_inside_one_file(tmp_path: Path) -> None:
    lines = [f for step in (1, 2, 3) for f in (DUMPS / "verl_v1" / f"{step}.jsonl").open()]
    (tmp_path / "all.jsonl").write_text("".join(lines))
    with pytest.raises(PassRatesError, match="3 training steps, 1 to 3"):
        import_pass_rates(tmp_path / "all.jsonl")
    with pytest.raises(PassRatesError, match="the dump has 1 to 3"):
        import_pass_rates(tmp_path / "all.jsonl", steps=(8, 8))
    imported = import_pass_rates(tmp_path / "all.jsonl", steps=(2, 2))
    whole = import_pass_rates(DUMPS / "verl_v1", steps=(2, 2))
    assert counts(imported.table) == counts(whole.table)
    assert imported.report.dropped["of other steps"] == 32


def test_rewards_of_minus_one_are_asked_about() -> None:
    dump = DUMPS / "verl_validation"
    with pytest.raises(PassRatesError, match=r"-1, 1: say --map -1=0 if -1 is a failure"):
        import_pass_rates(dump)
    mapped = import_pass_rates(dump, mapping={-1: 0}).table
    assert mapped.successes is not None
    assert mapped.successes.tolist() == [1, 2, 0, 1]
    assert counts(import_pass_rates(dump, threshold=0.5).table) == counts(mapped)
    kept = import_pass_rates(dump, as_is=True).table
    assert kept.kind == "rewards"
    assert kept.means.tolist() == [0, 1, -1, 0]


# TRL


def test_trl_leaves_out_what_is_logged_twice() -> None:
    files = sorted((DUMPS / "trl" / "completions").glob("*.parquet"))
    imported = import_pass_rates(DUMPS / "trl", steps=(1, 6), reward_column="long_enough")
    expected: dict[str, list[float]] = {}
    for file in files[::2]:  # every second file repeats the one before
        for row in pq.read_table(file).to_pylist():
            expected.setdefault(prompt_key(row["prompt"]), []).append(row["long_enough"])
    assert counts(imported.table) == {k: (int(sum(v)), len(v)) for k, v in expected.items()}
    assert imported.report.rollouts == 48
    assert imported.report.dropped == {"logged again in the next step's file": 48}


def test_trl_reward_functions() -> None:
    dump = DUMPS / "trl"
    with pytest.raises(PassRatesError, match=r"2 columns .*\(long_enough, judged\)"):
        import_pass_rates(dump, steps=(1, 1))
    rows = pq.read_table(dump / "completions" / "completions_00001.parquet").to_pylist()
    judged = import_pass_rates(dump, steps=(1, 1), reward_column="judged")
    verdicts = [row["judged"] for row in rows if row["judged"] is not None]
    assert judged.report.rollouts == len(verdicts)
    assert judged.report.missing == 16 - len(verdicts) > 0
    both = import_pass_rates(dump, steps=(1, 1), reward_column="sum").table
    sums = [row["long_enough"] + (row["judged"] or 0) for row in rows]
    assert both.n.sum() == 16
    assert (both.means * both.n).sum() == pytest.approx(sum(sums))
    named = import_pass_rates(dump, steps=(1, 1), reward_column="long_enough,judged").table
    assert named.means.tolist() == both.means.tolist()
    with pytest.raises(BasisError, match="did you mean 'judged'"):
        import_pass_rates(dump, steps=(1, 1), reward_column="judge")


# the others


def test_open_instruct_takes_the_later_write_of_a_step(tmp_path: Path) -> None:
    imported = import_pass_rates(DUMPS / "open_instruct", steps=(2, 2), threshold=5)
    keys = [token_key([53, 47, 53, 65 + i]) for i in range(2)]
    assert counts(imported.table) == {keys[0]: (2, 2), keys[1]: (1, 2)}
    assert imported.report.dropped["replaced by a later write of the same rollout"] == 4
    assert imported.table.provenance.model == "some/model"
    assert imported.table.sources == ["gsm8k", "gsm8k"]


def test_open_instruct_prompts_with_a_tokenizer(tmp_path: Path) -> None:
    from tiny_model import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    options = {"steps": (1, 1), "tokenizer": str(tmp_path / "tokenizer"), "threshold": 1}
    imported = import_pass_rates(DUMPS / "open_instruct", **options)
    text = tokenizer.decode([53, 47, 53, 65])
    assert counts(imported.table)[prompt_key(text)] == (1, 2)
    with pytest.raises(PassRatesError, match="cannot load the tokenizer 'none/such'"):
        import_pass_rates(DUMPS / "open_instruct", steps=(1, 1), tokenizer="none/such")


def test_areal_leaves_out_rollouts_begun_before_the_range() -> None:
    with pytest.raises(PassRatesError, match="no rollout of steps 1 to 1: the dump has 0 to 1"):
        import_pass_rates(DUMPS / "areal", steps=(1, 1))
    both = import_pass_rates(DUMPS / "areal", steps=(0, 1))
    assert counts(both.table)[prompt_key(CHAT.format("7*6="))] == (4, 4)
    with pytest.raises(PassRatesError, match="2 training steps, 0 to 1"):
        import_pass_rates(DUMPS / "areal" / "1" / "2.jsonl")


def test_evalplus_base_tests_alone() -> None:
    base = import_pass_rates(DUMPS / "evalplus", reward_column="base").table
    assert counts(base) == {"HumanEval/0": (3, 4), "HumanEval/1": (2, 4), "HumanEval/2": (0, 4)}
    with pytest.raises(PassRatesError, match="evalplus has base and plus"):
        import_pass_rates(DUMPS / "evalplus", reward_column="extra")
    with pytest.raises(PassRatesError, match=r"run evalplus\.evaluate"):
        import_pass_rates(DUMPS / "evalplus" / "samples.jsonl")


def test_lm_eval_notes_what_made_the_answers() -> None:
    imported = import_pass_rates(DUMPS / "lm_eval")
    made_by = imported.table.provenance
    assert (made_by.model, made_by.temperature) == ("tiny-random", 1.0)
    assert (made_by.max_tokens, made_by.stop) == (8, ["\n\n"])
    assert imported.report.dropped == {"without a verdict of their own (repeats)": 18}
    assert imported.report.unknown == ["revision", "verifier"]


def test_lm_eval_metrics_and_filters(tmp_path: Path) -> None:
    (samples,) = (DUMPS / "lm_eval").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    two = [{**r, "filter": f, "odd_length": v} for r in rows for f, v in (("a", 1), ("b", 0))]
    path = tmp_path / "samples_x.jsonl"
    write(path, two)
    with pytest.raises(PassRatesError, match=r"line 2: filter 'b' besides 'a'"):
        import_pass_rates(path)
    assert import_pass_rates(path, filter="a").table.means.tolist() == [1] * 6
    assert import_pass_rates(path, filter="b").table.means.tolist() == [0] * 6
    with pytest.raises(PassRatesError, match=r"no filter 'c': there are \['a', 'b'\]"):
        import_pass_rates(path, filter="c")
    write(path, [{**r, "metrics": ["odd_length", "f1"], "f1": 0.5} for r in rows])
    with pytest.raises(PassRatesError, match=r"2 metrics \(odd_length, f1\)"):
        import_pass_rates(path)
    assert import_pass_rates(path, reward_column="f1").table.kind == "rewards"
    with pytest.raises(PassRatesError, match="no metric 'acc': its metrics are odd_length, f1"):
        import_pass_rates(path, reward_column="acc")
    # A metric of all four answers is not four verdicts.
    write(path, [{**r, "filtered_resps": [r["resps"][0]], "odd_length": 0.5} for r in rows])
    with pytest.raises(PassRatesError, match="one number for 4 answers"):
        import_pass_rates(path)
    write(path, [{**r, "odd_length": [1, 0, 1, 1]} for r in rows])
    assert import_pass_rates(path).table.means.tolist() == [0.75] * 6


def test_lm_eval_choices_are_one_answer(tmp_path: Path) -> None:
    """Log-likelihoods of two choices: two requests, one answer."""
    row = {
        "doc_id": 0,
        "arguments": {"gen_args_0": {"arg_0": "Q", "arg_1": " a"}, "gen_args_1": {"arg_0": "Q"}},
        "resps": [[[-1.0, False]], [[-2.0, False]]],
        "filtered_resps": [[-1.0, False], [-2.0, False]],
        "filter": "none",
        "metrics": ["acc"],
        "acc": 1.0,
    }
    write(tmp_path / "samples_x.jsonl", [row])
    imported = import_pass_rates(tmp_path / "samples_x.jsonl")
    assert counts(imported.table) == {prompt_key("Q"): (1, 1)}
    assert imported.report.dropped == {}


def test_lighteval_metrics(tmp_path: Path) -> None:
    assert import_pass_rates(DUMPS / "lighteval").table.provenance.model == "some/model"
    rows = pq.read_table(data_files("lighteval")[0]).to_pylist()

    def with_metrics(*metrics: dict[str, float]) -> PassRates:
        path = tmp_path / "details_x.jsonl"
        write(path, [{**row, "metric": m} for row, m in zip(rows, metrics, strict=False)])
        return import_pass_rates(path).table

    assert counts(with_metrics({"pass@k:k=1&n=4": 0.5, "pass@k:k=2&n=4": 1.0})) == {
        prompt_key("1+1="): (2, 4)
    }
    assert counts(with_metrics({"em": 1.0}, {"em": 0.0})) == {
        prompt_key("1+1="): (1, 1),
        prompt_key("2+3="): (0, 1),
    }
    for unusable in ({"maj@n:n=4": 1.0}, {"pass@k:k=2&n=4": 1.0}, {"g-pass@k:n=4": 1.0}):
        with pytest.raises(PassRatesError, match="name one with --reward-column"):
            with_metrics(unusable)
    with pytest.raises(PassRatesError, match=r"0.3, which is 1.2 of 4 rollouts"):
        with_metrics({"avg@n:n=4": 0.3})


def test_open_r1_keeps_the_rewards() -> None:
    imported = import_pass_rates(DUMPS / "open_r1")
    assert imported.table.kind == "rewards"
    assert imported.table.keys == [prompt_key(q) for q in QUESTIONS]
    assert imported.table.n.tolist() == [3, 3, 2]
    assert imported.report.missing == 1


def test_verifiers_named_reward_and_mixed_models(tmp_path: Path) -> None:
    named = import_pass_rates(DUMPS / "verifiers", reward_column="right")
    assert counts(named.table) == counts(import_pass_rates(DUMPS / "verifiers").table)
    text = (DUMPS / "verifiers" / "traces.jsonl").read_text().splitlines()
    (tmp_path / "traces.jsonl").write_text(
        "\n".join([text[0], text[1].replace("some/model", "other/model")])
    )
    with pytest.raises(PassRatesError, match=r"line 2, trace 0 has model 'other/model'"):
        import_pass_rates(tmp_path / "traces.jsonl")


# damage


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


JSONL = [name for name in FIXTURES if data_files(name)[0].name.endswith(".jsonl")]


def options_for(name: str) -> dict[str, Any]:
    more: dict[str, Any] = {"nemo_rl": {"steps": (1, 2)}, "open_instruct": {"steps": (1, 2)}}
    return {"steps": (0, 50)} | more.get(name, {})


@pytest.mark.parametrize("name", JSONL)
def test_a_damaged_line_is_named(name: str, tmp_path: Path) -> None:
    shutil.copytree(DUMPS / name, tmp_path / name)
    file = tmp_path / data_files(name)[0].relative_to(DUMPS)
    lines = file.read_text().splitlines()
    number = len(lines) - 1
    lines[number - 1] = lines[number - 1][: len(lines[number - 1]) // 2]
    file.write_text("\n".join(lines))
    with pytest.raises(BasisError) as caught:
        import_pass_rates(tmp_path / name, **options_for(name))
    assert f"{file} is damaged at line {number}" in str(caught.value)


@pytest.mark.parametrize("name", JSONL)
@pytest.mark.parametrize("row", [{}, {"traces": 3}, {"content": [[{}]], "rewards": "x"}, [1]])
def test_a_row_that_is_something_else_is_named(name: str, row: Any, tmp_path: Path) -> None:
    shutil.copytree(DUMPS / name, tmp_path / name)
    file = tmp_path / data_files(name)[0].relative_to(DUMPS)
    lines = file.read_text().splitlines()
    lines[1] = json.dumps(row)
    file.write_text("\n".join(lines))
    with pytest.raises(BasisError) as caught:
        import_pass_rates(file, **options_for(name))
    assert f"{file}, line 2" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("trl", "row 0"),
        ("lighteval", "row 0"),
        ("open_r1", "row 0"),
        ("spo", "line 1"),
        ("evalplus", "line 1"),
    ],
)
def test_a_file_that_is_cut_is_named(name: str, place: str, tmp_path: Path) -> None:
    shutil.copytree(DUMPS / name, tmp_path / name)
    file = next(f for f in data_files(name) if f.name.endswith((".parquet", ".json")))
    file = tmp_path / file.relative_to(DUMPS)
    file.write_bytes(file.read_bytes()[:-30])
    for source in (file, tmp_path / name):
        with pytest.raises(BasisError) as caught:
            import_pass_rates(source, steps=(1, 1))
        assert f"{file} is damaged at {place}" in str(caught.value)


def test_a_damaged_csv_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("prompt,reward\na,1\nb,0,1\n")
    with pytest.raises(PassRatesError, match=r"rates.csv is damaged at line 3"):
        import_pass_rates(path, reward_column="reward")
    path.write_text("prompt,reward\na\n")
    with pytest.raises(PassRatesError, match=r"rates.csv is damaged at line 2"):
        import_pass_rates(path, reward_column="reward")


def test_pickles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rollout_3.pt").write_bytes(b"\x80\x04.")
    for source in (tmp_path, tmp_path / "rollout_3.pt", tmp_path / "none.pkl"):
        with pytest.raises(PassRatesError, match="weights_only=True"):
            import_pass_rates(source)


def test_sources_that_are_no_dumps(tmp_path: Path) -> None:
    with pytest.raises(PassRatesError, match=r"there is no file .*none\.jsonl"):
        import_pass_rates(tmp_path / "none.jsonl")
    with pytest.raises(PassRatesError, match=r"there is no file, folder .*none: check the path"):
        import_pass_rates(tmp_path / "none")
    with pytest.raises(PassRatesError, match="holds no file that ends in"):
        import_pass_rates(tmp_path)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(PassRatesError, match="has no rows"):
        import_pass_rates(tmp_path / "empty.jsonl")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(PassRatesError, match="dumps end in"):
        import_pass_rates(tmp_path / "notes.txt")
    with pytest.raises(PassRatesError, match="did you mean 'verl'"):
        import_pass_rates(DUMPS / "verl_v1", format="verll")
    with pytest.raises(PassRatesError, match=r"several formats, .*verl.*--format"):
        import_pass_rates(DUMPS)


def test_records_are_streamed() -> None:
    records = list(read_records(DUMPS / "verl_v1"))
    assert [record.step for record in records] == [1] * 16 + [2] * 16 + [3] * 16
    assert records[0].prompt == VERL.format("1+1=")
    assert records[0].extra["completion"].startswith("It is")
    assert records[0].place.endswith("1.jsonl, line 1")
    assert len(list(read_records(DUMPS / "verl_v1", steps=(2, 2)))) == 16
    first = next(read_records(DUMPS / "trl", options=Options(reward_column="sum")))
    assert isinstance(first.prompt, list)


@given(st.integers(1, 200), st.data())
def test_rates_of_a_known_n_are_counts(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    assert measured(k / n, "rate", n, "row", "r")[:2] == (k, n)
    assert measured(100 * (1 - k / n), "percent-failures", n, "row", "r")[:2] == (k, n)
    assert measured(str(100 * k / n), "percent", n, "row", "r")[:2] == (k, n)
    assert measured(f"{k}/{n}", "fraction", None, "row", "r")[:2] == (k, n)
    assert measured(k, "failures", n, "row", "r")[:2] == (n - k, n)
    if n >= 2:
        with pytest.raises(PassRatesError, match="no whole number"):
            measured((min(k, n - 1) + 0.5) / n, "rate", n, "row", "r")


@pytest.mark.parametrize("value", [None, "", " ", "n/a", "N/A", "nan", "null", float("nan")])
@pytest.mark.parametrize("unit", ["rate", "percent-failures", "count", "fraction"])
def test_missing_is_never_zero(value: Any, unit: str) -> None:
    assert measured(value, unit, 8, "row", "r") == (None, None, None)


@pytest.mark.parametrize("name", ["verl_v1", "skyrl", "areal", "nemo_rl", "trl", "open_r1"])
def test_named_columns_of_a_known_format(name: str, tmp_path: Path) -> None:
    """Keys, prompts and sources of other columns than the format's own."""
    rows = [dict(row) for file in data_files(name)[:1] for row in _plain_rows(file)]
    rows = [
        {**row, "id": i // 2, "text": f"t{i // 2}", "from": ["x"]} for i, row in enumerate(rows)
    ]
    write(tmp_path / "1.jsonl", rows)
    more: dict[str, Any] = {"reward_column": "judged"} if name == "trl" else {}
    options = Options(key_column="id", prompt_column="text", source_column="from", **more)
    records = list(read_records(tmp_path / "1.jsonl", options=options))
    assert [r.key for r in records] == [str(i // 2) for i in range(len(rows))]
    assert [r.prompt for r in records] == [f"t{i // 2}" for i in range(len(rows))]
    assert {r.source for r in records} == {"x"}


def _plain_rows(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        return pq.read_table(file).to_pylist()
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("verl_v1", {"rate_column": "score"}),
        ("verl_v1", {"n": 8}),
        ("skyrl", {"filter": "none"}),
        ("spo", {"key_column": "x"}),
        ("evalplus", {"prompt_column": "x"}),
        ("open_r1", {"reward_column": "x"}),
        ("lm_eval", {"direction": "passes"}),
    ],
)
def test_an_option_without_meaning_is_refused(name: str, options: dict[str, Any]) -> None:
    (option,) = (f"--{name}".replace("_", "-") for name in options)
    with pytest.raises(PassRatesError, match=f"{option} has no meaning for the format"):
        import_pass_rates(DUMPS / name, **options)
    with pytest.raises(PassRatesError, match=r"no training step: leave --steps out"):
        import_pass_rates(DUMPS / "skyrl", steps=(1, 1))


def test_a_folder_of_files_with_named_columns(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path / f"{part}.jsonl", [{"prompt": f"p{i}", "ok": part == 0} for i in range(2)])
    with pytest.raises(PassRatesError, match="none of a known format"):
        import_pass_rates(tmp_path)
    table = import_pass_rates(tmp_path, reward_column="ok").table
    assert counts(table) == {prompt_key(f"p{i}"): (1, 3) for i in range(2)}


def test_a_verl_dump_read_by_its_columns() -> None:
    """With --format columns any dump is a file with named columns."""
    options = {"prompt_column": "gts", "reward_column": "score", "steps": (1, 1)}
    imported = import_pass_rates(DUMPS / "verl_v1" / "1.jsonl", format="columns", **options)
    assert imported.table.n.tolist() == [16]


def test_an_empty_trl_file_is_no_obstacle(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "trl" / "completions", tmp_path / "completions")
    first = tmp_path / "completions" / "completions_00001.parquet"
    pq.write_table(pq.read_table(first).slice(0, 0), first.with_name("completions_00000.parquet"))
    options: dict[str, Any] = {"steps": (1, 2), "reward_column": "long_enough"}
    assert import_pass_rates(tmp_path, **options).report.rollouts == 16


def test_nemo_rl_dynamic_sampling(tmp_path: Path) -> None:
    """The rewards of the rows that were kept count, and the report says that they are biased."""
    rows = _plain_rows(DUMPS / "nemo_rl" / "train_data_step1.jsonl")
    rows = [{**row, "rewards": [0.0], "filtered_rewards": [1.0]} for row in rows]
    write(tmp_path / "train_data_step1.jsonl", rows)
    imported = import_pass_rates(tmp_path)
    assert imported.report.mean == 1
    assert "biased towards the middle" in imported.report.remarks[0]


def test_nemo_rl_training_and_validation_are_not_mixed(tmp_path: Path) -> None:
    for name in ("nemo_rl/train_data_step1.jsonl", "nemo_rl_validation/val_data_step0.jsonl"):
        shutil.copy(DUMPS / name, tmp_path)
    with pytest.raises(PassRatesError, match="training and validation files are mixed"):
        import_pass_rates(tmp_path, steps=(0, 1))


def test_compressed_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    import gzip

    lines = (DUMPS / "verl_v1" / "1.jsonl").read_bytes()
    (tmp_path / "1.jsonl.gz").write_bytes(gzip.compress(lines))
    plain = import_pass_rates(DUMPS / "verl_v1" / "1.jsonl").table
    assert counts(import_pass_rates(tmp_path / "1.jsonl.gz").table) == counts(plain)
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfprompt,ok\na,1\n")
    table = import_pass_rates(tmp_path / "x.csv", reward_column="ok").table
    assert counts(table) == {prompt_key("a"): (1, 1)}
