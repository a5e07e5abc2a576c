"""Rewards made of others: weighted sums, a reward for the form, a penalty for length.

What a composition is called says what it is, and stands in a table's provenance:
``math + 0.1*format(<think>)``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.verifiers.base import Columns, NamedVerifier, Verdict
from basis_rl.verifiers.replies import Reply, gathered

VERSION = "1"
TOKENS_COLUMN = "completion_tokens"


class WeightedSum(NamedVerifier):
    """The weighted sum of verifiers' rewards; what `weighted_sum` returns.

    A part without a verdict leaves the whole without one. A part that fails counts 0, and as a
    failure of the whole.

    Attributes
    ----------
    parts : list of (NamedVerifier, float)
    """

    def __init__(self, parts: Sequence[tuple[NamedVerifier, float]]) -> None:
        self.parts = [(verifier, float(weight)) for verifier, weight in parts]
        if not self.parts or not all(math.isfinite(weight) for _, weight in self.parts):
            raise ConfigError(
                f"a weighted sum of {len(self.parts)} verifiers with weights "
                f"{[weight for _, weight in self.parts]}: give one or more, and finite weights"
            )
        names = [
            verifier.name if weight == 1 else f"{weight:g}*{verifier.name}"
            for verifier, weight in self.parts
        ]
        versions = [verifier.version for verifier, _ in self.parts]
        columns = {v.answer_column for v, _ in self.parts if v.answer_column is not None}
        super().__init__(
            " + ".join(names).replace("+ -", "- "),
            " + ".join(versions),
            lambda completion, columns: None,
            answer_column=", ".join(sorted(columns)) or None,
        )

    def check(self, columns: Columns) -> None:
        """Look at a prompt's row with each part."""
        for verifier, _ in self.parts:
            verifier.check(columns)

    def needed(self, columns: Columns) -> dict[str, Any]:
        """Columns of a row that any part reads."""
        return {k: v for verifier, _ in self.parts for k, v in verifier.needed(columns).items()}

    def submit(self, completions: Sequence[str], columns: Columns) -> Future[list[Verdict]]:
        """Judge completions of one prompt with all parts at the same time."""
        count = len(completions)

        def finish(replies: list[Any]) -> list[Verdict]:
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            summed = [self._summed([part[i] for part in replies]) for i in range(count)]
            return self._finish(summed)

        future, take = gathered(len(self.parts), finish)
        for number, (verifier, _) in enumerate(self.parts):
            verifier.submit(completions, columns).add_done_callback(_handed_to(take, number))
        return future

    def close(self) -> None:
        """End the processes of all parts."""
        for verifier, _ in self.parts:
            verifier.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["parts"])  # type: ignore[misc]

    def _summed(self, verdicts: Sequence[Verdict]) -> Reply:
        rewards = [verdict.reward for verdict in verdicts]
        if any(reward is None for reward in rewards):
            return {"reward": None}
        total = sum(w * (r or 0.0) for (_, w), r in zip(self.parts, rewards, strict=True))
        failed = next((verdict.failure for verdict in verdicts if verdict.failure), None)
        return {"reward": total} if failed is None else {"failure": failed, "reward": total}


def weighted_sum(parts: Sequence[tuple[NamedVerifier, float]]) -> WeightedSum:
    r"""Reward :math:`\sum_k w_k r_k` of several verifiers.

    Parameters
    ----------
    parts : sequence of (NamedVerifier, float)

    Raises
    ------
    ConfigError
        If there is none, or a weight is not finite.
    """
    return WeightedSum(parts)


def format_reward(pattern: str | None = None, *, tags: Sequence[str] = ()) -> NamedVerifier:
    r"""Reward 1 for a completion of a certain form, else 0.

    Parameters
    ----------
    pattern : str, optional
        Regular expression, searched with ``re.DOTALL``: ``r"\\boxed\{"``, say. It has no time
        limit: what the pattern costs on a hostile text is the pattern's doing.
    tags : sequence of str
        Instead of a pattern: ``["think", "answer"]`` wants each of ``<think>…</think>`` and
        ``<answer>…</answer>`` exactly once, in this order and not inside one another.

    Raises
    ------
    ConfigError
        If both or none are given, or the pattern is no regular expression.
    """
    if (pattern is None) == (not tags):
        raise ConfigError("format_reward takes a pattern or tags: give one of the two")
    if pattern is None:
        wanted = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
        name = "".join(f"<{tag}>" for tag in tags)
        return NamedVerifier(f"format({name})", VERSION, _Tags(wanted))
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"format_reward's pattern {pattern!r} is no regular expression: {error}"
        ) from error
    return NamedVerifier(f"format({pattern})", VERSION, _Pattern(pattern))


