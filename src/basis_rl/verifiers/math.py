"""The verifier `math`: values compared by math-verify."""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.verifiers.base import Columns, required_answer
from basis_rl.verifiers.exact import answer_text

# Of the rules in this file; a change of theirs is a change of verdicts.
RULES = "3"
_DECIMAL_COMMA = re.compile(r"(-?\d+),(\d+)")
_BASE = re.compile(r"\d_\{?(\d+)\}?\s*\Z")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+")
_TYPICAL = [
    *(r"\frac{1}{2}", r"-\dfrac{3\pi}{4}", r"2\sqrt{3}+1", r"x^2-3x+2", r"90^\circ", r"12\%"),
    *(r"\left(3, \frac{\pi}{2}\right)", r"[0,1) \cup (2,\infty)", r"1, -2", r"x \le 5", "y=2x"),
    *(r"\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}", r"\{1, 2\}", r"\text{even}", r"3+4i"),
    *("1,234", "0.5", r"\binom{5}{2}", r"e^{-x}\sin x", r"\log_2 8", "a_1"),
]
_PLACES, _MORE_PRECISION, _MOST_PLACES = 6, 9, 400  # math-verify's defaults are 6 and 6 + 9
_FEWEST_PLACES = 2
_FEWEST_DIGITS = 2


class Math:
    r"""Reward 1 if the completion's final answer has the value of the gold answer, else 0.

    The gold answer may be bare LaTeX, LaTeX in ``$`` or ``\boxed{}``, a number, or GSM8K's text
    with ``#### 18``. A gold answer that math-verify cannot read gives no verdict.

    Called like this it has no limits, and a computer-algebra system can hang on ten characters:
    `create` runs it in a pool.

    Parameters
    ----------
    answer_column : str

    Raises
    ------
    ConfigError
        If math-verify is not installed.
    """

    load_first = True  # for a pool: pure Python without threads, which can be forked

    def __init__(self, answer_column: str) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise ConfigError("verifier 'math' needs math-verify: pip install math-verify")
        self.answer_column = answer_column
        self.version = f"{version('math-verify')}+{RULES}"

    def __call__(self, completion: str, columns: Columns) -> float | None:
        """Reward of one completion, None if the gold answer cannot be read."""
        gold = required_answer(columns, self.answer_column, "math")
        return None if gold is None else judge(completion, answer_text(gold))

    def check(self, columns: Columns) -> None:
        """Refuse a row without a usable answer column."""
        required_answer(columns, self.answer_column, "math")

    def needed(self, columns: Columns) -> Columns:
        """Part of a row that this reads."""
        return {self.answer_column: required_answer(columns, self.answer_column, "math")}

    def warm_up(self) -> None:
        """Load all that judging needs, and fill the caches of the LaTeX parser."""
        logging.getLogger("math_verify").setLevel(logging.ERROR)  # its time-outs are off
        for text in _TYPICAL:
            judge(f"so ${text}$, and thus \\boxed{{{text}}}, that is 2", text)


def judge(completion: str, gold: str) -> float | None:
    """1 if the gold answer's value is the completion's, else 0; None without a readable gold.

    Raises
    ------
    Exception
        Whatever math-verify and SymPy raise.
    """
    from math_verify import parse

    expected = parsed_gold(gold)
    if not expected:
        return None
    found = parse(completion, parsing_timeout=None, raise_on_error=True)
    return float(not _bases_differ(expected, found) and _any_equal(list(expected), found))


@lru_cache(maxsize=4096)
def parsed_gold(gold: str) -> tuple[Any, ...]:
    r"""Readings of a gold answer, each of them right.

    Bare text is read as ``\boxed{text}``. ``1,22`` may be two numbers, or 1.22 with a decimal
    comma; ``1,220`` is 1220.
    """
    from math_verify import parse

    text = gold.rpartition("####")[2].strip()
    marked = text.replace("\\$", "")  # dollars of a price
    is_bare = not any(mark in marked for mark in ("$", "\\boxed", "\\(", "\\["))
    readings = parse(f"\\boxed{{{text}}}" if is_bare else text, parsing_timeout=None)
    comma = _DECIMAL_COMMA.fullmatch(text)
    if comma and not _THOUSANDS.fullmatch(text):
        readings += parse("{}.{}".format(*comma.groups()), parsing_timeout=None)
    return tuple(readings)


