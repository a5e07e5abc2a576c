"""The verifier `math` beside math-verify used directly, on pairs of answers with known verdicts.

    python benchmarks/verifier_pairs.py math_answer_pairs.jsonl [MATH.parquet]

Prints how many verdicts of each are right, every wrong one of both, how many answers of *other*
pairs each takes for equal, and the verifier's throughput; with a Parquet file of MATH, also on its
gold answers.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from basis_rl import verifiers
from basis_rl.verifiers.math import judge

Pair = dict[str, Any]
EXTRACTIONS = {
    "default": [LatexExtractionConfig(), ExprExtractionConfig()],
    "boxes first": [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()],
    "LaTeX only": [LatexExtractionConfig()],
}
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda gold: gold,
    "boxed": lambda gold: gold if "$" in gold or "\\boxed" in gold else f"\\boxed{{{gold}}}",
    "dollars": lambda gold: gold if "$" in gold or "\\boxed" in gold else f"${gold}$",
}
OTHERS = 300
SHOWN = 70


def main() -> None:
    """Print the tables."""
    logging.disable(logging.CRITICAL)
    pairs: list[Pair] = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    results = {settings: wrong(pairs, settings) for settings in all_settings()}
    ours = [i for i, pair in enumerate(pairs) if guarded(judge, pair) != pair["equal"]]
    best = min(results, key=lambda settings: len(results[settings]))
    default = next(iter(results))
    for name, settings in (("default", default), ("best", best)):
        right = len(pairs) - len(results[settings])
        print(f"math-verify, {name}: {right} of {len(pairs)} right; {described(settings)}")
    print(f"verifier math: {len(pairs) - len(ours)} of {len(pairs)} right\n")
    for i in sorted({*results[default], *results[best], *ours}):
        marks = [("default", results[default]), ("best", results[best]), ("math", ours)]
        whose = ", ".join(name for name, found in marks if i in found)
        gold, answer = pairs[i]["gold"], pairs[i]["pred"]
        print(f"{i:4d}  wrong: {whose}; should be {'equal' if pairs[i]['equal'] else 'different'}")
        print(f"      gold {gold[-SHOWN:]!r}, answer {answer[-SHOWN:]!r}")
    drawn = others(pairs)
    print(f"\ntaken for equal, of {len(drawn)} answers to other questions:")
    print(f"  math-verify, default {len(wrong(drawn, default))}, ", end="")
    print(f"best {len(wrong(drawn, best))}; ", end="")
    print(f"math {sum(guarded(judge, pair) for pair in drawn)}\n")
    throughput("the pairs", [(pair["pred"], pair["gold"]) for pair in pairs])
    if len(sys.argv) > 2:
        throughput("gold answers of MATH", math_answers(sys.argv[2]))


def all_settings() -> list[tuple[Any, ...]]:
    """Ways to use math-verify, its defaults first."""
    places, strict, relations = (6, 4, 3, 2), (True, False), (False, True)
    return list(itertools.product(FORMS, EXTRACTIONS, places, strict, relations))


def described(settings: tuple[Any, ...]) -> str:
    """Settings in words."""
    form, extraction, places, strict, relations = settings
    return (
        f"gold {form}, extraction {extraction}, float_rounding {places}, strict {strict}, "
        f"allow_set_relation_comp {relations}"
    )


def wrong(pairs: Sequence[Pair], settings: tuple[Any, ...]) -> list[int]:
    """Indices of the pairs that math-verify gets wrong."""
    form, extraction, places, strict, relations = settings
    return [
        i
        for i, pair in enumerate(pairs)
        if pair["equal"]
        != verify(
            parsed(FORMS[form](pair["gold"]), extraction),
            parsed(pair["pred"], extraction),
            float_rounding=places,
            strict=strict,
            allow_set_relation_comp=relations,
        )
    ]


def parsed(text: str, extraction: str, _known: dict[tuple[str, str], Any] = {}) -> Any:  # noqa: B006
    """What math-verify reads, once for each text."""
    if (text, extraction) not in _known:
        _known[text, extraction] = parse(text, EXTRACTIONS[extraction])
    return _known[text, extraction]


def guarded(score: Callable[[str, str], float | None], pair: Pair) -> bool:
    """Verdict, False where it raises."""
    try:
        return bool(score(pair["pred"], pair["gold"]))
    except Exception:
        return False


def others(pairs: Sequence[Pair]) -> list[Pair]:
    """Gold answers with the answers of other pairs."""
    draw = random.Random(0)
    drawn = (draw.sample(list(pairs), 2) for _ in range(OTHERS))
    return [{"gold": a["gold"], "pred": b["pred"], "equal": False} for a, b in drawn]


def math_answers(path: str) -> list[tuple[str, str]]:
    """Each gold answer of MATH in a box, and as the gold answer."""
    import pyarrow.parquet as pq

    rows = pq.read_table(path, columns=["reward_model"])["reward_model"].to_pylist()
    golds = [row["ground_truth"]["target"] for row in rows if row["ground_truth"]["target"]]
    return [(f"so it is $\\boxed{{{gold}}}$.", gold) for gold in golds]


def throughput(what: str, answers: Sequence[tuple[str, str]]) -> None:
    """Print answers per second, and the time that the pool takes of it."""
    for processes in (0, 1, 2):
        verifier = verifiers.create("math", processes=processes)
        warm_up = [verifier.submit(["$1$"], {"answer": "1"}) for _ in range(processes)]
        for future in warm_up:
            future.result()
        start, spent = time.perf_counter(), time.process_time()
        futures = [verifier.submit([text], {"answer": gold}) for text, gold in answers]
        verdicts = [future.result()[0] for future in futures]
        seconds, here = time.perf_counter() - start, time.process_time() - spent
        given = sum(verdict.reward is not None for verdict in verdicts)
        right = sum(bool(verdict.reward) for verdict in verdicts)
        print(
            f"{what}, {processes} workers: {len(answers) / seconds:.0f} answers/s, "
            f"{1e6 * here / len(answers):.0f} us of processor time here an answer; {given} with a "
            f"verdict, {right} of them 1, failures {dict(verifier.failures)}"
        )
        verifier.close()


if __name__ == "__main__":
    main()
