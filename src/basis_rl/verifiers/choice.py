r"""The verifier `choice`: the letter of a multiple-choice answer, A to J.

The completion's letter is the last that is found in the first of these ways:

1. ``\boxed{C}``, also with brackets or ``\text{}`` around the letter;
2. ``answer is C``, ``Answer: (C)`` and the like;
3. a letter by itself: ``(C)``, ``**C**``, ``C.`` or ``C)`` at the start of a line, or between
   blanks; A and I, which are words too, only in brackets, in bold, alone on a line, at the start
   of a line as ``A.`` or ``A)``, or at the end.

Several letters where one is asked for (``A or B``) are no answer.
"""

from __future__ import annotations

import re
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.verifiers.base import Columns, required_answer

VERSION = "2"
LETTERS = "ABCDEFGHIJ"
_L = r"[A-J](?![A-Za-z0-9_'’])"
# A letter with what may stand around it; all repetitions are bounded: linear time.
_WRAPPED = rf"(?:\*\*|\\text\s?\{{|\\mathrm\s?\{{|\\textbf\s?\{{|[$\"'`])?\(?(?P<letter>{_L})"
_CLOSE = r"\)?[}*$\"'`.:]{0,3}"
_AND = r"\s?(?:[,;/|&+]|\bor\b|\band\b)\s?(?:or |and )?(?:option |answer )?\*{0,2}\(?"
_NEXT = rf"(?: \(?|\()(?={_L}(?! [a-z]))"  # the next letter, if no sentence starts with it
_MORE = re.compile(rf"{_CLOSE}(?:{_AND}{_L}|{_NEXT})")
_MORE_IN_BOX = re.compile(
    rf"[)}}*$\"'`]{{0,3}}\\?(?:\s?\\text\s?\{{)?(?:{_AND}\}}?\s?(?:\\text\s?\{{)?\(?{_L}|{_NEXT})"
)
_BEFORE = re.compile(rf"(?<![A-Za-z0-9_'’]){_L}{_CLOSE}{_AND}\Z")
_REACH = 40  # characters before a letter that may hold the rest of a list
_BOXED = re.compile(rf"\\boxed\s?\{{\s?(?:\\\{{)?{_WRAPPED}")
_SAID = re.compile(
    r"(?i:\banswer\b)\*{0,2}\s?(?i:(?:is|are|choice is|option is|would be|must be|should be)\b)?"
    rf"\s?:?\s{{0,3}}\*{{0,2}}\s?(?i:option |choice )?{_WRAPPED}"
)
_ALONE = re.compile(
    rf"\((?P<round>{_L})\)|\*\*(?P<bold>{_L})[.:)]?\*\*|^\s{{0,3}}(?P<line>{_L})(?=[.):]|\s{{0,3}}$)"
    rf"|(?<![A-Za-z0-9_'’\\])(?P<plain>[B-HJ])(?![A-Za-z0-9_'’])|(?<=\s)(?P<last>{_L})[.)]?\s{{0,9}}\Z",
    re.MULTILINE,
)


class Choice:
    """Reward 1 if the completion's letter is the gold one, else 0.

    The gold answer is a letter (``C``, ``(C)``) or its number counted from 0 (2 is C). No answer,
    no verdict. Time is linear in the completion's length.
    """

    version = VERSION

    def __init__(self, answer_column: str) -> None:
        self.answer_column = answer_column

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None if the row's answer is None."""
        gold = self._gold(columns)
        return None if gold is None else float(chosen_letter(completion) == gold)

    def check(self, columns: Columns) -> None:
        """Refuse a row whose answer is no letter."""
        self._gold(columns)

    def needed(self, columns: Columns) -> Columns:
        """Part of a row that this reads."""
        return {self.answer_column: required_answer(columns, self.answer_column, "choice")}

    def _gold(self, columns: Columns) -> str | None:
        answer = required_answer(columns, self.answer_column, "choice")
        if answer is None:
            return None
        letter = gold_letter(answer)
        if letter is None:
            raise ConfigError(
                f"verifier 'choice' needs a letter A to J or a number 0 to 9 in column "
                f"{self.answer_column!r}, which is {answer!r:.60}: name another column"
            )
        return letter


def gold_letter(answer: Any) -> str | None:
    """Letter of a gold answer: itself, or the letter of its number counted from 0."""
    if isinstance(answer, str):
        text = answer.strip().strip("().").upper()
        if len(text) == 1 and text in LETTERS:
            return text
        answer = int(text) if text.isascii() and text.isdigit() and len(text) == 1 else -1
    number = int(answer) if answer == answer and abs(answer) < len(LETTERS) else -1
    return LETTERS[number] if number == answer and number >= 0 else None


def chosen_letter(completion: str) -> str | None:
    """Letter that a completion chooses, None if it chooses none or several."""
    for pattern in (_BOXED, _SAID, _ALONE):
        found = _last(pattern, completion)
        if found is not None:
            letter = next(filter(None, found.groups()))
            return None if _is_one_of_several(completion, pattern, found) else letter
    return None


def _is_one_of_several(text: str, pattern: re.Pattern[str], found: re.Match[str]) -> bool:
    more = [_MORE, _MORE_IN_BOX] if pattern is _BOXED else [_MORE]
    if any(regex.match(text, found.end()) for regex in more):
        return True
    before = text[max(0, found.start() - _REACH) : found.start()]
    may_be_listed = pattern is _ALONE or (pattern is _BOXED and "boxed" in before)
    return may_be_listed and _BEFORE.search(before) is not None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for match in pattern.finditer(text):
        last = match
    return last