def _bases_differ(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether both are numbers in a base, and the bases are others: 4210_5 and 4210_7."""
    gold, answer = (
        {match[1] for text in texts if isinstance(text, str) and (match := _BASE.search(text))}
        for texts in (expected, found)
    )
    return bool(gold and answer and not gold & answer)


def _any_equal(expected: list[Any], found: list[Any]) -> bool:
    """Whether any reading of the one is any of the other; raises only if none is."""
    failure: Exception | None = None
    for gold in expected:
        for answer in found:
            try:
                if _equal(gold, answer):
                    return True
            except Exception as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return False


def _equal(gold: Any, answer: Any) -> bool:
    from math_verify import verify

    def is_equal(places: int, precision: int) -> bool:
        options = {"float_rounding": places, "numeric_precision": precision}
        return bool(verify(gold, answer, timeout_seconds=None, raise_on_error=True, **options))

    places = places_for(gold)
    if is_equal(places, places + _MORE_PRECISION):
        return True
    rounded = rounded_to(gold, answer)
    return rounded is not None and is_equal(rounded, _PLACES + _MORE_PRECISION)


def places_for(gold: Any) -> int:
    """Decimal places at which an answer is compared with a gold answer that has or needs decimals.

    Six, or as many as six digits of its smallest number take: to six places, 6.63e-34 is 0.
    """
    sizes = [size for size in _sizes(gold) if 0 < size < 1]
    if not sizes:
        return _PLACES
    return min(max(_PLACES, _PLACES - 1 - math.floor(math.log10(min(sizes)))), _MOST_PLACES)


def _sizes(gold: Any) -> list[float]:
    """Absolute values of the numbers of which a gold answer consists."""
    import sympy  # type: ignore[import-untyped]
    from sympy.concrete.expr_with_limits import ExprWithLimits  # type: ignore[import-untyped]

    if isinstance(gold, str) or gold.has(ExprWithLimits):
        return []
    if isinstance(gold, sympy.Expr) and not isinstance(gold, sympy.MatrixBase):
        try:
            return [abs(complex(gold.evalf(_PLACES)))] if gold.is_number else []
        except (TypeError, ValueError, OverflowError):
            return []
    parts = gold.flat() if isinstance(gold, sympy.MatrixBase) else gold.args
    return [size for part in parts for size in _sizes(part)]


def rounded_to(gold: Any, answer: Any) -> int | None:
    """Decimal places to which an answer may have rounded a rational gold answer; None for none.

    1/3 may be answered as 0.33: the place to compare at is the answer's last one. At least two
    places and two digits after leading zeros are asked for (0.3 is not 1/3, nor is 0.02 a
    sixtieth). The answer must be decimals as they stand (no arithmetic, no percentages), and a
    gold answer with decimals, roots, constants or letters is not rounded: 3.14 is not pi.
    """
    import sympy

    if isinstance(gold, str) or isinstance(answer, str):
        return None
    decimals = [Decimal(repr(float(number))) for number in answer.atoms(sympy.Float)]
    if not decimals or not _is_plain(answer) or not _is_rational(gold):
        return None
    written = [number.normalize() for number in decimals if number.is_finite()]
    long = [number for number in written if _places(number) >= _FEWEST_PLACES]
    if not long or any(len(number.as_tuple().digits) < _FEWEST_DIGITS for number in long):
        return None
    return max(map(_places, long))


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _is_plain(answer: Any) -> bool:
    """Whether numbers stand in an answer as they are, but for a sign."""
    import sympy

    if answer.has(sympy.Add, sympy.Pow, sympy.Function, sympy.UnevaluatedExpr):
        return False
    signed = (sympy.Float, sympy.core.numbers.NegativeOne)
    return all(isinstance(part, signed) for mul in answer.atoms(sympy.Mul) for part in mul.args)


def _is_rational(gold: Any) -> bool:
    """Whether a gold answer consists of whole numbers, fractions and infinities."""
    import sympy

    numbers = (sympy.Rational, sympy.core.numbers.Infinity, sympy.core.numbers.NegativeInfinity)
    leaves = (*numbers, sympy.logic.boolalg.BooleanAtom)
    if gold.has(sympy.Function) or not all(isinstance(atom, leaves) for atom in gold.atoms()):
        return False
    return all(isinstance(power.exp, sympy.Integer) for power in gold.atoms(sympy.Pow))
