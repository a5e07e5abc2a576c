"""One session of a build: completions from the engine to the verifier, all into the journal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates.build.identity import Identity, refuse_differences
from basis_rl.passrates.build.journal import Journal
from basis_rl.passrates.build.judge import MAX_WAITING, Judge
from basis_rl.passrates.build.lines import Line, completions_line
from basis_rl.passrates.build.progress import BuildProgress, Progress
from basis_rl.passrates.build.record import MISSING, SAMPLED
from basis_rl.passrates.build.rewards import RewardWarnings
from basis_rl.rollouts.engine import Engine, Request, Rollouts
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.verifiers.base import MAX_FAILURES, NamedVerifier, too_many_failures

if TYPE_CHECKING:
    from basis_rl.prompts import Prompt

MAX_UNVERIFIED = 0.1
_ENOUGH_ROLLOUTS = 64  # before the shares of failures and of missing verdicts mean anything
_SECONDS_BETWEEN_REPORTS = 0.1


class Session:
    """One session of a build."""

    def __init__(
        self,
        journal: Journal,
        prompts: Sequence[Prompt],
        engine: Engine | None,
        verifier: NamedVerifier,
        settings: SamplingSettings,
        wanted: Identity,
        progress: Progress | None,
        *,
        seed: int,
    ) -> None:
        self._journal, self._record = journal, journal.record
        self._prompts, self._engine, self._verifier = prompts, engine, verifier
        self._settings, self._wanted, self._seed = settings, wanted, seed
        self._progress, self._reported = progress, 0.0
        self._n: int = wanted.target["n"]
        self._rows = np.array([self._record.row(p.key) for p in prompts], dtype=np.int64)
        self._target = np.zeros(len(prompts), dtype=np.int64)
        self._judge = Judge(verifier, {p.key: p.columns for p in prompts})
        self._warnings = RewardWarnings(self._record, self._rows)
        self._started = time.monotonic()
        self._before = (self._record.completions, self._record.sampled_tokens)

    def run(self) -> None:
        """Sample and judge what is missing."""
        targets = self._targets()
        self._target = next(targets)  # the first stage needs no verdict
        self._report(now=True)
        with _Rescue(self._journal, self._judge):
            self._judge_stored()
            for target in chain([self._target], targets):
                self._target = target
                self._sample()
                self._finish_judging()
            if not self._journal.is_sampled:
                self._journal.append([{"kind": "sampled"}])
        self._report(now=True)
        self._check_verdicts(at_end=True)
        self._warnings.at_end()

    def reverify(self) -> None:
        """Judge what is stored.

        Raises
        ------
        PassRatesError
            If completions are missing: there is no table to write yet.
        """
        self._target = self._record.sampled(self._rows)
        self._report(now=True)
        with _Rescue(self._journal, self._judge):
            self._judge_stored()
            self._finish_judging()
        self._report(now=True)
        self._check_verdicts(at_end=True)
        self._warnings.at_end()
        adaptive = self._wanted.target["adaptive"]
        missing = int((self._n - self._target).clip(0).sum())
        if not self._journal.is_sampled and (adaptive or missing):
            count = "" if adaptive else f"{missing} "
            raise PassRatesError(
                f"all {self._record.judged} stored completions are judged again, but {count}"
                "completions are not sampled yet: run the same command without --reverify"
            )

    def _targets(self) -> Iterator[IntArray]:
        """Completions wanted of each prompt, stage by stage; a stage needs those before it."""
        sampled = np.zeros(len(self._prompts), dtype=np.int64)
        if not self._wanted.target["adaptive"]:
            yield sampled + self._n
            return
        from basis_rl.passrates.adaptive import next_rollouts

        while True:
            moments = self._record.moments(self._rows, sampled)
            more = next_rollouts(*moments, sampled, limit=self._n)
            if not more.any():
                return
            sampled = sampled + more
            yield sampled

    def _sample(self) -> None:
        requests = self._requests()
        if not requests:
            return
        assert self._engine is not None
        self._engine.check([request.prompt for request in requests], self._settings)
        self._note_engine(self._engine)
        stream = self._engine.stream(requests, self._settings, seed=self._seed)
        self._started = self._started if self._sampled_here else time.monotonic()
        self._report(now=True)
        try:
            for finished in stream:
                self._take(finished)
        finally:
            close = getattr(stream, "close", None)
            if close is not None:
                close()
        left = sum(request.count for request in self._requests())
        if left:
            raise PassRatesError(
                f"engine {self._engine.name!r} left out {left} completions (first: prompt "
                f"{self._requests()[0].key!r}): run it again, and report it as a bug"
            )

    def _requests(self) -> list[Request]:
        """Completions below the target that are not there."""
        short = self._record.short(self._rows, self._target).nonzero()[0].tolist()
        return [
            Request(prompt.key, prompt.prompt, first, count)
            for prompt, row, target in (
                (self._prompts[i], int(self._rows[i]), int(self._target[i])) for i in short
            )
            for first, count in self._record.missing(row, target)
        ]

    def _note_engine(self, engine: Engine) -> None:
        before, now = self._journal.engine, {"dtype": engine.dtype, "version": engine.version}
        if before.get("dtype") and engine.dtype:
            dtypes = {"dtype": before["dtype"]}, {"dtype": engine.dtype}
            refuse_differences(*dtypes, self._journal.path)
        if before != now:
            self._journal.append([{"kind": "engine", "settings": now}])

    def _take(self, finished: list[Rollouts]) -> None:
        """Put what finished together into the journal, then before the verifier."""
        for part in finished:
            self._check_part(part)
        self._journal.append([completions_line(part) for part in finished])
        for part in finished:
            self._submit(part.key, part.first, [c.text for c in part.completions])
        self._note(self._judge.ready())

    def _check_part(self, part: Rollouts) -> None:
        row = self._record.row_of.get(part.key, -1)
        numbers = slice(part.first, part.first + len(part.completions))
        if row < 0 or part.first < 0 or (self._record.status[row, numbers] != MISSING).any():
            assert self._engine is not None
            raise PassRatesError(
                f"engine {self._engine.name!r} gave completion {part.first} of prompt "
                f"{part.key!r}, which it was not asked for: report it as a bug"
            )

    def _judge_stored(self) -> None:
        """Judge completions of the journal that have no verdict."""
        if self._record.judged == self._record.completions:
            return
        wanted = {prompt.key for prompt in self._prompts}
        for key, first, texts in self._journal.texts():
            if key in wanted:
                self._submit(key, first, texts)

    def _submit(self, key: str, first: int, texts: list[str]) -> None:
        self._warnings.first_text = self._warnings.first_text or texts[0]
        self._judge.submit(key, first, texts)
        while self._judge.waiting > MAX_WAITING:
            self._note(self._judge.wait(MAX_WAITING))

    def _finish_judging(self) -> None:
        while self._judge.waiting:
            self._note(self._judge.wait(0))

    def _note(self, verdicts: list[Line]) -> None:
        if verdicts:
            self._journal.append(verdicts)
            self._check_verdicts()
            self._warnings.early()
        self._report()

    def _check_verdicts(self, *, at_end: bool = False) -> None:
        record = self._record
        if record.judged < _ENOUGH_ROLLOUTS and not at_end:
            return
        again = "then run the same command with --reverify: the completions are kept"
        if record.failed > MAX_FAILURES * record.judged:
            reason = too_many_failures(self._verifier, record.failed, record.judged)
            raise PassRatesError(f"{reason}; {again}")
        if record.without_verdict > MAX_UNVERIFIED * record.judged:
            raise PassRatesError(
                f"verifier {self._verifier.name!r} gave no verdict on {record.without_verdict} of "
                f"{record.judged} rollouts: mend it or the answer column, {again}"
            )

    @property
    def _sampled_here(self) -> int:
        return self._record.completions - self._before[0]

    def _report(self, *, now: bool = False) -> None:
        moment = time.monotonic()
        if self._progress is None or not (
            now or moment - self._reported > _SECONDS_BETWEEN_REPORTS
        ):
            return
        self._reported = moment
        record = self._record
        given = record.judged - record.without_verdict
        sampled = record.sampled(self._rows)
        waiting = np.count_nonzero(record.status[self._rows] == SAMPLED, axis=1)
        self._progress(
            BuildProgress(
                prompts_done=int(((sampled >= self._target) & (waiting == 0)).sum()),
                prompts=len(self._prompts),
                completions=int(sampled.sum()),
                completions_wanted=int(self._target.sum()),
                sampled_here=self._sampled_here,
                tokens_here=record.sampled_tokens - self._before[1],
                seconds=moment - self._started,
                build_seconds=self._journal.seconds,
                mean=record.total / given if given else float("nan"),
                queue=self._judge.waiting,
                judged=int(sampled.sum() - waiting.sum()),
            )
        )


class _Rescue:
    """Puts verdicts that have come into the journal when an error or Ctrl-C ends the work."""

    def __init__(self, journal: Journal, judge: Judge) -> None:
        self._journal, self._judge = journal, judge

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            with suppress(BasisError):
                self._journal.append(self._judge.rescue())
