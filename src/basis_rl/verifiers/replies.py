"""What is said of one answer, between the processes that judge and those that count."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

# One of: reward (a number or None), failure and told, refused, returned, broken.
Reply = dict[str, Any]


def reply_to(value: Any) -> Reply:
    """Reply for what a verifier has returned."""
    if value is None:
        return {"reward": None}
    try:
        reward = float(value)
    except (TypeError, ValueError, OverflowError):
        reward = math.inf
    if math.isinf(reward):
        return {"returned": _shown(value)}
    return {"reward": None if math.isnan(reward) else reward}


def failure_name(error: BaseException) -> str:
    """Name under which an exception is counted."""
    return type(error).__name__


def failure_text(error: BaseException) -> str:
    """Type, text and place of an exception, in one line."""
    try:
        text = " ".join(str(error).split())[:200]
    except Exception:
        text = ""
    place, last = "", error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None:  # not extract_tb: it reads every frame of a deep recursion
        file = os.path.basename(last.tb_frame.f_code.co_filename)
        place = f" in {file}, line {last.tb_lineno}"
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def _shown(value: Any) -> str:
    """Start of a value's ``repr``, whatever it is."""
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"


def gathered(
    count: int, finish: Callable[[list[Reply | Exception]], Any]
) -> tuple[Future[Any], Callable[[int, Reply | Exception], None]]:
    """Future of what `finish` makes of all replies, and the function that takes each.

    Parameters
    ----------
    count : int
    finish : callable
        Called once, with the replies in order, in the thread that brought the last one.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # what is with the workers cannot be cancelled
    if not count:
        future.set_result([])
    replies: list[Any] = [None] * count
    left = [count]
    lock = threading.Lock()

    def take(number: int, reply: Reply | Exception) -> None:
        with lock:
            replies[number] = reply
            left[0] -= 1
            if left[0]:
                return
        try:
            result = finish(replies)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    return future, take
