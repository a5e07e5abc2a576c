"""Score gradients of completions: the gradient of each one's log-probability, as a sketch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from basis_rl.errors import ConfigError
from basis_rl.lab.gradient.projection import GradientSketch
from basis_rl.rollouts.engine import Completion
from basis_rl.rollouts.settings import SamplingSettings
from basis_rl.rollouts.stop_texts import StopTexts
from basis_rl.rollouts.transformers_engine import TransformersEngine

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CompletionTokens(Completion):
    """A completion with the ids of its tokens, an end token and a stop text included."""

    ids: tuple[int, ...] = ()


class PolicyEngine(TransformersEngine):
    """A `TransformersEngine` whose completions know their tokens.

    Text that is tokenised again may be another sequence of tokens than the one that was sampled.
    """

    name: ClassVar[str] = "transformers"

    def _completion(self, stops: StopTexts, tokens: list[int], is_cut: bool) -> CompletionTokens:
        return CompletionTokens(stops.text(tokens), len(tokens), is_cut, tuple(tokens))

    def prompt_ids(self, prompt: Any, settings: SamplingSettings) -> list[int]:
        """Token ids of a prompt, as it is sampled."""
        return self._tokens.encode([prompt], settings.max_tokens)[0]


def check_sampling(settings: SamplingSettings) -> None:
    """Refuse sampling whose probabilities are not the model's softmax.

    Raises
    ------
    ConfigError
        If the temperature is 0, or tokens are cut off by top-p or top-k.
    """
    if settings.temperature == 0:
        raise ConfigError("temperature is 0: a greedy policy has no policy gradient; use 1")
    for name, value, off in (("top_p", settings.top_p, 1), ("top_k", settings.top_k, 0)):
        if value != off:
            raise ConfigError(
                f"{name} is {value}: the gradient is that of the whole softmax; use {off}"
            )


class ScoreGradients:
    r"""Sketches of ``grad log pi(completion | prompt)``, summed over the completion's tokens.

    The gradient of each parameter is sketched as soon as the backward pass has it, then freed:
    beside the weights, there is never more than one parameter's gradient. Use it as a context
    manager.

    Parameters
    ----------
    network : torch.nn.Module
        Causal language model.
    width : int
        Numbers of a sketch.
    seed : int
        Of the sketch.
    temperature : float
        The policy is the softmax of the logits over it.
    parameters : str, optional
        Regular expression; only parameters with a name that it is found in, as "lora_" or
        "layers\.2[0-9]\.". All that can be trained by default.

    Raises
    ------
    ConfigError
        If no parameter has such a name, or it is no regular expression.
    """

    def __init__(
        self,
        network: Any,
        *,
        width: int = 4096,
        seed: int = 0,
        temperature: float = 1.0,
        parameters: str | None = None,
    ) -> None:
        self._network, self._temperature = network, temperature
        self._before = [(p, p.requires_grad) for p in network.parameters()]
        self._chosen = _chosen(network, parameters)
        sizes = {name: parameter.numel() for name, parameter in self._chosen.items()}
        self._sketch = GradientSketch(sizes, width=width, seed=seed, device=network.device)
        self._hooks: list[Any] = []
        base = network.get_base_model() if hasattr(network, "get_base_model") else network
        self._can_keep_few = "logits_to_keep" in inspect.signature(base.forward).parameters

    @property
    def parameters(self) -> int:
        """Numbers that the gradient has."""
        return sum(parameter.numel() for parameter in self._chosen.values())

    def __enter__(self) -> ScoreGradients:
        chosen = set(map(id, self._chosen.values()))
        for parameter, _ in self._before:
            parameter.requires_grad_(id(parameter) in chosen)
        for name, parameter in self._chosen.items():
            hook = partial(self._take_in, name)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for parameter, required in self._before:
            parameter.requires_grad_(required)

    def __call__(
        self, prompt: Sequence[int], completion: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], float]:
        """Sketch of one completion's score gradient, shape (d,), and its exact squared norm.

        Parameters
        ----------
        prompt, completion : sequence of int
            Token ids.
        """
        import torch

        with torch.enable_grad():
            self._log_probability(prompt, completion).backward()  # type: ignore[no-untyped-call]
        return self._sketch.take()

    def _log_probability(self, prompt: Sequence[int], completion: Sequence[int]) -> Tensor:
        import torch

        device = self._network.device
        ids = torch.tensor([[*prompt, *completion]], device=device)
        kept = {"logits_to_keep": len(completion) + 1} if self._can_keep_few else {}
        logits = self._network(input_ids=ids, use_cache=False, **kept).logits
        # The last position predicts nothing.
        logits = logits[0, -len(completion) - 1 : -1].float() / self._temperature
        chosen = torch.log_softmax(logits, -1).gather(-1, ids[0, len(prompt) :, None])
        return chosen.sum()

    def _take_in(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._sketch.add(name, parameter.grad)
        parameter.grad = None


def _chosen(network: Any, pattern: str | None) -> dict[str, Any]:
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    try:
        found = {name: p for name, p in named.items() if re.search(pattern or "", name)}
    except re.error as error:
        raise ConfigError(f"parameters {pattern!r} is no regular expression ({error})") from None
    if not found:
        raise ConfigError(
            f"no parameter that can be trained has {pattern!r} in its name: the names are as "
            f"{', '.join(list(named)[:2])}"
        )
    return found
