"""Log-probabilities of completions from a model's own logits."""

from __future__ import annotations

import inspect
from typing import Any

import torch


def supports_plain_logits(model: Any) -> bool:
    """Whether a model can be asked for the logits of its last positions alone."""
    return "logits_to_keep" in inspect.signature(type(model).forward).parameters


def plain_log_probs(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    completion_length: int,
    *,
    temperature: float,
    batch_size: int | None = None,
    entropy: bool = False,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities of the last C tokens, as TRL's fused head gives them.

    ``log p(y_t) = log_softmax(z)[y_t]``, z the logits over the temperature. Only the positions
    that predict the completion go through the head. TRL's fused head takes the prompt along on a
    CPU, and computes the logits a second time in the backward pass: less memory, more time.

    Parameters
    ----------
    model : Module
    input_ids, attention_mask : int tensor, shape (B, T)
        Prompt and completion.
    completion_length : int
        C.
    temperature : float
    batch_size : int, optional
        Rows that go through the model at once; all by default.
    entropy : bool
        Whether to compute entropies.
    entropy_gradient : bool
        Whether they have a gradient.

    Returns
    -------
    log_probs : float32 tensor, shape (B, C)
        0 at masked tokens.
    entropies : float32 tensor, shape (B, C), or None
        0 at masked tokens.
    """
    chunk = batch_size or len(input_ids)
    log_probs, entropies = [], []
    for first in range(0, len(input_ids), chunk):
        ids = input_ids[first : first + chunk]
        mask = attention_mask[first : first + chunk]
        outputs = model(
            input_ids=ids,
            attention_mask=mask,
            logits_to_keep=completion_length + 1,
            use_cache=False,
        )
        # The last position predicts nothing.
        logits = outputs.logits[:, -completion_length - 1 : -1].float()
        if temperature != 1.0:
            logits = logits / temperature
        masked = mask[:, -completion_length:] == 0
        # Twice as fast, with its backward pass, as logsumexp and gather.
        all_log_probs = torch.log_softmax(logits, dim=-1)
        chosen = all_log_probs.gather(-1, ids[:, -completion_length:].unsqueeze(-1)).squeeze(-1)
        log_probs.append(chosen.masked_fill(masked, 0.0))
        if entropy:
            with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
                values = -(all_log_probs.exp() * all_log_probs).sum(-1)
            entropies.append(values.masked_fill(masked, 0.0))
    return torch.cat(log_probs), torch.cat(entropies) if entropy else None