def length_penalty(
    verifier: NamedVerifier,
    *,
    max_tokens: int,
    buffer: int,
    weight: float = 1.0,
    characters_per_token: float = 4.0,
) -> WeightedSum:
    r"""A verifier's reward and DAPO's soft penalty of overlong completions.

    With length :math:`l`, the penalty is 0 up to ``max_tokens - buffer``, then

    .. math:: \frac{(\text{max\_tokens} - \text{buffer}) - l}{\text{buffer}},

    and -1 beyond ``max_tokens``.

    Parameters
    ----------
    verifier : NamedVerifier
    max_tokens : int
    buffer : int
        Tokens before the maximum on which the penalty grows.
    weight : float
        Of the penalty; DAPO has 1 with rewards of 1 and -1.
    characters_per_token : float
        The length is ``completion_tokens`` of the columns (a number, or one for each completion),
        or the length of ``completion_ids``, as TRL passes them. Without either it is the number of
        characters divided by this.

    Raises
    ------
    ConfigError
        Unless 0 < buffer <= max_tokens and characters_per_token > 0.

    References
    ----------
    DAPO (arXiv 2503.14476), section 3.4, Eq. 13.
    """
    if not 0 < buffer <= max_tokens or not characters_per_token > 0:
        raise ConfigError(
            f"length_penalty has max_tokens={max_tokens}, buffer={buffer}, characters_per_token="
            f"{characters_per_token}: the buffer is above 0 and at most max_tokens"
        )
    return WeightedSum(
        [(verifier, 1.0), (_Length(max_tokens, buffer, characters_per_token), weight)]
    )


def overlong(length: float, max_tokens: int, buffer: int) -> float:
    """DAPO's soft penalty (Eq. 13), from 0 to -1."""
    free = max_tokens - buffer
    if length <= free:
        return 0.0
    return -1.0 if length > max_tokens else (free - length) / buffer


class _Length(NamedVerifier):
    """The penalty alone; it knows of each completion which one it is."""

    def __init__(self, max_tokens: int, buffer: int, characters_per_token: float) -> None:
        self._limits = (max_tokens, buffer)
        self._per_token = characters_per_token
        name = f"overlong({max_tokens}, {buffer})"
        super().__init__(name, VERSION, lambda completion, columns: None)

    def needed(self, columns: Columns) -> dict[str, Any]:
        """Nothing of a prompt's row."""
        return {}

    def submit(self, completions: Sequence[str], columns: Columns) -> Future[list[Verdict]]:
        """Penalties, at once."""
        future, take = gathered(len(completions), self._finish)
        lengths = self._lengths(completions, columns)
        for number, length in enumerate(lengths):
            take(number, {"reward": overlong(length, *self._limits)})
        return future

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": (*self._limits, self._per_token)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["arguments"])  # type: ignore[misc]

    def _lengths(self, completions: Sequence[str], columns: Columns) -> list[float]:
        counts = columns.get(TOKENS_COLUMN)
        if counts is None and "completion_ids" in columns and len(completions) == 1:
            counts = len(columns["completion_ids"])
        if counts is None:
            return [len(text) / self._per_token for text in completions]
        listed = list(counts) if hasattr(counts, "__len__") else [counts]
        if len(listed) != len(completions):
            raise ConfigError(
                f"{TOKENS_COLUMN} has {len(listed)} lengths for {len(completions)} completions: "
                "give one for each"
            )
        return [float(count) for count in listed]


class _Pattern:
    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern, re.DOTALL)

    def __call__(self, completion: str, columns: Columns) -> float:
        return float(self._pattern.search(completion) is not None)

    def needed(self, columns: Columns) -> Columns:
        return {}


class _Tags:
    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = marks

    def __call__(self, completion: str, columns: Columns) -> float:
        places = [completion.find(mark) for mark in self._marks]
        once = all(completion.count(mark) == 1 for mark in self._marks)
        return float(once and places == sorted(places))

    def needed(self, columns: Columns) -> Columns:
        return {}


def _handed_to(
    take: Callable[[int, Any], None], number: int
) -> Callable[[Future[list[Verdict]]], None]:
    def hand(done: Future[list[Verdict]]) -> None:
        error = done.exception()
        take(number, error if error is not None else done.result())

    return hand
