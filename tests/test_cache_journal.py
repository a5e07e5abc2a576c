from __future__ import annotations

import errno
import gzip
import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cache_parts import (
    Digits,
    build,
    is_odd,
    journal_lines,
    prompts,
    rows,
    write_journal,
)

from basis_rl.errors import PassRatesError
from basis_rl.files import cannot_write
from basis_rl.passrates.build import journal_path, members
from basis_rl.passrates.build.journal import Journal
from basis_rl.passrates.build.members import MemberFile, read_members
from basis_rl.passrates.build.record import Record


def stopped(path: Path, after: int = 3) -> list[dict[str, Any]]:
    """Lines of the journal of a build that was stopped after so many batches."""
    with pytest.raises(KeyboardInterrupt):
        build(path, Digits(after))
    return journal_lines(path)


def test_any_gzip_tool_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    with gzip.open(journal_path(path), "rt") as stream:
        lines = [json.loads(line) for line in stream]
    assert lines == journal_lines(path)
    assert lines[-1]["kind"] == "session"
    kinds = [line["kind"] for line in lines if line["kind"] != "session"]
    assert kinds[:5] == ["header", "target", "prompts", "verifier", "engine"]
    assert (kinds.count("completions"), kinds.count("verdicts")) == (10, 10)
    assert kinds[-2:] == ["sampled", "complete"]


