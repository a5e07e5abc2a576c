from __future__ import annotations

import gzip
import json
import math
import random
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared_data

from basis_rl import verifiers
from basis_rl.errors import ConfigError
from basis_rl.verifiers.choice import chosen_letter
from basis_rl.verifiers.number import last_number


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{C}", "C"),
        (r"\boxed{\text{C}}", "C"),
        (r"\boxed{(C)}", "C"),
        (r"$\boxed{ C. }$", "C"),
        (r"\boxed{42}. The answer is (D)", "D"),
        (r"The answer is (B). \boxed{C}", "C"),
        ("The answer is (C).", "C"),
        ("The correct answer is: D", "D"),
        ("the answer is **C**", "C"),
        ("Answer: C", "C"),
        ("**Answer:** C", "C"),
        ("**Answer**: C", "C"),
        ("ANSWER: C", "C"),
        ("Answer:\n\nB", "B"),
        ("answer is $C$", "C"),
        (r"answer is $\boxed{E}$", "E"),
        ("The answer is option C", "C"),
        ("The answer is A. No, the answer is B", "B"),
        ("the answer is B, because C is wrong", "B"),
        ("The answer is C (42)", "C"),
        ("Final answer: **(C)**", "C"),
        ("Therefore, option C is right", "C"),
        ("C", "C"),
        ("C.", "C"),
        ("A", "A"),
        ("(A)", "A"),
        ("A) one\nB) two\nSo, B", "B"),
        ("A) one\nB) two", "B"),
        ("So it is I.", "I"),
        ("I think A is a good one", None),
        ("I do not know", None),
        ("A dog barks", None),
        ("Answer: None", None),
        ("answer is a", None),
        ("the answer is C'est", None),
        ("vitamin B12 and C3PO", None),
        ("The answer is A or B", None),
        ("The answer is (A) and (B)", None),
        ("It is either A or B", None),
        ("Answer: A; B", None),
        ("Answer: A B", None),
        ("Answer: (A) (B)", None),
        ("The answer is C. A is wrong", "C"),
        ("Answer: A\nB is wrong", "A"),
        ("It can't be A, B, or C. So D", "D"),
        (r"Not A or B, \boxed{C}", "C"),
        (r"\boxed{A} or \boxed{B}", None),
        (r"\boxed{A B}", None),
        (r"\boxed{A|B}", None),
        (r"\boxed{A+B}", None),
        (r"\boxed{A\,B}", None),
        (r"\boxed{(A)(B)}", None),
        (r"\boxed{\{A,B\}}", None),
        (r"\boxed{A\text{ and }B}", None),
        (r"\boxed{\text{A}, \text{B}}", None),
        (r"\boxed{(D) A dog}", "D"),
        (r"\boxed{D. A dog}", "D"),
        (r"\boxed{A, B}", None),
        (r"\boxed{A and B}", None),
        (r"\boxed{K}", None),
        ("", None),
    ],
)
def test_chosen_letter(text: str, letter: str | None) -> None:
    assert chosen_letter(text) == letter


@pytest.mark.parametrize("answer", ["C", "(C)", " c.", 2, 2.0, "2"])
def test_gold_letters(answer: Any) -> None:
    verifier = verifiers.create("choice")
    verifier.check({"answer": answer})
    assert verifier("The answer is (C)", {"answer": answer}) == 1.0
    assert verifier("The answer is (B)", {"answer": answer}) == 0.0
    assert verifier("I do not know", {"answer": answer}) == 0.0


@pytest.mark.parametrize("answer", ["K", "", "Paris", 10, -1, 2.5, math.inf, math.nan, "12"])
def test_answers_that_are_no_letter(answer: Any) -> None:
    verifier = verifiers.create("choice")
    with pytest.raises(ConfigError, match="needs a letter A to J or a number 0 to 9 in column"):
        verifier.check({"answer": answer})


@pytest.mark.parametrize("name", ["choice", "number"])
def test_no_answer_is_no_verdict(name: str) -> None:
    assert math.isnan(verifiers.create(name)("C 3", {"answer": None}))
    with pytest.raises(ConfigError, match=f"'{name}' needs column 'answer'"):
        verifiers.create(name).check({"gold": "1"})


