"""Builds that are killed at any moment, and journals that are cut at any byte."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_forks import PROMPTS, Forks, N
from cache_parts import Digits, build, journal_lines, prompts

from basis_rl.passrates import PassRates
from basis_rl.passrates.build import journal_path
from basis_rl.passrates.build.members import read_members


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(tmp_path_factory.mktemp("forks")) as forks:
        yield forks


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, float]:
    """The file of a build that nothing stopped, and the seconds that it took."""
    out = tmp_path_factory.mktemp("whole") / "t.parquet"
    start = time.monotonic()
    assert forks.run(out) == 0
    seconds = time.monotonic() - start
    table = PassRates.load(out)
    assert table.n.tolist() == [N] * PROMPTS
    assert 0.2 < table.means.mean() < 0.8
    return out.read_bytes(), seconds


def phase(out: Path) -> str:
    """What a build was doing when it was killed."""
    if any(name.endswith(".tmp") for name in os.listdir(out.parent)) or out.exists():
        return "writing"
    if not journal_path(out).exists():
        return "start"
    lines = journal_lines(out)
    sampled = sum(len(line["texts"]) for line in lines if line["kind"] == "completions")
    judged = sum(len(line["rewards"]) for line in lines if line["kind"] == "verdicts")
    if not sampled:
        return "start"
    if sampled < N * PROMPTS:
        return "sampling"
    return "verifying" if judged < sampled else "writing"


def kill_builds(
    forks: Forks, whole: tuple[bytes, float], kills: int, folder: Path, seed: int
) -> set[str]:
    """Kill builds so often, finishing each before the next is begun; phases that were struck."""
    content, seconds = whole
    chance = random.Random(seed)
    struck: list[str] = []
    for number in itertools.count():
        out = folder / str(number) / "t.parquet"
        out.parent.mkdir()
        while len(struck) < kills:
            # Now and then the moment is that of the table's writing, too short to be struck.
            pause = chance.choice(["before", "after"]) if chance.random() < 0.2 else ""
            delay = 0.0 if pause else chance.uniform(0, seconds)
            if out.exists():
                break
            status = forks.run(out, delay, pause)
            if status == 0:
                assert out.read_bytes() == content
                break
            assert status == -signal.SIGKILL  # not an error of its own
            struck.append(phase(out))
        assert forks.run(out) == 0
        assert out.read_bytes() == content
        assert sorted(os.listdir(out.parent)) == ["t.parquet", journal_path(out).name]
        numbers = [
            (line["key"], line["first"] + i)
            for line in journal_lines(out)
            if line["kind"] == "completions"
            for i in range(len(line["texts"]))
        ]
        assert len(numbers) == len(set(numbers)) == N * PROMPTS  # nothing lost, nothing doubled
        if len(struck) == kills:
            return set(struck)
    raise AssertionError


def test_five_kills(forks: Forks, whole: tuple[bytes, float], tmp_path: Path) -> None:
    kill_builds(forks, whole, 5, tmp_path, seed=1)


@pytest.mark.slow
def test_fifty_kills(forks: Forks, whole: tuple[bytes, float], tmp_path: Path) -> None:
    assert kill_builds(forks, whole, 50, tmp_path, seed=0) >= {"start", "sampling", "writing"}


@pytest.mark.parametrize("zeros", [0, 600])
def test_a_journal_cut_at_any_byte_of_its_last_unit(
    zeros: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    build(tmp_path / "whole.parquet", prompts=prompts(4))
    content = (tmp_path / "whole.parquet").read_bytes()
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(2, batch=1), prompts=prompts(4))
    data = journal_path(path).read_bytes()
    members = list(read_members(journal_path(path)))
    last = next(m for m in reversed(members) if b'"completions"' in m.content)
    for cut in range(last.start, last.end):
        path.unlink(missing_ok=True)
        journal_path(path).write_bytes(data[:cut] + bytes(zeros))
        engine = Digits()
        build(path, engine, prompts=prompts(4))
        assert path.read_bytes() == content
        is_whole = data[cut : last.end].strip(b"\0") == b"" and zeros  # its own last bytes
        assert len(engine.asked) == (8 if is_whole else 12)


def test_a_journal_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    build(tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    path = tmp_path / "t.parquet"
    build(path)
    data = journal_path(path).read_bytes()
    members = list(read_members(journal_path(path)))
    for cut in range(0, len(data), 17):
        path.unlink(missing_ok=True)
        journal_path(path).write_bytes(data[:cut])
        engine = Digits()
        build(path, engine)
        assert path.read_bytes() == content
        kept = sum(m.content.count(b'"completions"') for m in members if m.end <= cut)
        assert len(engine.asked) == 40 - 4 * kept
