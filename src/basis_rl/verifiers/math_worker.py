"""The process in which `math` verdicts are made: one JSON object a line in, one out.

SymPy can compute for ever inside one C call, where neither an exception nor a signal reaches it
(``10**10**10`` in an answer is enough), so the process has a watchdog that ends it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from functools import lru_cache
from importlib.metadata import version
from typing import Any

MEMORY_LIMIT_BYTES = 4 << 30


def main(soft_limit_s: int, hard_limit_s: float) -> None:
    """Answer requests until standard input ends.

    Parameters
    ----------
    soft_limit_s : int
        Of parsing and of comparing, each; math-verify raises.
    hard_limit_s : float
        Of one request; this process ends.
    """
    # What SymPy prints must not end up among the replies.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    limit_memory()
    judge("0", "0", soft_limit_s)  # loads all that judging needs, outside the first request's time
    print(json.dumps({"ready": version("math-verify")}), file=replies, flush=True)
    with open(os.devnull, "w") as nowhere:
        for line in sys.stdin:
            request = json.loads(line)
            faulthandler.dump_traceback_later(hard_limit_s, exit=True, file=nowhere)
            reply = answer(request["completion"], request["gold"], soft_limit_s)
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(reply), file=replies, flush=True)


def answer(completion: str, gold: str, limit_s: int) -> dict[str, Any]:
    """Reply to one request: a reward (None for no verdict), or the type of an exception."""
    try:
        return {"reward": judge(completion, gold, limit_s)}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # math-verify's time-out is no Exception
        return {"error": type(error).__name__}


def judge(completion: str, gold: str, limit_s: int) -> float | None:
    """1 if math-verify finds the gold answer's value in the completion, else 0; None without gold.

    Raises
    ------
    Exception
        Whatever math-verify and SymPy raise, time-outs included.
    """
    from math_verify import parse, verify

    expected = parsed_gold(gold, limit_s)
    if not expected:
        return None
    found = parse(completion, parsing_timeout=limit_s, raise_on_error=True)
    if not found:
        return 0.0
    return float(verify(list(expected), found, timeout_seconds=limit_s, raise_on_error=True))


@lru_cache(maxsize=4096)
def parsed_gold(gold: str, limit_s: int) -> tuple[Any, ...]:
    """Parse a gold answer: bare LaTeX, delimited LaTeX, or GSM8K's text after ``####``."""
    from math_verify import parse

    text = gold.rpartition("####")[2].strip()
    if "$" not in text and "\\boxed" not in text:
        text = f"\\boxed{{{text}}}"
    return tuple(parse(text, parsing_timeout=limit_s))


def limit_memory() -> None:
    """Turn a memory explosion into MemoryError, where the platform can."""
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, hard))
    except (ImportError, ValueError, OSError):
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
