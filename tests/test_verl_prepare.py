"""`basis-rl verl prepare`: verl's Parquet files, their ids, and the same columns everywhere."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from shared_data import shared_data

from basis_rl.cli.verl_prepare import prepare
from basis_rl.errors import BasisError
from basis_rl.passrates.keys import prompt_key
from basis_rl.prompts import load_prompts
from basis_rl.prompts.verl_rows import PACKED, packed, unpacked, verifier_columns
from basis_rl.verifiers import create


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def questions(count: int = 10) -> list[dict[str, Any]]:
    return [{"question": f"{i}+1?", "answer": i + 1, "level": i % 3} for i in range(count)]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(prepare, [str(argument) for argument in arguments])


def prepared(tmp_path: Path, rows: list[dict[str, Any]], *more: str) -> list[dict[str, Any]]:
    data = write(tmp_path / "data.jsonl", rows)
    more = ("--prompt-column", "question", *more)
    result = run(data, "--out", tmp_path / "out", "--verifier", "math", *more)
    assert result.exit_code == 0, result.exception
    return pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()


def refused(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, BasisError), result.output
    return str(result.exception)


def test_rows_have_what_verl_and_the_verifier_read(tmp_path: Path) -> None:
    [row] = prepared(tmp_path, questions(1))
    chat = [{"role": "user", "content": "0+1?"}]
    key = prompt_key(chat)
    assert row == {
        "data_source": "data",
        "prompt": chat,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "1"},
        "extra_info": {"index": 0, "split": "train", "prompt_id": key},
        "prompt_id": key,
        "source": "data",
    }


def test_the_job_the_builder_and_the_file_have_the_same_keys(tmp_path: Path) -> None:
    """Texts become chats, whose keys are others than those of the texts."""
    import datasets

    system = ("--system", "Be short.", "--template", "Q: {question}")
    rows = prepared(tmp_path, questions(), *system)
    file = tmp_path / "out" / "train.parquet"
    loaded = load_prompts(str(file))
    # As verl's data set reads it; its raw_prompt is this column.
    read = datasets.load_dataset("parquet", data_files=str(file), cache_dir=str(tmp_path / "hub"))
    in_job = [prompt_key(row["prompt"]) for row in read["train"]]
    assert [row["prompt_id"] for row in rows] == in_job == [prompt.key for prompt in loaded]
    as_text = load_prompts(str(tmp_path / "data.jsonl"), prompt_column="question")
    assert not {prompt.key for prompt in as_text} & set(in_job)
    assert [row["prompt"][0]["role"] for row in rows] == ["system"] * 10


def test_a_named_key_is_the_id_and_is_asked_for(tmp_path: Path) -> None:
    rows = questions()
    for i, row in enumerate(rows):
        row["id"] = f"q{i}"
    data = write(tmp_path / "data.jsonl", rows)
    arguments = (data, "--out", tmp_path, "--verifier", "number", "--prompt-column", "question")
    result = run(*arguments, "--key-column", "id")
    ids = pq.read_table(tmp_path / "train.parquet").column("prompt_id").to_pylist()
    assert ids == [f"q{i}" for i in range(10)]
    assert "+algorithm.basis.prompt_key_column=prompt_id" in result.output
    assert "--key-column prompt_id" in result.output
    again = load_prompts(str(tmp_path / "train.parquet"), key_column="extra_info.prompt_id")
    assert [prompt.key for prompt in again] == ids


def test_repeats_and_rows_without_an_answer_are_left_out(tmp_path: Path) -> None:
    none = {"question": "?", "answer": None, "level": 0}
    empty = {"question": "??", "answer": "", "level": 0}
    data = write(tmp_path / "data.jsonl", [*questions(3), *questions(2), none, empty])
    arguments = ("--prompt-column", "question", "--verifier", "math", "--out", tmp_path)
    result = run(data, *arguments)
    assert "7 rows read, 2 repeats left out" in result.output
    assert "train.parquet: 3 prompts; 2 without an answer to compare with left out" in result.output
    write(data, [none, empty])
    assert "none of the 2 prompts has an answer" in refused(data, *arguments)


def test_any_answer_becomes_the_text_that_the_verifier_compares_with(tmp_path: Path) -> None:
    answers = [10**30, 3.0, -7, "x", 0.1]
    rows = [{"question": str(i), "answer": a} for i, a in enumerate(answers)]
    data = write(tmp_path / "data.jsonl", rows)
    arguments = ("--prompt-column", "question", "--verifier", "exact", "--out", tmp_path)
    assert run(data, *arguments).exit_code == 0
    table = pq.read_table(tmp_path / "train.parquet")
    truths = [row["reward_model"]["ground_truth"] for row in table.to_pylist()]
    assert truths == [str(10**30), "3", "-7", "x", "0.1"]
    exact = create("exact")
    for prompt, truth, answer in zip(
        load_prompts(str(tmp_path / "train.parquet")), truths, answers, strict=True
    ):
        assert exact(truth, prompt.columns) == exact(truth, {"answer": answer}) == 1.0


def test_a_function_gets_its_columns_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prepare_rewards.py").write_text(
        "def score(completion, answer, level, big=None, tests=()):\n    return 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rows: list[dict[str, Any]] = [
        {"question": "a", "answer": 5, "level": 1, "big": 10**40, "tests": [[1, "x"], {}]},
        {"question": "b", "answer": "5", "level": "high", "tests": None},
    ]
    data = write(tmp_path / "data.jsonl", rows)
    more = ("--prompt-column", "question", "--verifier", "prepare_rewards:score")
    result = run(data, *more, "--out", tmp_path)
    assert result.exit_code == 0, result.exception
    assert "reward_kwargs.verifier=prepare_rewards:score" in result.output
    for row, before, prompt in zip(
        pq.read_table(tmp_path / "train.parquet").to_pylist(),
        rows,
        load_prompts(str(tmp_path / "train.parquet")),
        strict=True,
    ):
        truth = row["reward_model"]["ground_truth"]
        inside = verifier_columns(row["data_source"], truth, row["extra_info"])
        for name in set(before) - {"question"}:
            assert inside[name] == before[name] == prompt.columns[name]
            assert type(inside[name]) is type(before[name])


def test_a_function_of_verls_kind_gets_what_verl_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prepare_verls.py").write_text(
        "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float((data_source, solution_str) == ('mine', ground_truth))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = write(tmp_path / "data.jsonl", questions(2))
    arguments = (data, "--prompt-column", "question", "--verifier", "prepare_verls:score")
    assert run(*arguments, "--data-source", "mine", "--out", tmp_path).exit_code == 0
    verifier = create("prepare_verls:score", processes=0)
    for prompt, answer in zip(load_prompts(str(tmp_path / "train.parquet")), "12", strict=True):
        assert verifier(answer, prompt.columns) == 1.0
        assert PACKED not in prompt.columns["extra_info"]
    message = refused(*arguments, "--answer-column", "anwser", "--out", tmp_path)
    assert "prompt 0 (0+1?): verifier 'prepare_verls:score' is called as verl calls it" in message


def test_packed_columns_keep_tuples_and_keys() -> None:
    columns = {
        "a": (1, [2, (3,)], {"x": {}}),
        "b": {1: "one", "1": {None: (1.5,)}, (1, 2): True},
        "c": {"()": [1], "d": 1},
        "e": {"()": [1]},
        "f": {"{}": 2},
        "g": math.inf,
    }
    assert unpacked(packed(columns)) == columns
    assert unpacked("[1]") == unpacked("{") == unpacked(None) == {}
    with pytest.raises(BasisError, match=r"column 'x' \(set\) cannot be passed"):
        packed({"x": {1}})


def test_a_generator_with_the_columns_of_its_score(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    data = "reasoning-gym:arc_agi?size=3"  # compares tuples in its metadata
    result = run(data, "--out", tmp_path, "--verifier", "reasoning-gym")
    assert result.exit_code == 0, result.exception
    verifier = create("reasoning-gym", processes=0)
    before = load_prompts(data, chat=True)
    table = pq.read_table(tmp_path / "train.parquet").to_pylist()
    after = load_prompts(str(tmp_path / "train.parquet"))
    for old, row, new in zip(before, table, after, strict=True):
        assert (old.key, old.source) == (new.key, row["source"]) == (row["prompt_id"], "arc_agi")
        truth = row["reward_model"]["ground_truth"]
        inside = verifier_columns(row["data_source"], truth, row["extra_info"])
        right = old.columns["answer"]
        assert verifier(right, old.columns) == verifier(right, inside) == 1.0
        assert verifier(right, new.columns) == 1.0
        assert verifier("7", old.columns) == verifier("7", inside) == verifier("7", new.columns)


def verl_rows() -> list[dict[str, Any]]:
    """As DAPO-Math-17K has them: text indices, and each prompt more than once."""
    return [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": f"Solve {i // 2}"}],
            "ability": "MATH",
            "reward_model": {"style": "rule-lighteval/MATH_v2", "ground_truth": f"{i // 2}"},
            "extra_info": {"index": f"uuid-{i // 2}"},
        }
        for i in range(8)
    ]


def test_a_file_in_verls_layout_gets_ids_and_loses_repeats(tmp_path: Path) -> None:
    rows = verl_rows()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dapo.parquet")
    arguments = (tmp_path / "dapo.parquet", "--out", tmp_path / "out", "--verifier", "math")
    result = run(*arguments)
    assert "8 rows read, 4 repeats left out" in result.output
    after = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    for old, new in zip(rows[::2], after, strict=True):
        assert {name: new[name] for name in old if name != "extra_info"} == {
            name: old[name] for name in old if name != "extra_info"
        }
        assert new["extra_info"]["index"] == old["extra_info"]["index"]
        assert new["prompt_id"] == prompt_key(old["prompt"]) == new["extra_info"]["prompt_id"]
    # Once more changes nothing.
    again = run(tmp_path / "out" / "train.parquet", "--out", tmp_path / "b", "--verifier", "math")
    assert "4 rows read, 0 repeats left out" in again.output
    assert pq.read_table(tmp_path / "b" / "train.parquet").to_pylist() == after


def test_the_files_are_written_all_or_none(tmp_path: Path) -> None:
    rows = [row | {"prompt": row["question"]} for row in questions()]
    data = write(tmp_path / "data.jsonl", rows)
    out = tmp_path / "out"
    arguments = (data, "--out", out, "--verifier", "math", "--prompt-column", "question")
    bad = write(tmp_path / "bad.jsonl", [{"question": "?", "answer": {"a": 1}}])
    message = refused(*arguments, "--validation", bad)
    assert "prompt 0 (?): verifier 'math' compares with a text or a number" in message
    assert list(out.iterdir()) == []
    mixed = [
        row | {"odd": odd} for row, odd in zip(verl_rows()[::2], [1, "x", [], {}], strict=True)
    ]
    message = refused(*arguments[:-2], "--validation", write(tmp_path / "mixed.jsonl", mixed))
    assert "column 'odd' has values that one Parquet column cannot hold" in message
    assert list(out.iterdir()) == []
    (out / "validation.parquet").mkdir()
    assert "is a folder" in refused(*arguments, "--validation", data)
    assert not (out / "train.parquet").exists()


def test_validation_is_a_share_or_another_data_set(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", questions())
    other = write(tmp_path / "other.jsonl", questions(12)[8:])
    arguments = (data, "--out", tmp_path, "--verifier", "math", "--prompt-column", "question")

    def ids(name: str) -> list[str]:
        return pq.read_table(tmp_path / f"{name}.parquet").column("prompt_id").to_pylist()

    loaded = load_prompts(str(data), prompt_column="question", chat=True)
    result = run(*arguments, "--validation-fraction", "0.3")
    assert "validation.parquet: 3 prompts" in result.output
    assert sorted(ids("train") + ids("validation")) == sorted(prompt.key for prompt in loaded)
    first = ids("validation")
    write(data, questions()[::-1])  # another order, the same prompts
    assert run(*arguments, "--validation-fraction", "0.3").exit_code == 0
    assert sorted(ids("validation")) == sorted(first)
    for share in ("0.01", "nan"):
        assert "leaves no validation" in refused(*arguments, "--validation-fraction", share)
    result = run(*arguments, "--validation", other)
    assert "2 of the 4 validation prompts are training prompts too" in result.stderr
    assert f"data.val_files={tmp_path}/validation.parquet" in result.output
    assert "val_before_train" not in result.output
    rows = pq.read_table(tmp_path / "validation.parquet").to_pylist()
    assert {row["extra_info"]["split"] for row in rows} == {"validation"}
    assert {row["data_source"] for row in rows} == {"other"}


def test_wrong_options(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", questions())
    arguments = (data, "--out", tmp_path, "--prompt-column", "question", "--verifier")
    assert "verl needs chats" in refused(*arguments, "math", "--no-chat")
    assert "did you mean 'math'" in refused(*arguments, "mth")
    for more in (("--validation", data, "--validation-fraction", "0.5"), ("--name", "../x")):
        assert run(*arguments, "math", *more).exit_code == 2
    assert not list(tmp_path.glob("*.parquet"))


def test_a_name_may_have_its_ending(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", questions())
    options = ("--prompt-column", "question", "--verifier", "math", "--name", "aime.parquet")
    assert run(data, "--out", tmp_path / "out", *options).exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["aime.parquet"]


def test_odd_paths_can_be_pasted(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", questions())
    out = tmp_path / "it's a=b"
    result = run(data, "--out", out, "--prompt-column", "question", "--verifier", "math")
    import shlex

    block = result.output.split("verl's overrides:\n")[1].split("pass rates:")[0]
    words = shlex.split(block)
    escaped = str(out / "train.parquet").replace("'", "\\'")
    assert f"data.train_files='{escaped}'" in words


def test_math_of_levels_3_to_5(tmp_path: Path) -> None:
    """Section 5.1 of the paper trains on them."""
    data = shared_data("train/math_train.parquet")
    more = ("--where", "level=[Level 3, Level 4, Level 5]", "--verifier", "number")
    column = ("--answer-column", "reward_model.ground_truth.target")
    result = run(data, "--out", tmp_path, *more, *column)
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert {row["level"] for row in rows} == {"Level 3", "Level 4", "Level 5"}
    left = int(result.output.split("prompts; ")[1].split()[0])
    assert len(rows) + left == 5586
    assert all(isinstance(row["reward_model"]["ground_truth"], str) for row in rows)
    assert PACKED not in rows[0]["extra_info"]
