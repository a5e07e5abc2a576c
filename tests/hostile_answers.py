"""Answers that a policy may write and a verifier must survive."""

from __future__ import annotations

import os


def share_of_a_core() -> float:
    """What one process gets of a core while other processes want the cores too, at least."""
    return 1 / max(1.0, 1.5 * os.getloadavg()[0] / (os.cpu_count() or 1))


HOSTILE = {
    "deep nesting": r"\boxed{" + "(" * 5000 + "1" + ")" * 5000 + "}",
    "power tower": r"$9^{9^{9^{9}}}$",
    "power tower, plain": "9**9**9**9",
    "boxed power tower": r"\boxed{10^{10^{10^{10}}}}",
    "100 kB of open braces": "{" * 100_000,
    "100 kB of closed braces in a box": r"\boxed" + "}" * 100_000,
    "100 kB of nested braces": r"\boxed" + "{" * 50_000 + "1" + "}" * 50_000,
    "bait of dollars": "$ " * 50_000 + "x",
    "bait of boxes": r"\boxed{" * 10_000,
    "bait of final answers": "final answer is " * 5_000 + "!",
    "huge integer": "9" * 100_000,
    "1 MB of digits": r"\boxed{" + "7" * 1_000_000 + "}",
    "factorials": r"\boxed{9!!!!!!!!!!}",
    "factorial of a million": r"\boxed{\frac{1000000!}{999999!}}",
    "tower of fractions": r"\boxed{" + r"\frac{1}{1+" * 300 + "1" + "}" * 300 + "}",
    "null bytes": "\x00" * 1000 + "$1\x00$",
    "lone surrogates": "\ud800" * 1000 + r"\boxed{\ud800}",
    "right-to-left marks": "\u202e\u200f" * 1000 + "$5$",
    "text that exits": r"\boxed{import os; os._exit(0)} __import__('os')._exit(0)",
    "text that prints": "print('x' * 10**9)\n" * 100,
    "matrix of 500 x 500": r"\boxed{\begin{pmatrix}"
    + r"\\".join(" & ".join("1" for _ in range(500)) for _ in range(500))
    + r"\end{pmatrix}}",
    "all unbalanced": r"\left( \begin{cases} $\[ \( { ] \right\} \end{matrix} \frac \sqrt[" * 200,
    "sum of a billion": r"\boxed{\sum_{k=1}^{1000000000} \frac{1}{k!}}",
    "integral": r"\boxed{\int_0^1 \sin(\cos(\tan(x^{x^x}))) dx}",
    "binomial": r"\boxed{\binom{10^9}{5 \cdot 10^8}}",
}
