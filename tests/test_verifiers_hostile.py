"""Answers written to break the verifier: each costs its limit at most, the next is judged right."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hostile_answers import HOSTILE, share_of_a_core

from basis_rl import verifiers
from basis_rl.verifiers import NamedVerifier, Verdict

pytest.importorskip("math_verify")

LIMIT_S = 0.25


@pytest.fixture(scope="module")
def verifier() -> Iterator[NamedVerifier]:
    verifier = verifiers.create("math", processes=1, limit_s=LIMIT_S)
    verifier("$1$", {"answer": "1"})
    yield verifier
    verifier.close()


def test_there_are_at_least_20() -> None:
    assert len(HOSTILE) >= 20


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_costs_its_limit_at_most(verifier: NamedVerifier, name: str) -> None:
    start = time.monotonic()
    [verdict] = verifier.submit([HOSTILE[name]], {"answer": r"\frac{7}{2}"}).result(timeout=20)
    spent = time.monotonic() - start
    assert verdict.reward == 0.0
    assert verdict.failure in (None, "time-out", "memory", "SympifyError", "ValueError")
    # Processor time is limited to 1.25 times the limit, waiting to 3 times.
    assert spent < (3 * LIMIT_S + 0.5) / share_of_a_core()
    assert verifier(r"so $x = 3.5$", {"answer": r"\frac{7}{2}"}) == 1.0
    assert verifier(r"so $x = 3.6$", {"answer": r"\frac{7}{2}"}) == 0.0


@pytest.mark.parametrize("name", ["exact", "choice", "number"])
def test_light_verifiers_take_linear_time(name: str) -> None:
    verifier = verifiers.create(name)
    for answer in HOSTILE.values():
        start = time.process_time()
        verifier(answer, {"answer": "B" if name == "choice" else "11"})
        assert time.process_time() - start < 1.0
    assert not verifier.failures


def test_hostile_answers_among_others_in_any_order(verifier: NamedVerifier) -> None:
    names = ["power tower", "huge integer", "100 kB of open braces"]
    texts = [HOSTILE[name] for name in names] + [f"${i}$" for i in range(12)]
    found: list[dict[str, Verdict]] = []
    two = verifiers.create("math", processes=2, limit_s=LIMIT_S)
    for judge, order in [(verifier, texts), (two, texts[::-1])]:
        verdicts = judge.submit(order, {"answer": "7"}).result(timeout=60)
        found.append(dict(zip(order, verdicts, strict=True)))
    two.close()
    assert found[0] == found[1]
    assert [found[0][f"${i}$"].reward for i in range(12)] == [float(i == 7) for i in range(12)]
    assert all(found[0][text].reward == 0.0 for text in texts[:3])
