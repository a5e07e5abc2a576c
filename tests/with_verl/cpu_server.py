"""A completion server on transformers: a Ray actor that imports no verl, which takes seconds.

Sampling is a function of the seed, the weights' version, the prompt and how often the prompt has
been asked for at that version. So a resumed job repeats an uninterrupted one: requests' ids and the
order of their arrival differ from job to job.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch

WAIT = 0.02  # seconds for further requests to arrive before a batch is decoded


@dataclass
class Completion:
    """What verl reads of its own TokenOutput."""

    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stop_reason: str = "completed"
    extra_fields: dict[str, Any] = field(default_factory=dict)
    routed_experts: None = None
    num_preempted: None = None


@dataclass
class Request:
    """A prompt to complete."""

    prompt: list[int]
    temperature: float
    max_tokens: int
    answer: asyncio.Future[Completion]


class CPUServer:
    """Completes prompts in batches; stops within a token when told to, as vLLM's server does."""

    def __init__(self, path: str, max_tokens: int, seed: int) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path)).eval()
        ends = GenerationConfig.from_pretrained(path).eos_token_id
        self.ends = set(ends) if isinstance(ends, list) else {ends}
        self.max_tokens = max_tokens
        self.seed = seed
        self.version: int | None = None
        self.asked: Counter[Any] = Counter()
        self.waiting: list[Request] = []
        self.stop = False
        self.running = asyncio.Event()
        self.running.set()
        self.wake = asyncio.Event()
        self.busy = asyncio.Lock()
        self.loop: asyncio.Task[None] | None = None

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Completion:
        """One completion; held while generation is paused."""
        if self.loop is None:
            self.loop = asyncio.create_task(self.serve())
        request = Request(
            [int(token) for token in prompt_ids],
            float(sampling_params.get("temperature", 1.0)),
            int(sampling_params.get("max_tokens") or self.max_tokens),
            asyncio.get_running_loop().create_future(),
        )
        self.waiting.append(request)
        self.wake.set()
        return await request.answer

    async def serve(self) -> None:
        """Decode what waits, one batch a temperature, for ever."""
        while True:
            await self.wake.wait()
            await asyncio.sleep(WAIT)
            await self.running.wait()
            async with self.busy:
                batch, self.waiting = self.waiting, []
                self.wake.clear()
                groups: dict[float, list[Request]] = defaultdict(list)
                for request in sorted(batch, key=lambda one: one.prompt):
                    groups[request.temperature].append(request)
                for temperature, requests in groups.items():
                    await self.complete(requests, temperature)

    async def complete(self, requests: list[Request], temperature: float) -> None:
        draws = [self.draws(request) for request in requests]
        try:
            done = await asyncio.to_thread(self.decode, requests, draws, temperature)
        except Exception as error:
            for request in requests:
                request.answer.set_exception(error)
        else:
            for request, completion in zip(requests, done, strict=True):
                request.answer.set_result(completion)

    def draws(self, request: Request) -> torch.Tensor:
        """One uniform number a token."""
        name = (tuple(request.prompt), request.temperature)
        parts = (self.seed, self.version, *name, self.asked[name])
        self.asked[name] += 1
        digest = hashlib.sha256(repr(parts).encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        return torch.rand(request.max_tokens, generator=generator, dtype=torch.float64)

    @torch.no_grad()
    def decode(
        self, requests: list[Request], draws: list[torch.Tensor], temperature: float
    ) -> list[Completion]:
        """Left-padded prompts and a key-value cache; rows that have ended go on unseen."""
        ids, mask = left_padded([request.prompt for request in requests])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        rows = [Completion(extra_fields=self.versions()) for _ in requests]
        cache, open_rows = None, set(range(len(rows)))
        for number in range(max(request.max_tokens for request in requests)):
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            cache = output.past_key_values
            log_probs = output.logits[:, -1].double().div(temperature or 1.0).log_softmax(-1)
            chosen = log_probs.argmax(-1) if temperature == 0 else draw(log_probs, draws, number)
            for row in sorted(open_rows):
                token = int(chosen[row])
                rows[row].token_ids.append(token)
                rows[row].log_probs.append(float(log_probs[row, token]))
                if token in self.ends or len(rows[row].token_ids) == requests[row].max_tokens:
                    open_rows.remove(row)
            if not open_rows or self.stop:
                break
            ids = chosen[:, None]
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
            positions = positions[:, -1:] + 1
        for row in open_rows:
            rows[row].stop_reason = "aborted"
        return rows

    def versions(self) -> dict[str, int | None]:
        names = ("global_steps", "min_global_steps", "max_global_steps")
        return dict.fromkeys(names, self.version)

    async def load_weights(self, state: dict[str, torch.Tensor], version: int | None) -> None:
        """Take over all weights; a new version counts prompts from 0 again."""
        async with self.busy:
            missing, unexpected = self.model.load_state_dict(state, strict=False)
            tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
            if set(missing) - tied or unexpected:
                raise ValueError(f"weights do not fit: missing {missing}, unknown {unexpected}")
            self.version = version
            self.asked.clear()

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """End what is being decoded; what comes then waits until generation is resumed."""
        self.running.clear()
        self.stop = True
        async with self.busy:
            pass

    async def resume_generation(self) -> None:
        self.stop = False
        self.running.set()

    async def nothing(self, *_: Any, **__: Any) -> None:
        """A processor's memory needs no care."""

    async def set_global_steps(self, version: int) -> None:
        self.version = version

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    start_profile = stop_profile = nothing


def left_padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, as long as the longest prompt."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    return ids, mask


def draw(log_probs: torch.Tensor, draws: list[torch.Tensor], number: int) -> torch.Tensor:
    """Next token of each row, by the row's own uniform number."""
    wanted = torch.stack([row[min(number, len(row) - 1)] for row in draws])
    sums = log_probs.exp().cumsum(-1)
    chosen = torch.searchsorted(sums, wanted[:, None] * sums[:, -1:])[:, 0]
    return chosen.clamp(max=log_probs.shape[1] - 1)
