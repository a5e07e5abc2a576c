"""Completions from a transformers model: one prefill a prompt, finished rows dropped."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

from basis_rl.errors import BasisError
from basis_rl.rollouts.batch_size import AUTO, BatchSize, batch_sizes
from basis_rl.rollouts.batches import Piece, longest_first, take_batch
from basis_rl.rollouts.device import usable_device
from basis_rl.rollouts.engine import Completion, Engine, Request, Rollouts, completion_seed
from basis_rl.rollouts.loading import (
    check_dtype,
    check_packages,
    load_network,
    load_tokenizer,
    longest,
)
from basis_rl.rollouts.next_token import Uniforms, choose
from basis_rl.rollouts.options import TEXT
from basis_rl.rollouts.prompt_tokens import PromptTokens
from basis_rl.rollouts.settings import Prompts, SamplingSettings
from basis_rl.rollouts.stop_texts import StopTexts

if TYPE_CHECKING:
    from torch import Tensor


class TransformersEngine(Engine):
    """Samples completions with a causal language model in this process.

    A completion depends on the seed, its prompt's key and its number; what else is asked for
    changes it through rounding only, and not at all where its batch is the same.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    name : str, optional
        What provenance calls the model; by default the name that it was loaded from.
    revision : str, optional
    batch_size : int or "auto"
        Rollouts sampled at a time; halved where they do not fit into a GPU's memory.

    Raises
    ------
    ConfigError
        If the batch size is neither.
    """

    name: ClassVar[str] = "transformers"
    values: ClassVar = {"device": TEXT, "batch_size": batch_sizes()}

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        revision: str | None = None,
        batch_size: int | str = AUTO,
    ) -> None:
        self.network = model
        self.tokenizer = tokenizer
        self.model = name or str(model.config._name_or_path)
        self.revision = revision
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.version = version("transformers")
        self.batch_size = BatchSize(model, batch_size)
        self._tokens = PromptTokens(tokenizer, self.model, longest(model.config))
        # An adapter (PEFT) hides its model's parameters.
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        forward = inspect.signature(base.forward).parameters
        self._cache = "cache" if "cache" in forward else "past_key_values"
        self._last_logits = {"logits_to_keep": 1} if "logits_to_keep" in forward else {}

    @classmethod
    def open(  # type: ignore[override]
        cls,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: int | str = AUTO,
    ) -> TransformersEngine:
        """Load a model and its tokenizer from a folder or the hub.

        Parameters
        ----------
        model : str
        revision : str, optional
        dtype : str
            "auto" (the checkpoint's), "bfloat16", "float16" or "float32".
        device : str, optional
            By default the GPU if there is one.
        batch_size : int or "auto"
            Rollouts sampled at a time.

        Raises
        ------
        ConfigError
            If an option is wrong or the model cannot be loaded.
        """
        check_dtype(dtype)
        cls.check_options({"device": device, "batch_size": batch_size})
        check_packages()
        device = usable_device(device)
        tokenizer = load_tokenizer(model, revision)
        network = load_network(model, revision, dtype)
        network.to(device)
        return cls(network, tokenizer, name=model, revision=revision, batch_size=batch_size)

    def check(self, prompts: Prompts, settings: SamplingSettings) -> None:
        """Refuse prompts that cannot be sampled, before any is.

        Raises
        ------
        ConfigError
            If a prompt has no tokens or is too long for the model, or the tokenizer has no chat
            template or its template refuses a chat.
        """
        self._tokens.encode(prompts, settings.max_tokens)

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Sample the longest prompts first, and give each batch when it is done.

        Yields
        ------
        list of Rollouts
            One batch. Whoever asks for the rest later, in the same order, gets the same batches.

        Raises
        ------
        ConfigError
            As `check`; if a request asks for no completion.
        BasisError
            If a single completion does not fit into memory.
        """
        import torch

        tokens = self._tokens.encode([request.prompt for request in requests], settings.max_tokens)
        pending = longest_first(requests, tokens, once=settings.temperature == 0)
        while pending:
            batch = take_batch(
                pending, self.batch_size.rows(len(pending[0].tokens) + settings.max_tokens)
            )
            completions = None
            try:
                completions = self._sample(batch, settings, seed)
            except torch.OutOfMemoryError:
                pending.extendleft(reversed(batch))
            # Not while the error is handled: it holds what has to be freed first.
            if completions is None:
                self._use_less_memory(batch, settings)
            else:
                yield list(_rollouts(batch, completions))

    def _use_less_memory(self, batch: Sequence[Piece], settings: SamplingSettings) -> None:
        import torch

        rows = sum(piece.count for piece in batch)
        if rows == 1:
            raise BasisError(
                f"a completion of prompt {batch[0].request.prompt!r:.80} with up to "
                f"{settings.max_tokens} tokens does not fit into memory: lower max_tokens, or use "
                "a smaller number type or a larger GPU"
            )
        self.batch_size.halve(rows)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _sample(
        self, batch: Sequence[Piece], settings: SamplingSettings, seed: int
    ) -> list[Completion]:
        import torch

        stops = StopTexts(self.tokenizer, settings.stop)
        was_training = self.network.training
        self.network.eval()
        try:
            with torch.inference_mode():
                found, are_cut = self._decode(batch, settings, stops, seed)
        finally:
            self.network.train(was_training)
        return [self._completion(stops, *one) for one in zip(found, are_cut, strict=True)]

    def _completion(self, stops: StopTexts, tokens: list[int], is_cut: bool) -> Completion:
        """What is kept of a completion; a subclass may keep its tokens."""
        return Completion(stops.text(tokens), len(tokens), is_cut)

    def _decode(
        self, batch: Sequence[Piece], settings: SamplingSettings, stops: StopTexts, seed: int
    ) -> tuple[list[list[int]], list[bool]]:
        """Token ids of a batch's completions, end tokens included, and whether each is cut."""
        import torch

        device = self.network.device
        logits, mask, position, cache = self._prefill(batch, settings.max_tokens)
        numbers = Uniforms(_seeds(batch, seed), device)
        end = self._end_tokens()
        width = mask.shape[1] - settings.max_tokens
        completions: list[list[int]] = [[] for _ in range(len(mask))]
        alive = list(range(len(mask)))
        for step in range(1, settings.max_tokens + 1):
            chosen = choose(logits, numbers.next(), settings)
            kept = []
            for row, (rollout, token) in enumerate(zip(alive, chosen.tolist(), strict=True)):
                completions[rollout].append(token)
                if token not in end and not stops.reached(completions[rollout]):
                    kept.append(row)
            if len(kept) < len(alive):
                alive = [alive[row] for row in kept]
                if not alive:
                    break
                rows = torch.tensor(kept, device=device)
                numbers.keep(kept, rows)
                chosen, mask, position = chosen[rows], mask[rows], position[rows]
                cache.batch_select_indices(rows)
            if step < settings.max_tokens:
                position = position + 1
                logits, cache = self._forward(
                    chosen[:, None], mask[:, : width + step], position, cache
                )
        is_cut = set(alive)
        return completions, [rollout in is_cut for rollout in range(len(completions))]

    def _prefill(
        self, batch: Sequence[Piece], max_tokens: int
    ) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Read each prompt once; logits, mask, positions and cache of every completion.

        The mask has room for the completions.
        """
        import torch

        device = self.network.device
        ids, mask = (t.to(device) for t in _padded([piece.tokens for piece in batch]))
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits, cache = self._forward(ids, mask, positions, None)
        mask = torch.cat([mask, mask.new_ones(len(mask), max_tokens)], dim=1)
        prompts = [i for i, piece in enumerate(batch) for _ in range(piece.count)]
        if len(prompts) > len(batch):
            rows = torch.tensor(prompts, device=device)
            cache.batch_select_indices(rows)
            logits, mask, positions = logits[rows], mask[rows], positions[rows]
        return logits, mask, positions[:, -1:], cache

    def _forward(
        self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any
    ) -> tuple[Tensor, Any]:
        output = self.network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache: cache},
            **self._last_logits,
        )
        return output.logits[:, -1], output[self._cache]

    def _end_tokens(self) -> set[int]:
        ids = self.network.generation_config.eos_token_id
        found = set(ids) if isinstance(ids, list | tuple) else {ids}
        return (found | {self.tokenizer.eos_token_id}) - {None}


def _padded(tokens: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Left-padded ids and their attention mask."""
    import torch

    width = max(map(len, tokens))
    ids = torch.zeros(len(tokens), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, row_tokens in enumerate(tokens):
        ids[row, width - len(row_tokens) :] = torch.tensor(row_tokens)
        mask[row, width - len(row_tokens) :] = 1
    return ids, mask


def _seeds(batch: Sequence[Piece], seed: int) -> list[int]:
    return [
        completion_seed(seed, piece.request.key, piece.first + i)
        for piece in batch
        for i in range(piece.count)
    ]


def _rollouts(batch: Sequence[Piece], completions: Sequence[Completion]) -> Iterator[Rollouts]:
    start = 0
    for piece in batch:
        mine = tuple(completions[start : start + piece.count])
        yield Rollouts(piece.request.key, piece.first, mine * piece.copies)
        start += piece.count
