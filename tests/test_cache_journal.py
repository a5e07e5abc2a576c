from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from cache_parts import (
    Digits,
    build,
    open_journal,
    rows,
)

from basis_rl.errors import PassRatesError
from basis_rl.passrates.journal import Batch


def test_a_journal_cut_anywhere_gives_the_same_table(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole.parquet")
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(3))
    journal = tmp_path / "t.parquet.journal.jsonl"
    data = journal.read_bytes()
    for length in range(0, len(data), 13):
        journal.write_bytes(data[:length])
        sampler = Digits()
        assert rows(build(path, sampler)) == rows(whole)
        assert sampler.calls == 4 - max(data[:length].count(b"\n") - 1, 0)
        path.unlink()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"journal": 1}\nnonsense\n{"batch": 0}\n', "is damaged"),
        (b'{"journal": 99, "settings": {}}\n', "not a journal of this version"),
        (b'{"other": 1}\n', "not a journal of this version"),
        (b'{"journal": 1, "settings": {}}\n', "not a journal of this version"),
    ],
)
def test_damaged_journals(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(PassRatesError, match=words):
        open_journal(path)


def edited_rewards(change: Any) -> Any:
    def edit(lines: list[dict[str, Any]]) -> None:
        change(lines[1]["rewards"])

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edited_rewards(lambda rewards: rewards.pop()), "line 3, has not the rewards of 3 prompts"),
        (edited_rewards(lambda rewards: rewards.append([0.0] * 4)), "not the rewards of 3"),
        (edited_rewards(lambda rewards: rewards[1].pop()), "without a list of 4 rewards"),
        (edited_rewards(lambda rewards: rewards.__setitem__(0, 1)), "without a list of 4 rewards"),
        (edited_rewards(lambda rewards: rewards[0].__setitem__(0, "1")), "neither a finite number"),
        (edited_rewards(lambda rewards: rewards[0].__setitem__(0, True)), "neither a finite"),
        (edited_rewards(lambda rewards: rewards[0].__setitem__(0, math.nan)), "neither a finite"),
        (edited_rewards(lambda rewards: rewards[0].__setitem__(0, [1])), "neither a finite"),
        (lambda lines: lines[1].pop("rewards"), "line 3, has not the rewards"),
        (lambda lines: lines[1].update(rewards={"a": 1}), "line 3, has not the rewards"),
        (lambda lines: lines[1].update(failures=3), "line 3, has failures that are no counts"),
        (lambda lines: lines[1].update(failures={"E": "x"}), "failures that are no counts"),
        (lambda lines: lines[1].update(batch="one"), "batch 'one' where batch 1 belongs"),
        (lambda lines: lines.reverse(), "line 2, has batch 2 where batch 0 belongs"),
        (lambda lines: lines.pop(0), "line 2, has batch 1 where batch 0 belongs"),
        (lambda lines: lines.append(lines[0]), "line 5, has batch 0 where batch 3 belongs"),
        (
            lambda lines: lines.extend({**lines[0], "batch": n} for n in (3, 4)),
            "line 5, has not the rewards of 1 prompts",
        ),
    ],
)
def test_edited_journals(edit: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(3))
    journal = tmp_path / "t.parquet.journal.jsonl"
    header, *lines = map(json.loads, journal.read_text().splitlines())
    edit(lines)
    journal.write_text("".join(json.dumps(line) + "\n" for line in [header, *lines]))
    with pytest.raises(PassRatesError) as caught:
        build(path)
    assert words in str(caught.value)
    assert f"{journal}, line" in str(caught.value)
    assert "sampled again" in str(caught.value)


def test_a_batch_too_many_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with open_journal(path, batch_sizes=[1, 1], n=1) as journal:
        journal.append(0, Batch([[1.0]]))
        journal.append(1, Batch([[1.0]]))
    with pytest.raises(PassRatesError, match="line 3, has a batch more than the 1 of the build"):
        open_journal(path, batch_sizes=[1], n=1)


def test_a_journal_cut_twice_goes_on(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole.parquet")
    path = tmp_path / "t.parquet"
    journal = tmp_path / "t.parquet.journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(1))
    for batches in (1, 2):
        with journal.open("ab") as stream:
            stream.write(b'{"batch": 9, "rew')
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(1))
        assert journal.read_bytes().count(b"\n") == 2 + batches
    last = Digits()
    assert rows(build(path, last)) == rows(whole)
    assert last.calls == 1


def test_a_journal_without_batches_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(0), n=5)
    assert rows(build(path)) == rows(build(tmp_path / "whole.parquet"))


def test_a_journal_in_use(tmp_path: Path) -> None:
    with (
        open_journal(tmp_path / "j"),
        pytest.raises(PassRatesError, match="in use by another process"),
    ):
        open_journal(tmp_path / "j")


def test_journal_batches_are_on_the_disk_at_once(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j", batch_sizes=[1], n=2) as journal:
        journal.append(0, Batch([[1.0, None]], {"E": 1}))
        lines = (tmp_path / "j").read_text().splitlines()
        assert json.loads(lines[1]) == {
            "batch": 0,
            "rewards": [[1.0, None]],
            "failures": {"E": 1},
        }
