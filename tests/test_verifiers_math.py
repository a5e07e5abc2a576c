"""The verifier math on pairs of answers with known verdicts, and the rules of its own."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import pytest
from shared_data import shared_data

pytest.importorskip("math_verify")

from basis_rl import verifiers
from basis_rl.verifiers.math import Math, judge

# See docs/verifiers.md: the data has the second and the third also with the other verdict.
DISAGREEMENTS = {
    4: ("$9$", "Answer \\( \n 9 \n \\)", False),
    10: ("$f(x)$", "$f(y)$", True),
    31: ("$x \\in [-2,7]$", "$-2 \\\\le x \\\\le 7$", True),
}


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, Any]]:
    path = shared_data("verifier/math_answer_pairs.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_pairs_with_known_verdicts(pairs: list[dict[str, Any]]) -> None:
    verifier = verifiers.create("math", answer_column="gold", processes=2, limit_s=20)
    futures = [verifier.submit([pair["pred"]], pair) for pair in pairs]
    rewards = [future.result()[0].reward for future in futures]
    verifier.close()
    wrong = [i for i, pair in enumerate(pairs) if bool(rewards[i]) != pair["equal"]]
    assert {i: tuple(pairs[i].values()) for i in wrong} == DISAGREEMENTS
    assert not verifier.failures


def test_at_least_as_many_as_math_verify_used_directly(pairs: list[dict[str, Any]]) -> None:
    """Its best settings, of those that `benchmarks/verifier_pairs.py` tries."""
    from math_verify import parse, verify

    def right(pair: dict[str, Any]) -> bool:
        gold, answer = parse(pair["gold"]), parse(pair["pred"])
        return bool(verify(gold, answer, float_rounding=2) == pair["equal"])

    assert len(pairs) - len(DISAGREEMENTS) >= sum(map(right, pairs)) >= 100


@pytest.mark.parametrize(
    ("gold", "answer", "reward"),
    [
        # A rational gold answer may be rounded, to two places and digits at least.
        (r"\frac{1}{3}", "0.33", 1),
        (r"\frac{1}{3}", "0.333", 1),
        (r"\frac{1}{3}", "0.3333333333", 1),
        (r"\frac{1}{3}", "x = 0.33", 1),
        (r"-\frac{1}{3}", "-0.33", 1),
        (r"\frac{2}{3}", "0.67", 1),
        (r"\frac{200}{3}", "66.67", 1),
        (r"(\frac{1}{3}, \frac{1}{5})", "(0.33, 0.2)", 1),
        (r"(\frac{3}{5}, \frac{8}{3}]", "(0.6, 2.6667]", 1),
        (r"\frac{1}{8}", "0.125", 1),
        (r"\frac{1}{3}", "0.3", 0),
        (r"\frac{1}{3}", "0.34", 0),
        (r"\frac{1}{3}", "0.334", 0),
        (r"\frac{1}{3}", "0.32", 0),
        (r"\frac{2}{3}", "0.66", 0),
        (r"\frac{200}{3}", "66.7", 0),
        (r"\frac{200}{3}", "67", 0),
        (r"\frac{1}{60}", "0.02", 0),
        (r"\frac{1}{1000}", "0.00", 0),
        (r"\frac{1}{3}", r"0.1 + 0.23", 0),
        (r"\frac{1}{3}", r"33.12\%", 0),
        (r"(\frac{1}{3}, \frac{1}{4})", "(0.33, 0.2)", 0),
        (r"(\frac{3}{5}, \frac{8}{3}]", "(0.6, 2.6667)", 0),
        ("7", "7.01", 0),
        ("7", "7.004", 0),
        # Others are not.
        (r"\pi", "3.14", 0),
        (r"\sqrt{2}", "1.41", 0),
        ("0.123", "0.12", 0),
        ("3.14159", "3.14", 0),
        (r"\frac{x}{3}", "0.33x", 0),
        # A decimal comma, or two numbers, or thousands.
        ("1,22", "1.22", 1),
        ("1,22", "1, 22", 1),
        ("1,22", "1.2", 0),
        ("1,22", "122", 0),
        ("-2,1", "-2.1", 1),
        ("1,234", "1234", 1),
        ("1,234", "1.234", 0),
        ("1,2,3", "1.2", 0),
        # Small numbers are compared to six digits, not to six places.
        (r"6.63 \times 10^{-34}", r"6.63 \times 10^{-34}", 1),
        (r"6.63 \times 10^{-34}", r"1 \times 10^{-34}", 0),
        (r"6.63 \times 10^{-34}", "0.0", 0),
        ("0.0000001", "0.0000002", 0),
        ("0.0000001", "10^{-7}", 1),
        (r"\frac{1}{10^{10}}", "0.00", 0),
        (r"\frac{1}{1679616}", "0.000001", 0),
        (r"e^{-50}", r"e^{-51}", 0),
        ("(0.0000001, 3)", "(0.0, 3)", 0),
        (r"\begin{pmatrix}0.0000001\\2\end{pmatrix}", r"\begin{pmatrix}0.0\\2\end{pmatrix}", 0),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}", 1),
        # Bases.
        ("4210_{5}", "4210_{7}", 0),
        ("4210_{5}", "4210_5", 1),
        ("4210_{5}", "4210", 1),
        # Text as it stands in data sets.
        (r"\$18.90", r"\$18.90", 1),
        (r"\$18.90", "18.9", 1),
        (r"\$18.90", "18.91", 0),
        ("#### 1,234", "1234", 1),
        (r"\text{Evelyn}", r"\text{Evelyn}", 1),
        (r"\text{(C)}", r"\text{C}", 1),
    ],
)
def test_rules(gold: str, answer: str, reward: float) -> None:
    assert judge(rf"so $\boxed{{{answer}}}$", gold) == reward


def test_a_rounded_answer_is_right_and_its_neighbours_are_wrong() -> None:
    draw = random.Random(3)
    for _ in range(60):
        value = Fraction(draw.randint(-400, 400), draw.choice([3, 6, 7, 9, 11, 12, 13]))
        places = draw.choice([2, 3, 4])
        gold = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
        nearest = round(value * 10**places)
        for off in (-1, 0, 1):
            text = f"{(nearest + off) / 10**places:.{places}f}"
            if text.endswith("0"):
                continue  # it reads as one rounded to fewer places
            exact = Fraction(nearest + off, 10**places) == value
            long = len(text.lstrip("-0.").replace(".", "")) >= 2
            if exact or (off == 0 and long):
                assert judge(f"$\\boxed{{{text}}}$", gold) == 1.0, (gold, text)
            elif off:
                assert judge(f"$\\boxed{{{text}}}$", gold) == 0.0, (gold, text)


def test_the_version_names_the_package_and_the_rules() -> None:
    from importlib.metadata import version

    assert Math("answer").version == f"{version('math-verify')}+3"


@pytest.mark.parametrize(
    ("gold", "completion", "reward"),
    [
        ("4", r"So $\boxed{3}$. Wait, I forgot a term: $\boxed{4}$.", 1),
        ("3", r"So $\boxed{3}$. Wait, I forgot a term: $\boxed{4}$.", 0),
        ("3", r"\boxed{3} \boxed{4}", 0),  # boxes of one line are one answer, a set
        ("4", r"\boxed{3} \boxed{4}", 0),
        ("3,4", r"\boxed{3} \boxed{4}", 1),
        ("3", r"$\boxed{3}$ or $\boxed{4}$ or $\boxed{5}$", 0),
        ("5", r"\boxed{5}. Indeed, $2+3=5$ and $7-3=4$.", 1),
        ("4", r"\boxed{5}. Indeed, $2+3=5$ and $7-3=4$.", 0),
        ("5", r"\boxed{6}. The final answer is $5$. I hope it is correct.", 1),
        ("5", r"\boxed{1,2,3,4,5}", 0),
        ("5", r"\boxed{5 \text{ or } 6}", 0),
        ("5", r"\boxed{x=1, x=5}", 0),
        ("5", r"\boxed{\mathbb{R}}", 0),
        ("5", r"\boxed{[0,10]}", 0),
        ("5", r"\boxed{x}", 0),
        ("5", r"\boxed{}", 0),
        (r"\emptyset", r"\boxed{}", 0),
        ("(1,2)", r"\boxed{[1,2]}", 0),
        ("(1,2)", r"\boxed{(2,1)}", 0),
        ("50", r"\boxed{0.5}", 0),
        (r"\frac{22}{7}", r"\boxed{3}", 0),
        ("0.45", r"\boxed{0.5}", 0),
        (r"\text{Monday}", r"\boxed{\text{Monday or Tuesday}}", 0),
        ("C", r"\boxed{A, B, C}", 0),
        ("5", "1 2 3 4 5 6 7 8 9", 0),
    ],
)
def test_answers_that_hedge(gold: str, completion: str, reward: float) -> None:
    assert judge(completion, gold) == reward