def test_completions_are_in_it_before_they_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    seen: list[int] = []

    def look(completion: str, _: Any) -> float:
        kinds = [line["kind"] for line in journal_lines(path)]
        seen.append(kinds.count("completions"))
        return 1.0

    from basis_rl.verifiers import NamedVerifier

    build(path, verifier=NamedVerifier("v", "1", look))
    assert seen == [3] * 12 + [6] * 12 + [9] * 12 + [10] * 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nonsense", "is damaged after line 0, at byte 0"),
        (gzip.compress(b"nonsense\n"), "is damaged after line 0"),
        (gzip.compress(b"[]\n"), "is damaged after line 0"),
        (gzip.compress(b'{"kind":"header","journal":99}\n'), "not a journal of this version"),
        (gzip.compress(b'{"other":1}\n'), "not a journal of this version"),
        (gzip.compress(b'{"kind":"complete"}\n'), "not a journal of this version"),
    ],
)
def test_what_is_no_journal(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    journal_path(path).write_bytes(content)
    with pytest.raises(PassRatesError, match=words):
        build(path)
    assert journal_path(path).read_bytes() == content


def test_damage_before_the_end_names_the_place_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    whole = build(path)
    path.unlink()
    data = journal_path(path).read_bytes()
    members = list(read_members(journal_path(path)))
    damaged = next(m for m in members if b'"completions"' in m.content)
    middle = (damaged.start + damaged.end) // 2
    line = sum(m.content.count(b"\n") for m in members if m.end <= damaged.start)
    journal_path(path).write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
    with pytest.raises(PassRatesError) as caught:
        build(path)
    assert f"is damaged after line {line}, at byte {damaged.start}: " in str(caught.value)
    assert f"truncate -s {damaged.start} {journal_path(path)}" in str(caught.value)
    os.truncate(journal_path(path), damaged.start)
    assert rows(build(path)) == rows(whole)


def completions(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == "completions"]


def edit(kind: str, /, **changes: Any) -> Any:
    """Change the second line of a kind."""

    def change(lines: list[dict[str, Any]]) -> None:
        [line for line in lines if line["kind"] == kind][1].update(changes)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit("completions", texts=["1"]), "completions that are not one text and one number"),
        (edit("completions", texts=3), "completions that are not one text"),
        (edit("completions", tokens=[1, 2, 3, -4]), "completions that are not one text"),
        (edit("completions", key=None), "completions without key and number"),
        (edit("completions", first=-1), "completions without key and number"),
        (edit("completions", cut=["a"]), "completions cut that are no numbers"),
        (edit("completions", key="q"), "prompt 'q', which no line before it names"),
        (edit("completions", key="k0"), "completion 0 of prompt 'k0' twice, and different"),
        (edit("completions", kind="other"), "a line of unknown kind 'other'"),
        (edit("completions", kind=[]), "a line of unknown kind"),
        (edit("verdicts", rewards=["1"] * 4), "neither a finite number nor null"),
        (edit("verdicts", rewards=[True] * 4), "neither a finite number nor null"),
        (edit("verdicts", rewards=[math.nan] * 4), "neither a finite number nor null"),
        (edit("verdicts", rewards={}), "neither a finite number nor null"),
        (edit("verdicts", first="0"), "verdicts without key and number"),
        (edit("verdicts", first=3), "a verdict on completion 4 of 'k1', which is not there"),
        (edit("verdicts", key="k0", rewards=[9.0] * 4), "two verdicts on completion 0 of"),
        (edit("verdicts", failures=3), "failures that are no lists of numbers"),
        (edit("verdicts", failures={"E": 2}), "failures that are no lists of numbers"),
        (lambda lines: lines.insert(3, lines[0]), "a second header"),
        (lambda lines: lines[1].pop("settings"), "a target without settings"),
        (lambda lines: lines[2].update(rows=[["a"]]), "prompts that are not key, hash and hash"),
        (lambda lines: lines.append({"kind": "session", "number": 1}), "a session without"),
    ],
)
def test_edited_journals(change: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    lines = stopped(path)
    change(lines)
    wanted = json.dumps(lines)  # also what a build would refuse to write
    journal_path(path).write_bytes(
        b"".join(gzip.compress(json.dumps(line).encode() + b"\n") for line in json.loads(wanted))
    )
    with pytest.raises(PassRatesError) as caught:
        build(path)
    assert words in str(caught.value)
    assert f"{journal_path(path)}, line" in str(caught.value)
    assert "the rest is sampled again" in str(caught.value)


def test_the_same_completion_twice(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    lines = stopped(path)
    write_journal(path, [*lines, *completions(lines), *lines[-4:]])
    engine = Digits()
    table = build(path, engine)
    assert len(engine.asked) == 4
    assert rows(table) == rows(build(tmp_path / "whole.parquet"))
    assert table.provenance.extra["completions"] == 40


def test_a_journal_cut_twice_goes_on(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole.parquet")
    path = tmp_path / "t.parquet"
    stopped(path, 1)
    for batches in (1, 2):
        with journal_path(path).open("ab") as stream:
            stream.write(gzip.compress(b'{"kind": "completions"}\n')[:-3])
        with pytest.raises(KeyboardInterrupt):
            build(path, Digits(1))
        assert len(completions(journal_lines(path))) == 3 * batches + 3
    last = Digits()
    assert rows(build(path, last)) == rows(whole)
    assert last.batches == 1


def test_a_journal_without_completions_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    lines = stopped(path)
    start = [line for line in lines if line["kind"] not in {"completions", "verdicts", "session"}]
    write_journal(path, start)
    assert rows(build(path, seed=1)) == rows(build(tmp_path / "whole.parquet", seed=1))


@pytest.mark.parametrize("start", [True, False])
def test_a_journal_without_completions_cannot_be_extended(start: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    build(path)
    write_journal(path, journal_lines(path)[:4] if start else [])
    for options in ({"extend": True, "n": 5}, {"reverify": True}):
        with pytest.raises(PassRatesError, match=r"no journal .* with completions"):
            build(path, **options)


def test_a_journal_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_LOCK_S", 0.05)
    path = tmp_path / "t.parquet"
    file = MemberFile(journal_path(path))
    with pytest.raises(PassRatesError, match="in use by another process"):
        build(path)
    file.close()
    assert len(build(path)) == 10


def test_a_lock_that_a_killed_process_holds_a_moment_longer(tmp_path: Path) -> None:
    file = MemberFile(journal_path(tmp_path / "t.parquet"))
    timer = threading.Timer(0.2, file.close)
    timer.start()
    assert len(build(tmp_path / "t.parquet")) == 10
    timer.join()


def test_one_journal_whatever_the_output_is_called(tmp_path: Path) -> None:
    path, link = tmp_path / "t.parquet", tmp_path / "link.parquet"
    link.symlink_to(path)
    build(link)
    assert sorted(os.listdir(tmp_path)) == [link.name, path.name, journal_path(path).name]
    engine = Digits()
    assert build(path, engine, n=5, extend=True).n.tolist() == [5] * 10
    assert len(engine.asked) == 10
    file = MemberFile(journal_path(link))
    file.close()
    assert file.path == journal_path(path)


def test_where_no_journal_can_be_made(tmp_path: Path) -> None:
    engine = Digits()
    folder = tmp_path / "t.parquet.journal.jsonl.gz"
    folder.mkdir()
    with pytest.raises(PassRatesError, match=r"cannot write .*journal.jsonl.gz: Is a directory"):
        build(tmp_path / "t.parquet", engine)
    with pytest.raises(ValueError, match=r"/proc/t.parquet\S*: No such .*; choose another folder$"):
        build(Path("/proc/t.parquet"), engine)
    assert engine.asked == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOENT, "; choose another folder"),
        (errno.EROFS, "; choose another folder"),
        (errno.EACCES, "; change the permissions or choose another folder"),
        (errno.EDQUOT, "; free some space or choose another folder, then run it again"),
        (errno.EFBIG, "; raise the limit on file sizes (ulimit -f), then run it again"),
    ],
)
def test_the_remedy_of_a_failed_write(number: int, remedy: str) -> None:
    reason = os.strerror(number)
    assert cannot_write("x", OSError(number, reason)) == f"cannot write x: {reason}{remedy}"


class FullDisk:
    """Takes so many bytes through os.write, then has no space."""

    def __init__(self, space: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.space, self.write = space, os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, descriptor: int, data: Any) -> int:
        if not self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.write(descriptor, bytes(data)[: min(self.space, 50)])
        self.space -= written
        return written


@pytest.mark.parametrize("space", [0, 1, 30, 400, 700, 1003, 1400])
def test_disk_full_and_then_some_space(
    space: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    whole = build(tmp_path / "whole.parquet")
    first = Digits()
    with monkeypatch.context() as patch:
        FullDisk(space, patch)
        with pytest.raises(PassRatesError, match=r"jsonl.gz: No space left .*journal is intact"):
            build(path, first)
    assert not path.exists()
    kept = 0
    if journal_path(path).exists():
        members = list(read_members(journal_path(path)))
        assert members[-1].end == journal_path(path).stat().st_size  # whole units and no more
        kept = sum(len(line["texts"]) for line in completions(journal_lines(path)))
        assert kept
    rest = Digits()
    assert rows(build(path, rest)) == rows(whole)
    assert len(rest.asked) == 40 - kept


def test_no_space_for_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    replace = Path.replace

    def fail(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(PassRatesError, match=r"t.parquet: No space .*again: all of it is in .*gz"):
        build(path)
    monkeypatch.setattr(Path, "replace", replace)
    assert sorted(os.listdir(tmp_path)) == ["t.parquet.journal.jsonl.gz"]
    engine, verifier = Digits(), is_odd()
    assert len(build(path, engine, verifier)) == 10
    assert (engine.asked, verifier.calls) == ([], 0)


def test_an_append_that_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = MemberFile(tmp_path / "j")
    file.append(b"one\n")
    write = os.write

    def interrupted(descriptor: int, data: Any) -> int:
        write(descriptor, data[:5])
        raise KeyboardInterrupt

    def late(descriptor: int, data: Any) -> int:
        write(descriptor, data)
        raise KeyboardInterrupt

    for step, expected in ((interrupted, []), (late, [b"two\n"])):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", step)
            with pytest.raises(KeyboardInterrupt):
                file.append(b"two\n")
        file.append(b"three\n")
        contents = [m.content for m in read_members(tmp_path / "j")]
        assert contents == [b"one\n", *expected, b"three\n"]
        file.truncate(next(iter(read_members(tmp_path / "j"))).end)
    file.close()


def test_time_is_kept_over_sessions(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    stopped(path)
    build(path)
    lines = [line for line in journal_lines(path) if line["kind"] == "session"]
    sessions = {line["number"]: line["seconds"] for line in lines}
    assert list(sessions) == [1, 2]
    journal = Journal(journal_path(path), {}, created="now", must_exist=True)
    with journal:
        spent = sum(sessions.values())
        assert spent <= journal.seconds < spent + 5


def test_a_killed_session_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "SECONDS_BETWEEN_SYNCS", 0.0)
    path = tmp_path / "t.parquet"
    journal = Journal(journal_path(path), {}, created="now")
    time.sleep(0.02)
    journal.append([{"kind": "prompts", "rows": [["a", "", ""]]}])
    [line] = [line for line in journal_lines(path) if line["kind"] == "session"]
    assert line["seconds"] >= 0.02


def test_a_record_takes_few_bytes_and_finds_what_is_missing() -> None:
    record = Record()
    record.name_prompts([[f"k{i}", "h", "r"] for i in range(1000)])
    for i in range(1000):
        record.add_completions(f"k{i}", 3 * (i % 2), ["a"] * 29, [1] * 29, [])
    size = sum(
        getattr(record, name).nbytes
        for name in ("status", "rewards", "failures", "tokens", "cut", "digests")
    )
    assert size == 1000 * 32 * 23
    assert record.missing(0, 34) == [(29, 5)]
    assert record.missing(1, 34) == [(0, 3), (32, 2)]
    assert record.missing(1, 2) == [(0, 2)]
    record.add_completions("k1", 1, ["b"], [1], [])
    assert record.missing(1, 32) == [(0, 1), (2, 1)]


def test_failures_have_as_many_causes_as_they_like() -> None:
    record = Record()
    record.name_prompts([["k", "h", "r"]])
    record.add_completions("k", 0, ["a"] * 300, [1] * 300, [])
    for i in range(300):
        record.add_verdicts("k", i, [0.0], {f"cause {i:03}": [i]})
    import numpy as np

    counts = record.failure_counts(np.array([0]))
    assert sum(counts.values()) == record.failed == 300
    assert counts["other"] > 1


def test_prompts_with_odd_characters(tmp_path: Path) -> None:
    from basis_rl.prompts import Prompt
    from basis_rl.rollouts import Completion, Request, Rollouts

    class Odd(Digits):
        def answer(self, request: Request, seed: int) -> Rollouts:
            texts = ["\ud800", "a\u2028b", "\x00", "é"][: request.count]
            return Rollouts(request.key, 0, tuple(Completion(text, 1) for text in texts))

    from basis_rl.verifiers import NamedVerifier

    path = tmp_path / "t.parquet"
    seen: list[str] = []

    def score(completion: str, _: Any) -> float:
        seen.append(completion)
        return 1.0

    build(path, Odd(), NamedVerifier("v", "1", score), prompts=[Prompt("k\n", "p", None, {})])
    first = list(seen)
    build(
        path,
        Odd(),
        NamedVerifier("v", "2", score),
        prompts=[Prompt("k\n", "p", None, {})],
        reverify=True,
    )
    assert seen == 2 * first
    assert len(prompts()) == 10


def test_the_same_completion_twice_is_judged_once(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    lines = [line for line in stopped(path) if line["kind"] != "verdicts"]
    write_journal(path, [*lines, *completions(lines)])
    verifier = is_odd()
    build(path, Digits(), verifier)
    assert verifier.calls == 40


def test_what_a_killed_writing_left_is_removed(tmp_path: Path) -> None:
    kept = [".t.parquet.0123456789zz.tmp", ".u.parquet.0123456789ab.tmp"]
    for name in [".t.parquet.0123456789ab.tmp", *kept]:
        (tmp_path / name).touch()
    build(tmp_path / "t.parquet")
    assert sorted(os.listdir(tmp_path)) == [*kept, "t.parquet", "t.parquet.journal.jsonl.gz"]
