"""An event loop in a thread: asynchronous requests for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")
_END_S = 10.0


class LoopThread:
    """Runs coroutines in a thread of its own until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, run ``last``, and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            last.close()
            return
        self.start(self._end(last))
        self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await last
        finally:
            self._loop.stop()
