"""The lines of a journal: how each kind is written, and what is looked at when it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from basis_rl.rollouts.engine import Rollouts
from basis_rl.verifiers.base import Verdict

FORMAT = 2
Line = dict[str, Any]


def encoded(lines: Sequence[Line]) -> bytes:
    """Bytes of lines, one JSON object each."""
    texts = [json.dumps(line, allow_nan=False, separators=(",", ":")) for line in lines]
    return ("\n".join(texts) + "\n").encode()


def decoded(content: bytes) -> list[Line]:
    """Lines of a member.

    Raises
    ------
    ValueError
        If one is no JSON object.
    """
    lines = []
    for text in content.splitlines():
        line = json.loads(text)
        if not isinstance(line, dict):
            raise ValueError("a line that is no JSON object")
        lines.append(line)
    return lines


def completions_line(part: Rollouts) -> Line:
    """What an engine gave for one prompt."""
    cut = [number for number, c in enumerate(part.completions, part.first) if c.is_cut]
    return {
        "kind": "completions",
        "key": part.key,
        "first": part.first,
        "texts": [completion.text for completion in part.completions],
        "tokens": [completion.tokens for completion in part.completions],
        **({"cut": cut} if cut else {}),
    }


def verdicts_line(key: str, first: int, verdicts: Sequence[Verdict]) -> Line:
    """What a verifier said of completions of one prompt."""
    failures: dict[str, list[int]] = {}
    for number, verdict in enumerate(verdicts, start=first):
        if verdict.failure is not None:
            failures.setdefault(verdict.failure, []).append(number)
    return {
        "kind": "verdicts",
        "key": key,
        "first": first,
        "rewards": [verdict.reward for verdict in verdicts],
        **({"failures": failures} if failures else {}),
    }


def check_line(line: Line) -> None:
    """Refuse a line that no build wrote.

    Raises
    ------
    ValueError
        Saying what is wrong with it.
    """
    kind = line.get("kind")
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None:
        raise ValueError(f"a line of unknown kind {kind!r:.40}")
    wrong = check(line)
    if wrong:
        raise ValueError(wrong)


def _header(line: Line) -> str | None:
    if line.get("journal") != FORMAT:
        return f"journal format {line.get('journal')!r:.40}, not {FORMAT}"
    if not isinstance(line.get("created"), str) or not isinstance(line.get("samples"), dict):
        return "a header without settings"
    return None


def _prompts(line: Line) -> str | None:
    rows = line.get("rows")
    good = isinstance(rows, list) and all(_is_texts(row) and len(row) == 3 for row in rows)
    return None if good else "prompts that are not key, hash and hash"


def _completions(line: Line) -> str | None:
    texts, tokens = line.get("texts"), line.get("tokens")
    if not isinstance(line.get("key"), str) or not _is_count(line.get("first")):
        return "completions without key and number"
    if not _is_texts(texts) or not _is_counts(tokens) or len(texts) != len(tokens):  # type: ignore[arg-type]
        return "completions that are not one text and one number of tokens each"
    return None if _is_counts(line.get("cut", [])) else "completions cut that are no numbers"


def _verdicts(line: Line) -> str | None:
    rewards, failures = line.get("rewards"), line.get("failures", {})
    if not isinstance(line.get("key"), str) or not _is_count(line.get("first")):
        return "verdicts without key and number"
    if not isinstance(rewards, list) or not all(map(_is_reward, rewards)):
        return "a reward that is neither a finite number nor null"
    if not isinstance(failures, dict) or not all(map(_is_counts, failures.values())):
        return "failures that are no lists of numbers"
    return None


def _settings(line: Line) -> str | None:
    return None if isinstance(line.get("settings"), dict) else f"a {line['kind']} without settings"


def _session(line: Line) -> str | None:
    seconds = line.get("seconds")
    known = _is_count(line.get("number")) and _is_reward(seconds) and seconds is not None
    return None if known else "a session without number and seconds"


def _mark(line: Line) -> str | None:
    return None


_CHECKS = {
    "header": _header,
    "engine": _settings,
    "target": _settings,
    "verifier": _settings,
    "prompts": _prompts,
    "completions": _completions,
    "verdicts": _verdicts,
    "session": _session,
    "sampled": _mark,
    "complete": _mark,
}


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_reward(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))
