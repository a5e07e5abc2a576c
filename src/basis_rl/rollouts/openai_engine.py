"""Completions from a server with OpenAI's interface: vLLM, SGLang, llama.cpp and others."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from basis_rl.errors import BasisError
from basis_rl.rollouts.chat import too_long
from basis_rl.rollouts.engine import Completion, Engine, Request, Rollouts, completion_seed
from basis_rl.rollouts.loading import check_dtype
from basis_rl.rollouts.loop_thread import LoopThread
from basis_rl.rollouts.openai_client import connect
from basis_rl.rollouts.openai_options import VALUES, check_extra_body
from basis_rl.rollouts.openai_request import (
    body,
    check_lengths,
    completions_of,
    tokenize_body,
)
from basis_rl.rollouts.openai_server import Server, explained, look_at
from basis_rl.rollouts.settings import Prompts, SamplingSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_PER_REQUEST = {"vllm": 8}  # not many: a request comes back when its last completion is done
_CHECKED = 64  # longest prompts whose tokens are counted beforehand


class OpenAIEngine(Engine):
    """Samples with a server that has OpenAI's interface; make one with `open`."""

    name: ClassVar[str] = "openai"
    values: ClassVar = VALUES

    def __init__(
        self,
        client: AsyncOpenAI,
        loop: LoopThread,
        server: Server,
        *,
        concurrency: int,
        per_request: int,
        revision: str | None = None,
        dtype: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = server.model
        self.revision = revision
        self.dtype = dtype
        self.version = server.version
        self.server = server
        self.concurrency = concurrency
        self.per_request = per_request
        self._client = client
        self._loop = loop
        self._extra_body = extra_body or {}

    @classmethod
    def open(  # type: ignore[override]
        cls,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        base_url: str,
        api_key: str | None = None,
        concurrency: int = 64,
        timeout_s: float = 600.0,
        max_retries: int = 8,
        completions_per_request: int | str = "auto",
        extra_body: Mapping[str, Any] | None = None,
    ) -> OpenAIEngine:
        """Connect to a server and ask what it serves.

        Parameters
        ----------
        model : str
            The name that the server gives it.
        revision, dtype : str, optional
            Of the model there; kept for provenance.
        base_url : str
            As http://127.0.0.1:8000/v1.
        api_key : str, optional
            By default the environment's OPENAI_API_KEY.
        concurrency : int
            Requests at a time.
        timeout_s : float
            Seconds until a request is tried again.
        max_retries : int
            After 408, 409, 429, 5xx, a time-out or a lost connection, each time later (0.5 to
            8 s, or what the server asks for).
        completions_per_request : int or "auto"
            Completions of a prompt that one request asks for: by default 8 from vLLM, whose
            completions then have the same seeds as alone, else 1.
        extra_body : mapping, optional
            More fields of each request, passed as they are; none that says how is sampled.

        Raises
        ------
        ConfigError
            If an option is wrong, the openai package is missing, the server cannot be reached,
            refuses the key or does not serve the model.
        """
        check_dtype(dtype)
        cls.check_options(
            {
                "base_url": base_url,
                "api_key": api_key,
                "concurrency": concurrency,
                "timeout_s": timeout_s,
                "max_retries": max_retries,
                "completions_per_request": completions_per_request,
                "extra_body": extra_body,
            }
        )
        client = connect(base_url, api_key, timeout_s, max_retries)
        loop = LoopThread()
        try:
            server = loop.start(look_at(client, model)).result()
        except BaseException:
            loop.close(client.close())
            raise
        if completions_per_request == "auto":
            completions_per_request = _PER_REQUEST.get(server.kind, 1)
        return cls(
            client,
            loop,
            server,
            concurrency=concurrency,
            per_request=int(completions_per_request),
            revision=revision,
            dtype=None if dtype == "auto" else dtype,
            extra_body=extra_body,
        )

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse wrong options, also an ``extra_body`` that says how is sampled.

        Raises
        ------
        ConfigError
            Naming the option.
        """
        super().check_options(options)
        check_extra_body(options.get("extra_body") or {})

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Sample what is asked for; closing the generator cancels what is under way.

        Where a request fails for good, what is finished is given before the error is raised.
        See `Engine.stream`.

        Raises
        ------
        BasisError
            If the server fails, after the retries.
        ConfigError
            If it refuses a request.
        """
        jobs = self._jobs(requests, settings)
        turns = asyncio.Semaphore(self.concurrency)
        done: SimpleQueue[Future[list[Rollouts]]] = SimpleQueue()
        pending: set[Future[list[Rollouts]]] = set()
        try:
            while True:
                # As many again wait for their turn: the server is kept busy while the caller is.
                for job in islice(jobs, 2 * self.concurrency - len(pending)):
                    future = self._loop.start(self._answer(job, settings, seed, turns))
                    pending.add(future)
                    future.add_done_callback(done.put)
                if not pending:
                    return
                finished = [done.get()]
                while not done.empty():
                    finished.append(done.get())
                pending.difference_update(finished)
                failed = [future for future in finished if future.exception() is not None]
                given = [r for f in finished if f.exception() is None for r in f.result()]
                if given:
                    yield given
                if failed:
                    failed[0].result()
        finally:
            for future in pending:
                future.cancel()

    def check(self, prompts: Prompts, settings: SamplingSettings) -> None:
        """Have vLLM count the tokens of the longest prompts; other servers are not asked.

        Raises
        ------
        ConfigError
            If one is too long for the model, or the server refuses it.
        BasisError
            If the server fails.
        """
        if self.server.kind != "vllm" or self.server.limit is None:
            return
        longest = sorted(prompts, key=_length, reverse=True)[:_CHECKED]
        self._loop.start(self._check(longest, settings.max_tokens, self.server.limit)).result()

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._loop.close(self._client.close())

    def _jobs(self, requests: Sequence[Request], settings: SamplingSettings) -> Iterator[Request]:
        for request in requests:
            if settings.temperature == 0:  # greedy ones are all the same: one request for all
                yield request
                continue
            done = 0
            while done < request.count:
                count = min(self.per_request, request.count - done)
                yield Request(request.key, request.prompt, request.first + done, count)
                done += count

    async def _answer(
        self, job: Request, settings: SamplingSettings, seed: int, turns: asyncio.Semaphore
    ) -> list[Rollouts]:
        async with turns:
            if settings.temperature == 0:
                one = await self._ask(job.prompt, settings, 1, None)
                return [Rollouts(job.key, job.first, (one[0],) * job.count)]
            found: list[Completion] = []
            while len(found) < job.count:
                wanted = min(job.count - len(found), self.per_request)
                first = job.first + len(found)
                own = completion_seed(seed, job.key, first)
                given = await self._ask(job.prompt, settings, wanted, own)
                if len(given) < wanted:
                    self._ask_singly(len(given), wanted)
                found += given[:wanted]
            return [Rollouts(job.key, job.first, tuple(found))]

    async def _ask(
        self, prompt: Any, settings: SamplingSettings, count: int, seed: int | None
    ) -> list[Completion]:
        from openai import OpenAIError

        extra = self._extra_body
        arguments = body(prompt, settings, self.server, count=count, seed=seed, extra_body=extra)
        chat = self._client.chat.completions
        create: Any = self._client.completions.create if isinstance(prompt, str) else chat.create
        try:
            found = completions_of(await create(**arguments), self.server)
        except BasisError:
            raise
        except (OpenAIError, ValueError) as error:  # a ValueError where JSON is damaged
            raise explained(error, self.server, prompt) from error
        if self.server.kind == "vllm" or len(found) == 1:  # token counts are exact
            check_lengths(found, settings, self.server, prompt)
        return found

    def _ask_singly(self, given: int, wanted: int) -> None:
        if self.per_request > 1:
            self.per_request = 1
            warnings.warn(
                f"{self.server.url} gave {given} of {wanted} completions: asking for one at a time",
                stacklevel=2,
            )

    async def _check(self, prompts: Prompts, max_tokens: int, limit: int) -> None:
        turns = asyncio.Semaphore(self.concurrency)

        async def count(prompt: Any) -> int:
            from openai import OpenAIError

            async with turns:
                try:
                    answer: Any = await self._client.post(
                        f"{self.server.root}/tokenize",
                        cast_to=object,
                        body=tokenize_body(prompt, self.server),
                    )
                except OpenAIError as error:
                    raise explained(error, self.server, prompt) from error
                return int(answer["count"])

        counts = await asyncio.gather(*map(count, prompts))
        for prompt, tokens in zip(prompts, counts, strict=True):
            if tokens + max_tokens > limit:
                raise too_long(prompt, tokens, max_tokens, limit)


def _length(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt.encode("utf-8", "surrogatepass"))
    return sum(_length(str(message.get("content"))) for message in prompt)
