"""What the options of the engine for servers may be."""

from __future__ import annotations

from collections.abc import Iterable

from basis_rl.errors import ConfigError
from basis_rl.rollouts.options import FIELDS, TEXT, URL, Values, real, whole

VALUES = {
    "base_url": URL,
    "api_key": TEXT,
    "concurrency": whole(1),
    "timeout_s": real(above=0),
    "max_retries": whole(0),
    "completions_per_request": Values("auto or a whole number, at least 1", whole(1).has),
    "extra_body": FIELDS,
}
# What a request says of itself or of sampling; the provenance names it as the build set it.
_CONTROLLED = {
    *("model", "prompt", "messages", "suffix", "echo", "n", "best_of", "stream", "stream_options"),
    *("max_tokens", "max_completion_tokens", "n_predict", "min_tokens", "stop", "stop_token_ids"),
    *("temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "seed", "ignore_eos"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty"),
    *("logit_bias", "samplers", "use_beam_search", "return_token_ids"),
    *("add_generation_prompt", "continue_final_message"),
}


def check_extra_body(names: Iterable[str]) -> None:
    """Refuse fields that the engine sets itself, or that change what is sampled.

    Raises
    ------
    ConfigError
        Naming them.
    """
    taken = sorted(_CONTROLLED.intersection(names))
    if taken:
        raise ConfigError(
            f"extra_body sets {', '.join(taken)}: leave it out, the model, the prompts, n, the "
            "seed and the sampling settings of the build say it"
        )
