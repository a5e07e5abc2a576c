"""Keys of verl's training data, read from its files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from verl_config import KEYS, ROWS, user, verl_config, write

from basis_rl.errors import BasisError, BatchError, ConfigError, PromptsError
from basis_rl.passrates.keys import prompt_key
from basis_rl.verl.data import TrainingPrompts, read_prompts, unreadable_here
from basis_rl.verl.options import Options
from basis_rl.verl.parquet import distinct


def read(
    files: str | list[str], changes: dict[str, Any] | None = None, **options: Any
) -> TrainingPrompts:
    config = verl_config({"data.train_files": files} | (changes or {}))
    return read_prompts(config, Options("basis", **options))


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "json"])
def test_keys_are_hashes_or_a_column(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"train.{suffix}")
    found = read(file)
    assert found.keys == KEYS
    assert found.prompt(2) == ROWS[2]["prompt"]
    assert found.show(2) == "'é ≤ 3'"
    assert [row["data_source"] for row in found.rows(["data_source"])] == ["toy"] * 4
    named = read(file, prompt_key_column="extra_info.id", prompt_source_column="data_source")
    assert named.keys == ["p0", "p1", "p2", "p3"]
    assert read(file, prompt_key_column="extra_info.index").keys == ["0", "1", "2", "3"]


def test_several_files_are_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "a.parquet", ROWS[:3])
    files = ["~/a.parquet", write(tmp_path / "b.jsonl", ROWS[3:])]
    found = read(files)
    assert found.keys == KEYS
    assert found.prompt(3) == ROWS[3]["prompt"]
    assert len(list(found.rows(["prompt"]))) == 4


def test_other_forms_of_prompts(tmp_path: Path) -> None:
    system = [{"role": "system", "content": "Be brief."}, *user("x")]
    parts = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
    tools = [{"role": "user", "content": "x", "name": None}, {"role": "tool", "content": None}]
    for prompts in (["a", "b", "a"], [system, user("x"), system], [parts, parts], [tools, tools]):
        file = write(tmp_path / "t.parquet", [{"prompt": prompt} for prompt in prompts])
        stored = pq.read_table(file).to_pylist()
        assert read(file).keys == [prompt_key(row["prompt"]) for row in stored]
    file = write(tmp_path / "q.parquet", [{"question": "x"}])
    assert read(file, {"data.prompt_key": "question"}).keys == [prompt_key("x")]


@given(
    st.lists(
        st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "system"]), "content": st.sampled_from("abc")}
            )
            | st.just({"role": None, "content": "a"}),
            max_size=3,
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 5),
)
def test_chats_are_told_apart_as_python_would(chats: list[Any], start: int) -> None:
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    array = pa.array([*chats[:1] * start, *chats], type=kind)[start:]
    number, first = distinct(array)
    for row, chat in enumerate(chats):
        assert chats[first[number[row]]] == chat
    assert len(first) == len({json.dumps(chat, sort_keys=True) for chat in chats})


@pytest.mark.parametrize(
    ("rows", "options", "error", "text"),
    [
        (ROWS, {"prompt_key_column": "uid"}, ConfigError, "is 'uid', and the training data have"),
        (
            ROWS,
            {"prompt_key_column": "extra_info.uid"},
            BasisError,
            "'extra_info.uid'( is None|, only extra_info.index, extra_info.id: name one)",
        ),
        (ROWS, {"prompt_key_column": "prompt.0"}, BasisError, "'prompt.0'( is .*|, name another)"),
        (ROWS, {"prompt_source_column": "task"}, ConfigError, "is 'task', and the training data"),
        (ROWS, {"prompt_key_column": "data_source"}, ConfigError, "all of .*'1.1='.*'2.2='"),
        (
            [*ROWS, ROWS[1] | {"prompt": user("9")}],
            {"prompt_key_column": "extra_info.id"},
            ConfigError,
            r"'p1' for both of these prompts: '2.2=' and '9' \(rows 1 and 4 of 5\)",
        ),
        ([ROWS[0], {"prompt": user("5")}], {"prompt_key_column": "extra_info.id"}, BatchError, "5"),
        ([{"text": "x"}], {}, ConfigError, "no column 'prompt'.*data.prompt_key="),
        ([{"prompt": 3}], {}, BatchError, "row 0: the prompt is 3"),
        ([{"prompt": user("a"), "images": "x"}], {}, ConfigError, "column 'images'"),
        ([{"prompt": []}], {}, BatchError, "row 0: the prompt has no messages"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_rows_without_a_key_of_their_own_are_refused(
    tmp_path: Path,
    suffix: str,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    error: type[BasisError],
    text: str,
) -> None:
    file = write(tmp_path / f"train.{suffix}", rows)
    if suffix == "jsonl":
        error, text = BasisError, text.removeprefix("row 0: ")
    with pytest.raises(error, match=text) as caught:
        read(file, **options)
    assert "data.train_files" in str(caught.value) or "rows" in text or "all of" in text
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["train.jsonl.gz", "train.csv"])
def test_a_file_that_verl_does_not_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"end in \.parquet, \.json, \.jsonl: convert it"):
        read(write(tmp_path / name))
    with pytest.raises(PromptsError, match="there is no file"):
        read(str(tmp_path / "nowhere.csv"))


def test_an_error_in_a_later_batch_names_its_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("basis_rl.verl.parquet._ROWS", 2)
    file = write(tmp_path / "train.parquet", [*ROWS, ROWS[1] | {"extra_info": {"id": ""}}])
    assert read(file).keys == [*KEYS, KEYS[1]]
    with pytest.raises(BatchError, match=r"'extra_info.id' is '' for the prompt '2.2='"):
        read(file, prompt_key_column="extra_info.id")


def test_a_repeated_prompt_may_share_its_key(tmp_path: Path) -> None:
    file = write(tmp_path / "train.parquet", ROWS * 3)
    assert read(file, prompt_key_column="extra_info.id").keys == ["p0", "p1", "p2", "p3"] * 3
    assert read(file).keys == KEYS * 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    whole = Path(write(tmp_path / "whole.parquet")).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-50])
    for file, text in {
        str(tmp_path / "cut.parquet"): "cut.parquet is damaged",
        str(tmp_path / "whole.parquett"): "did you mean .*whole.parquet",
        str(tmp_path): "is a folder",
    }.items():
        with pytest.raises(PromptsError, match=text):
            read(file)
    with pytest.raises(ConfigError, match=r"data.train_files is empty"):
        read([])
    with pytest.raises(ConfigError, match="no rows"):
        read(write(tmp_path / "none.jsonl", []))


def test_rows_that_verl_takes(tmp_path: Path) -> None:
    file = write(tmp_path / "train.parquet")
    some = {"data.train_max_samples": 2}
    assert read(file, some).keys == KEYS[:2]
    seeded = some | {"data.shuffle": True, "data.seed": 3}
    chosen = np.random.default_rng(3).choice(4, size=2, replace=False)
    found = read(file, seeded)
    assert found.keys == [KEYS[row] for row in chosen]
    assert found.prompt(1) == ROWS[chosen[1]]["prompt"]
    assert read(file, some | {"data.shuffle": True}).keys == KEYS  # nobody knows which
    assert read(file, {"data.train_max_samples": -1}).keys == KEYS


def test_data_that_only_the_job_can_read() -> None:
    assert unreadable_here(verl_config()) is None
    for changes, text in (
        ({"data.train_files": ["a.parquet", "hdfs://x/b.parquet"]}, "hdfs://x/b.parquet is not"),
        ({"data.custom_cls.path": "mine.py"}, "data.custom_cls.path=mine.py makes prompts"),
    ):
        assert text in str(unreadable_here(verl_config(changes)))


def test_the_paper_s_prompts_take_less_than_a_second(tmp_path: Path) -> None:
    rows = [{"prompt": user(f"Problem {i}: " + "word " * 50)} for i in range(17_398)]
    file = write(tmp_path / "train.parquet", rows)
    start = time.process_time()
    assert len(set(read(file).keys)) == 17_398
    assert time.process_time() - start < 1.5  # 0.5 s alone
