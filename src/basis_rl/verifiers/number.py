r"""The verifier `number`: the last number of the completion is the gold number.

A number is digits with or without thousands separators (``1,000``; in LaTeX also ``1{,}000`` and
``1\,000``), decimals, an exponent (``1.5e3``, ``1.5 \times 10^3``), a denominator (``3/4``,
``\frac{3}{4}``), a whole number before one (``1 3/4``) and a power (``10^6``); the exponent of
anything else (``cm^2``) is none. A minus counts where nothing stands before it that could be
subtracted from. Currency and percent signs are passed over: 45% is 45.
"""

from __future__ import annotations

import re
from fractions import Fraction

from basis_rl.verifiers.base import Columns, required_answer
from basis_rl.verifiers.exact import answer_text

VERSION = "2"
_LONGEST = 300  # digits: Python converts more in quadratic time, and no answer has as many
_LARGEST_POWER = 300
_DIGITS = r"\d[\d,]*(?:\.\d+)?|\.\d+"
# Every part after the digits may be missing, so a match never has to be given up: linear time.
_NUMBER = re.compile(
    r"\\[dt]?frac\s?\{\s?(?P<minus>[-−]?)(?P<top>\d{1,99})\s?\}\s?\{\s?(?P<bottom>\d{1,99})\s?\}"
    r"|\\[dt]?frac\s?(?P<short>\d\s?\d)"
    rf"|(?P<digits>{_DIGITS})"
    r"(?:(?:\^|\*\*)\{?(?P<exponent>[-−]?\d{1,9})|[eE](?P<e>[-+]?\d{1,9})"
    r"|\s?(?:\\times|\\cdot|[x×*·])\s?10\s?\^\s?\{?(?P<power>[-−]?\d{1,9}))?"
    r"(?:(?P<part>\s\d{1,9})?\s?/\s?(?P<under>\d{1,99}))?"
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
# A line of GSM8K's form: the mark, and a number without words.
_MARKED_LINE = re.compile(r"####([^\n#A-Za-z]{0,99})$", re.MULTILINE)
_IN_A_WORD = re.compile(r"(?:[^\W\d]|\^\{?[-−]?)\Z")  # before digits that are no number
_BOX = re.compile(r"\\boxed\s?\{")
_BEFORE_MINUS = re.compile(r"[\w)\]}%]")
_SIGN_AND_BLANK = re.compile(r"[=({]\s?[-−]\s\Z")


class Number:
    """Reward 1 if the last number of the completion equals the gold answer's last, else 0.

    Of the completion, the last line of ``####`` and a number without words is looked at, or else
    what stands after the last ``####``, or else the last ``boxed{}``, or else everything. The
    comparison is exact, of fractions: 0.33 is not 1/3. A gold answer without a number gives no
    verdict. Time is linear in the completion's length.
    """

    version = VERSION

    def __init__(self, answer_column: str) -> None:
        self.answer_column = answer_column

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None if the gold answer has no number."""
        answer = required_answer(columns, self.answer_column, "number")
        gold = None if answer is None else last_number(answer_text(answer))
        return None if gold is None else float(last_number(completion) == gold)

    def check(self, columns: Columns) -> None:
        """Refuse a row without a usable answer column."""
        required_answer(columns, self.answer_column, "number")

    def needed(self, columns: Columns) -> Columns:
        """Part of a row that this reads."""
        return {self.answer_column: required_answer(columns, self.answer_column, "number")}


def last_number(text: str) -> Fraction | None:
    """Number that a text ends on, in its last ``####`` line or its last box where it has one."""
    for line in reversed(_MARKED_LINE.findall(text)):
        if any(character.isdecimal() for character in line):
            return _last_in(line)
    _, mark, after = text.rpartition("####")
    if mark:
        return _last_in(after)
    end = None
    for box in _BOX.finditer(text):
        end = box.end()
    return _last_in(text if end is None else _boxed(text, end))


def _last_in(text: str) -> Fraction | None:
    for mark, plain in (("{,}", ","), ("\\,", ""), ("\\!", ""), ("\\$", "$")):
        text = text.replace(mark, plain)
    last = None
    for match in _NUMBER.finditer(text):
        if not _IN_A_WORD.search(text[max(0, match.start() - 3) : match.start()]):
            last = match  # digits in a word (H2O, x_1) or an exponent (cm^2) are none
    return None if last is None else _value(last, _is_negative(text, last.start()))


def _value(match: re.Match[str], is_negative: bool) -> Fraction | None:
    part = match.groupdict()
    if part["top"]:
        is_negative = is_negative != bool(part["minus"])
        return _ratio(Fraction(int(part["top"])), part["bottom"], is_negative)
    if part["short"]:
        return _ratio(Fraction(int(part["short"][0])), part["short"][-1], is_negative)
    digits = part["digits"].rstrip(",")
    whole, _, decimals = digits.partition(".")
    if "," in whole:
        grouped = _THOUSANDS.fullmatch(whole)
        whole = whole.replace(",", "") if grouped else whole.rpartition(",")[2]
        is_negative = is_negative and grouped is not None
    power, exponent = (
        int(text.replace("−", "-"))
        for text in (part["e"] or part["power"] or "0", part["exponent"] or "1")
    )
    length = len(whole) + len(decimals)
    if max(length, length * abs(exponent)) > _LONGEST or abs(power) > _LARGEST_POWER:
        return None
    value = Fraction(f"{whole or 0}.{decimals or 0}")
    if not value and exponent < 0:
        return None
    value = value**exponent * Fraction(10) ** power
    if not part["under"]:
        return -value if is_negative else value
    if part["part"]:
        fraction = _ratio(Fraction(int(part["part"])), part["under"], False)
        return None if fraction is None else (-1 if is_negative else 1) * (value + fraction)
    return _ratio(value, part["under"], is_negative)


def _ratio(top: Fraction, bottom: str, is_negative: bool) -> Fraction | None:
    under = int(bottom)
    return None if under == 0 else (-top if is_negative else top) / under


def _is_negative(text: str, start: int) -> bool:
    """Whether a minus stands before a number, between them a currency sign or a blank at most."""
    if start and text[start - 1] in "$€£¥":
        start -= 1
    if not start or text[start - 1] not in "-−":
        return _SIGN_AND_BLANK.search(text[max(0, start - 4) : start]) is not None
    return start == 1 or not _BEFORE_MINUS.match(text[start - 2])


def _boxed(text: str, start: int) -> str:
    """Content of a box that is opened before `start`."""
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if not depth:
            return text[start:end]
    return text[start:]
