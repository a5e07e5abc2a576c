"""`cache import --match`, and the command from end to end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_rl import cli
from basis_rl.errors import PassRatesError
from basis_rl.passrates import PassRates, prompt_hash, prompt_key
from basis_rl.passrates.importers import import_pass_rates
from basis_rl.passrates.importers.match import Matcher
from basis_rl.prompts import Prompt, load_prompts

DUMPS = Path(__file__).parent / "fixtures" / "importers"
QUESTIONS = ["1+1=", "11+1=", "What is 7*6?", "Name a prime above 90."]
QWEN = "<|im_start|>{}\n{}<|im_end|>\n"


def prompts_of(contents: list[Any]) -> list[Prompt]:
    return [Prompt(prompt_key(content), content, None, {}) for content in contents]


def chat(text: str, system: str | None = None) -> list[dict[str, str]]:
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


def templated(messages: list[dict[str, str]]) -> str:
    text = "".join(QWEN.format(m["role"], m["content"].strip()) for m in messages)
    return text + "<|im_start|>assistant\n"


def dump(path: Path, prompts: list[Any]) -> Path:
    rows = [{"prompt": p, "reward": i % 2} for i, p in enumerate(prompts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_verl_dump_takes_the_keys_of_the_training_data() -> None:
    data = prompts_of([chat(q) for q in QUESTIONS])
    plain = import_pass_rates(DUMPS / "verl_v1", steps=(1, 1)).table
    matched = import_pass_rates(DUMPS / "verl_v1", steps=(1, 1), match=data)
    assert matched.table.keys == [prompt.key for prompt in data]
    assert matched.table.means.tolist() == plain.means.tolist()
    assert matched.report.unmatched == []


def test_a_prompt_inside_another_is_not_taken_for_it() -> None:
    """Of 1+1= and 11+1= the data set has one: the other is left out, never counted for it."""
    for kept in (["1+1=", "What is 7*6?"], ["11+1=", "What is 7*6?"]):
        data = prompts_of(kept)
        matched = import_pass_rates(DUMPS / "verl_v1", steps=(1, 1), match=data)
        assert matched.table.keys == [prompt.key for prompt in data]
        assert matched.table.n.tolist() == [4, 4]
        assert len(matched.report.unmatched) == 2
        assert matched.report.dropped["of prompts that the data set does not have"] == 8


def test_a_trl_dump_matches_by_its_messages() -> None:
    system = "Add."
    data = prompts_of([chat(f"{i}+{i}=", system) for i in range(8)])
    options: dict[str, Any] = {"steps": (1, 1), "reward_column": "long_enough"}
    matched = import_pass_rates(DUMPS / "trl", match=data, **options)
    assert set(matched.table.keys) == {prompt.key for prompt in data}
    # A data set with other system messages is matched by what the user says.
    other = prompts_of([chat(f"{i}+{i}=") for i in range(8)])
    assert set(import_pass_rates(DUMPS / "trl", match=other, **options).table.keys) == {
        prompt.key for prompt in other
    }


def test_texts_with_different_system_messages(tmp_path: Path) -> None:
    data = [chat(f"{i}+1=", f"You are number {i}.") for i in range(12)]
    path = dump(tmp_path / "x.jsonl", [templated(messages) for messages in data])
    matched = import_pass_rates(path, reward_column="reward", match=prompts_of(data))
    assert matched.table.keys == [prompt_key(messages) for messages in data]


def test_blanks_that_a_template_strips(tmp_path: Path) -> None:
    data = [chat(" a question\n"), chat("another")]
    path = dump(tmp_path / "x.jsonl", [templated(messages) for messages in data])
    matched = import_pass_rates(path, reward_column="reward", match=prompts_of(data))
    assert matched.table.keys == [prompt_key(messages) for messages in data]


def test_two_prompts_of_the_data_with_one_text_are_an_error(tmp_path: Path) -> None:
    data = prompts_of([chat("1+1=", "A"), chat("1+1=", "B"), chat("2+2=", "A")])
    texts = ["user\n1+1=\nassistant\n", "user\n2+2=\nassistant\n"]
    path = dump(tmp_path / "x.jsonl", texts)
    with pytest.raises(PassRatesError, match=r"line 1: .* fits 2 prompts of the data set"):
        import_pass_rates(path, reward_column="reward", match=data)


def test_nothing_matches(tmp_path: Path) -> None:
    path = dump(tmp_path / "x.jsonl", ["one", "two"])
    with pytest.raises(PassRatesError, match=r"none of the 2 prompts is in the data set"):
        import_pass_rates(path, reward_column="reward", match=prompts_of(["three"]))


def test_prompts_that_become_one_are_added_up(tmp_path: Path) -> None:
    path = dump(tmp_path / "x.jsonl", ["1+1=", "1+1= ", "2+2="])
    matched = import_pass_rates(path, reward_column="reward", match=prompts_of(["1+1="]))
    assert matched.table.n.tolist() == [2]
    assert matched.report.unmatched == ["2+2="]


texts = st.text("ab1+ =\n", min_size=1, max_size=40).filter(str.strip)


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, min_size=3, max_size=12, unique_by=str.strip), st.data())
def test_matching_against_a_plain_search(contents: list[str], draw: st.DataObject) -> None:
    """Under one template, exactly the prompts of the data set are found, each as itself."""
    known = contents[: draw.draw(st.integers(2, len(contents)))]
    matcher = Matcher(prompts_of([chat(text) for text in known]))
    dumped = [templated(chat(text)) for text in contents]
    # The template is learnt from prompts of which most are in the data.
    template = matcher.learn([templated(chat(text)) for text in known])
    for text, written in zip(contents, dumped, strict=True):
        found = matcher.find(written, template, "here")
        assert (found is None) == (text not in known)
        if found is not None:
            assert found.prompt == chat(text)


def test_matching_real_prompts_is_fast(tmp_path: Path) -> None:
    data = [chat(f"Problem {i}: how much is {i} times {i + 1}? " * 8) for i in range(3000)]
    path = dump(tmp_path / "x.jsonl", [templated(messages) for messages in data])
    started = time.process_time()
    matched = import_pass_rates(path, reward_column="reward", match=prompts_of(data))
    assert time.process_time() - started < 10
    assert matched.table.keys == [prompt_key(messages) for messages in data]


# the command


def run(arguments: list[Any]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(argument) for argument in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cache.parquet"
    command = ["cache", "import", DUMPS / "verl_v1", "--out", out]
    assert run([*command, "--steps", "3:3", "--model", "some/model", "--temperature", 1]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "read 16 rows as verl: 4 prompts, 15 rollouts"
    assert "missing, not counted: 1" in told[1]
    assert "unknown: revision, verifier, max_tokens." in told[3]
    assert told[-1].startswith(f"next: basis-rl cache check {out}")
    table = PassRates.load(out)
    assert (table.provenance.model, table.provenance.temperature) == ("some/model", 1.0)
    assert table.provenance.extra["import"]["format"] == "verl"
    before = out.read_bytes()
    assert run([*command, "--steps", "1"]) == 2
    assert "exists: choose another output, or say --overwrite" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert run([*command, "--steps", "1", "--overwrite"]) == 0
    assert PassRates.load(out).n.sum() == 16


def test_the_command_with_a_data_set_to_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": q, "id": f"q{i}"} for i, q in enumerate(QUESTIONS[:3])]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "cache.parquet"
    command = ["cache", "import", DUMPS / "verl_v1", "--steps", "1", "--out", out]
    options = ["--match", tmp_path / "data.jsonl", "--match-template", "{question}", "--match-chat"]
    assert run([*command, *options, "--match-key-column", "id"]) == 0
    assert "prompts that the data set does not have: 1" in capsys.readouterr().out
    table = PassRates.load(out)
    assert table.keys == ["q0", "q1", "q2"]
    assert run([*command, *options, "--overwrite"]) == 0
    data = load_prompts(str(tmp_path / "data.jsonl"), template="{question}", chat=True)
    assert PassRates.load(out).coverage([prompt.key for prompt in data]) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "a:b"], "--steps a:b: write it as 1:50"),
        (["--steps", "1", "--map", "x"], "--map x: write it as old=new"),
        (["--steps", "1", "--out", "none/x.parquet"], "create it first"),
        ([], "choose a range with --steps"),
    ],
)
def test_mistakes_on_the_command_line(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.parquet"
    assert run(["cache", "import", DUMPS / "verl_v1", "--out", out, *options]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert words in told[0]
    assert not out.exists()


def test_options_of_the_command(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    command = ["cache", "import", DUMPS / "verl_validation", "--out", out, "--overwrite"]
    assert run([*command, "--map", "-1=0"]) == 0
    assert PassRates.load(out).kind == "counts"
    assert run([*command, "--as-is"]) == 0
    assert PassRates.load(out).kind == "rewards"
    rates = DUMPS / "columns" / "rates.csv"
    command = ["cache", "import", rates, "--out", out, "--overwrite"]
    assert run([*command, "--rate-column", "rate", "--unit", "rate"]) == 0
    assert PassRates.load(out).kind == "rates"


def test_control_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """A named pipe is refused, so the dump is a long file; the command is stopped in the middle."""
    row = json.dumps({"prompt": "x" * 200, "reward": 1})
    (tmp_path / "x.jsonl").write_text((row + "\n") * 400_000)
    command = [sys.executable, "-m", "basis_rl", "cache", "import", tmp_path / "x.jsonl"]
    process = subprocess.Popen(
        [*map(str, command), "--reward-column", "reward", "--out", str(tmp_path / "o.parquet")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.jsonl"]


def test_two_keys_of_one_prompt_are_an_error(tmp_path: Path) -> None:
    """Not the first one's: the same text may have two answers."""
    prompts = [Prompt("first", "1+1=", None, {}), Prompt("second", "1+1=", None, {})]
    with pytest.raises(PassRatesError, match=r"fits 2 prompts.*'first' and 'second'"):
        import_pass_rates(
            dump(tmp_path / "x.jsonl", ["1+1="]), reward_column="reward", match=prompts
        )