def test_mmlu_pro() -> None:
    with gzip.open(shared_data("benchmarks/mmlu_pro.jsonl.gz"), "rt") as lines:
        rows = [json.loads(line) for line in lines][::12]
    forms = [
        "Let us think. Option {0} fails: {2}\nThe answer is ({1}).",
        "{3}\n\nAnswer: {1}",
        r"I compare {0} with the others. Therefore \boxed{{{1}}}",
        "{3}\n{1}. {2}",
        "**{1}**",
    ]
    by_letter = verifiers.create("choice")
    by_index = verifiers.create("choice", answer_column="answer_index")
    draw = random.Random(1)
    for number, row in enumerate(rows):
        letters = "ABCDEFGHIJ"[: len(row["options"])]
        wrong = draw.choice([x for x in letters if x != row["answer"]])
        for letter in (row["answer"], wrong):
            form = forms[number % len(forms)]
            text = form.format(wrong, letter, row["options"][0].replace("\n", " "), row["question"])
            if form.endswith("{2}"):
                text = form.format(wrong, letter, "is it.", "It is hard")
            expected = float(letter == row["answer"])
            assert by_letter(text, row) == expected, text
            assert by_index(text, {"answer_index": row["answer_index"]}) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", "18"),
        ("#### 18", "18"),
        ("#### 1,000 ", "1000"),
        ("#### 18 eggs, 3 days", "3"),
        ("5 + 3 = 8\n#### 8\n#### 9", "9"),
        (r"\boxed{18}, see step 3", "18"),
        (r"\boxed{\$1,800}", "1800"),
        (r"\boxed{\frac{3}{4}}", "3/4"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{x = {2}}. 3", "2"),
        ("it costs $1,234.50.", "1234.5"),
        ("-5", "-5"),
        ("x=-5", "-5"),
        ("x = −5", "-5"),
        ("(-5)", "-5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("10-5", "5"),
        ("10 - 5", "5"),
        ("x-5", "5"),
        ("(1)-5", "5"),
        ("3/4", "3/4"),
        ("-3/4", "-3/4"),
        ("3 / 4", "3/4"),
        ("1 3/4", "7/4"),
        ("-1 3/4", "-7/4"),
        (r"\frac{3}{4}", "3/4"),
        (r"-\dfrac{3}{4}", "-3/4"),
        (r"\frac{-3}{4}", "-3/4"),
        (r"-\frac{-3}{4}", "3/4"),
        ("1.5e3", "1500"),
        ("1.5E-3", "3/2000"),
        (r"1.5 \times 10^{3}", "1500"),
        ("2 x 10^-2", "1/50"),
        ("45%", "45"),
        (r"45\%", "45"),
        ("50 percent", "50"),
        (r"1{,}000", "1000"),
        (r"1\,000", "1000"),
        (r"1,\!000", "1000"),
        ("1,000,000", "1000000"),
        ("-1,000", "-1000"),
        ("1, 2, 3", "3"),
        ("1,23", "23"),
        ("-1,23", "23"),
        ("1,2345", "2345"),
        (".5", "1/2"),
        ("5.", "5"),
        ("5,", "5"),
        ("3.14159", "314159/100000"),
        ("007", "7"),
        ("4.50", "9/2"),
        ("x_1 = 7 and x_2", "7"),
        ("5kg", "5"),
        ("5 cm^2", "5"),
        (r"\boxed{64\text{ m}^{2}}", "64"),
        ("5 s^{-1}", "5"),
        ("10^6", "1000000"),
        ("2**10", "1024"),
        ("0^{-1}", None),
        ("9^999999", None),
        ("**18**", "18"),
        ("x = - 1", "-1"),
        ("(- 1)", "-1"),
        ("- 5 eggs", "5"),
        ("from 10%-20", "20"),
        (r"\frac12", "1/2"),
        (r"-\dfrac 3 4", "-3/4"),
        (r"\frac10", None),
        ("#### 18\n\n(9 eggs, 2 days)", "18"),
        ("#### **$18.00**\n#### 2 days", "18"),
        ("#### 1. Eggs\nThere are 18", "18"),
        ("H2O", None),
        ("5/0", None),
        ("no number", None),
        ("", None),
        ("9" * 1000, None),
        ("1e999", None),
        (r"\boxed{none} 5", None),
        ("5 #### none", None),
    ],
)
def test_last_number(text: str, number: str | None) -> None:
    assert last_number(text) == (None if number is None else Fraction(number))


@given(st.fractions(), st.sampled_from(["{}", "so {}.", "3 and {}", r"\boxed{{{}}} 1", "#### {}"]))
def test_fractions_are_read_as_they_are_written(value: Fraction, form: str) -> None:
    assert last_number(form.format(value)) == value


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9
    )
)
def test_decimals_are_read_as_they_are_written(value: Any) -> None:
    assert last_number(f"{value:,}") == Fraction(value)
    assert last_number(f"{value:e}") == Fraction(value)


@given(st.text(alphabet="0123456789,./-$ eE^x*\\{}frac#boxed()%\n", max_size=60))
def test_any_text_has_a_number_or_none(text: str) -> None:
    number = last_number(text)
    assert number is None or any(character.isdigit() for character in text)


@pytest.mark.parametrize(
    ("completion", "answer", "reward"),
    [
        ("It is 72.", "48/2 = <<48/2=24>>24 clips\n#### 72", 1.0),
        ("It is 72.0", 72, 1.0),
        ("It is $72", 72.0, 1.0),
        ("It is 73", "72", 0.0),
        ("0.33", "1/3", 0.0),
        ("0.3333333333333333", "1/3", 0.0),
        ("2/6", "1/3", 1.0),
        ("50%", "0.5", 0.0),
        ("no idea", "72", 0.0),
    ],
)
def test_number(completion: str, answer: Any, reward: float) -> None:
    assert verifiers.create("number")(completion, {"answer": answer}) == reward


def test_a_gold_answer_without_a_number_is_no_verdict() -> None:
    assert math.isnan(verifiers.create("number")("5", {"answer": "five"}))


def test_gsm8k() -> None:
    verifier = verifiers.create("number")
    with gzip.open(shared_data("train/gsm8k_train.jsonl.gz"), "rt") as lines:
        answers = [json.loads(line)["answer"] for line in lines][::3]
    golds = [Fraction(answer.rpartition("####")[2].strip().replace(",", "")) for answer in answers]
    for i, answer in enumerate(answers):
        other = (i + 1) % len(answers)
        completion = answer.rpartition("####")[2].strip()
        assert verifier(f"So she has ${completion}.", {"answer": answer}) == 1.0, answer
        assert verifier(answers[other], {"answer": answer}) == float(golds[i] == golds[other])


@pytest.mark.parametrize("name", ["choice", "number"])
@pytest.mark.parametrize(
    "piece",
    [
        "1,", "1,111", "1 1 1/", "1/", "1e", "1 ", "9", ".", "-", "$", "\\frac{1}{", "\\boxed{",
        "answer is ", "(A", "(A)\n", "A ", "**A", "A or B ", " ", "\n", "####", "{", "\\text{",
    ],
)  # fmt: skip
def test_time_is_linear(name: str, piece: str) -> None:
    verifier = verifiers.create(name)
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    verifier(text, {"answer": "3"})
    assert time.process_time() - start < 0.5
