"""Completions from a transformers model: one prefill a prompt, finished rows dropped."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from basis_rl.errors import ConfigError
from basis_rl.passrates.keys import prompt_key
from basis_rl.rollouts.next_token import choose, uniforms
from basis_rl.rollouts.settings import Prompts, SamplingSettings

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("auto", "bfloat16", "float16", "float32")
# A token has a byte or more, so a stop text of b bytes lies within the last b tokens and a few.
_STOP_MARGIN = 4


def check_dtype(dtype: str) -> None:
    """Refuse an unknown number type.

    Raises
    ------
    ConfigError
        Naming those that are known.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}: use one of {', '.join(DTYPES)}")


class TransformersSampler:
    """Samples completions with a causal language model in this process.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    name : str, optional
        What provenance calls the model; by default the name that it was loaded from.
    revision : str, optional
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str | None = None, revision: str | None = None
    ) -> None:
        self.network = model
        self.tokenizer = tokenizer
        self.model = name or str(model.config._name_or_path)
        self.revision = revision
        self.dtype = str(model.dtype).removeprefix("torch.")
        # An adapter (PEFT) hides its model's parameters.
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        forward = inspect.signature(base.forward).parameters
        self._cache = "cache" if "cache" in forward else "past_key_values"
        self._last_logits = {"logits_to_keep": 1} if "logits_to_keep" in forward else {}

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
    ) -> TransformersSampler:
        """Load a model and its tokenizer from a folder or the hub.

        Parameters
        ----------
        name : str
        revision : str, optional
        dtype : str
            "auto" (the checkpoint's), "bfloat16", "float16" or "float32".
        device : str, optional
            By default the GPU if there is one.

        Raises
        ------
        ConfigError
            If the dtype is unknown or the model cannot be loaded.
        """
        check_dtype(dtype)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
            model = AutoModelForCausalLM.from_pretrained(name, revision=revision, dtype=dtype)
        except (OSError, ValueError, KeyError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ConfigError(
                f"cannot load model {name!r} ({lines[0]}): name a folder that holds a model and "
                "its tokenizer, or a model of the hub that can be reached"
            ) from error
        network: Any = model
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return cls(network, tokenizer, name=name, revision=revision)

    def sample(
        self,
        prompts: Prompts,
        n: int = 1,
        settings: SamplingSettings | None = None,
        *,
        seed: int = 0,
        keys: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Draw n completions of each prompt, all at the same time.

        A prompt's random numbers depend on the seed and its key alone; what else is in the call
        changes its completions through rounding only.

        Parameters
        ----------
        prompts : sequence of str or of lists of messages, length P
            Chats go through the tokenizer's template.
        n : int
        settings : SamplingSettings, optional
        seed : int
        keys : sequence of str, length P, optional
            By default the prompts' content hashes.

        Returns
        -------
        list of P lists of n texts
            Without special tokens and stop texts.

        Raises
        ------
        ConfigError
            If n is not positive, a prompt has no tokens or is too long for the model, or the
            tokenizer has no chat template.
        """
        import torch

        settings = settings or SamplingSettings()
        if n < 1:
            raise ConfigError(f"n is {n}: draw at least one completion per prompt")
        if not prompts:
            return []
        keys = [prompt_key(prompt) for prompt in prompts] if keys is None else keys
        tokens = [self._encode(prompt, settings.max_tokens) for prompt in prompts]
        rollouts = 1 if settings.temperature == 0 else n  # greedy ones are all the same
        numbers = uniforms(keys, rollouts, settings.max_tokens, seed=seed)
        was_training = self.network.training
        self.network.eval()
        try:
            with torch.inference_mode():
                completions = self._decode(tokens, rollouts, numbers, settings)
        finally:
            self.network.train(was_training)
        texts = [self._text(completion, settings.stop) for completion in completions]
        if rollouts < n:
            return [[text] * n for text in texts]
        return [texts[i : i + n] for i in range(0, len(texts), n)]

    def check(self, prompts: Prompts, settings: SamplingSettings | None = None) -> None:
        """Refuse prompts that cannot be sampled, before any is.

        Raises
        ------
        ConfigError
            As `sample`.
        """
        for prompt in prompts:
            self._encode(prompt, (settings or SamplingSettings()).max_tokens)

    def _encode(self, prompt: Any, max_tokens: int) -> list[int]:
        if isinstance(prompt, str):
            tokens: list[int] = self.tokenizer(prompt)["input_ids"]
        else:
            tokens = self.tokenizer(self._render(prompt), add_special_tokens=False)["input_ids"]
        limit = getattr(self.network.config, "max_position_embeddings", None)
        if not tokens:
            raise ConfigError(f"prompt {prompt!r:.80} has no tokens: leave it out")
        if limit is not None and len(tokens) + max_tokens > limit:
            raise ConfigError(
                f"prompt {prompt!r:.80} has {len(tokens)} tokens, with max_tokens {max_tokens} "
                f"more than the model's {limit}: lower max_tokens or leave the prompt out"
            )
        return tokens

    def _render(self, messages: Any) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(
                f"the tokenizer of {self.model!r} has no chat template: use text prompts, or an "
                "instruction-tuned model"
            )
        from jinja2 import TemplateError

        goes_on = messages[-1].get("role") == "assistant"
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
            )
        except (TemplateError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the chat template of {self.model!r} refuses prompt {messages!r:.80} ({error}): "
                "change its roles or contents"
            ) from error
        return text

    def _decode(
        self, tokens: list[list[int]], n: int, numbers: Tensor, settings: SamplingSettings
    ) -> list[list[int]]:
        """Token ids of len(tokens) * n completions, end tokens included."""
        import torch

        device = self.network.device
        numbers = numbers.to(device)
        ids, mask = (t.to(device) for t in self._padded(tokens))
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits, cache = self._forward(ids, mask, positions, None)
        if n > 1:
            cache.batch_repeat_interleave(n)
            logits, mask = logits.repeat_interleave(n, 0), mask.repeat_interleave(n, 0)
            positions = positions.repeat_interleave(n, 0)
        position = positions[:, -1:]
        end = self._end_tokens()
        completions: list[list[int]] = [[] for _ in range(len(mask))]
        alive = list(range(len(mask)))
        for step in range(settings.max_tokens):
            chosen = choose(logits, numbers[alive, step], settings)
            kept = []
            for row, (rollout, token) in enumerate(zip(alive, chosen.tolist(), strict=True)):
                completions[rollout].append(token)
                if token not in end and not self._stops(completions[rollout], settings.stop):
                    kept.append(row)
            if not kept or step == settings.max_tokens - 1:
                break
            if len(kept) < len(alive):
                alive = [alive[row] for row in kept]
                rows = torch.tensor(kept, device=device)
                chosen, mask, position = chosen[rows], mask[rows], position[rows]
                cache.batch_select_indices(rows)
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
            position = position + 1
            logits, cache = self._forward(chosen[:, None], mask, position, cache)
        return completions

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

    def _padded(self, tokens: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Left-padded ids and their attention mask."""
        import torch

        width = max(map(len, tokens))
        ids = torch.zeros(len(tokens), width, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, row_tokens in enumerate(tokens):
            ids[row, width - len(row_tokens) :] = torch.tensor(row_tokens)
            mask[row, width - len(row_tokens) :] = 1
        return ids, mask

    def _end_tokens(self) -> set[int]:
        ids = self.network.generation_config.eos_token_id
        found = set(ids) if isinstance(ids, list | tuple) else {ids}
        return (found | {self.tokenizer.eos_token_id}) - {None}

    def _stops(self, tokens: list[int], stop: tuple[str, ...]) -> bool:
        """Whether the newest token completes a stop text."""
        if not stop:
            return False
        window = max(len(s.encode("utf-8", "surrogatepass")) for s in stop) + _STOP_MARGIN
        text = self.tokenizer.decode(tokens[-window:], skip_special_tokens=True)
        return any(s in text for s in stop)

    def _text(self, tokens: list[int], stop: tuple[str, ...]) -> str:
        text: str = self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        ends = [text.find(s) for s in stop if s in text]
        return text[: min(ends)] if ends else text