TEMPLATE = r"Think first.\n{question}\nAnswer:"


def test_a_bare_text_takes_the_key_of_the_prompt_around_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A public data set has the bare problem, the training's prompt a template around it."""
    public = [{"problem": f" {i}+1?", "difficulty": f"{i}/8"} for i in range(4)]
    own = [{"question": f"{i}+1?"} for i in range(1, 6)]
    for name, rows in (("public", public), ("own", own)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    out = tmp_path / "t.parquet"
    command = [
        "cache", "import", tmp_path / "public.jsonl", "--out", out,
        "--format", "POLARIS-Project/Polaris-Dataset-53K",
    ]  # fmt: skip
    match = ["--match", tmp_path / "own.jsonl", "--match-template", TEMPLATE]
    assert run([*command, *match]) == 2
    assert "--match-column" in capsys.readouterr().err
    assert run([*command, *match, "--match-column", "question"]) == 0
    data = load_prompts(str(tmp_path / "own.jsonl"), template=TEMPLATE.replace(r"\n", "\n"))
    table = PassRates.load(out)
    assert table.keys == [prompt.key for prompt in data[:3]]
    assert table.successes.tolist() == [1, 2, 3]
    assert table.prompt_hashes == [prompt_hash(prompt.prompt) for prompt in data[:3]]
    capsys.readouterr()
    assert run([*command, *match, "--match-column", "qestion", "--overwrite"]) == 2
    assert "did you mean 'question'" in capsys.readouterr().err
    assert run([*command, "--match-column", "question", "--overwrite"]) == 2
    assert "--match" in capsys.readouterr().err


def test_a_column_without_a_text_is_refused(tmp_path: Path) -> None:
    data = [Prompt("k", "Q: x", None, {"question": None})]
    with pytest.raises(PassRatesError, match=r"prompt 'k': column 'question' is None"):
        import_pass_rates(
            dump(tmp_path / "x.jsonl", ["x"]),
            reward_column="reward",
            match=data,
            match_column="question",
        )
