"""What the options of the vLLM engine may be."""

from __future__ import annotations

from collections.abc import Iterable

from basis_rl.errors import ConfigError
from basis_rl.rollouts.options import FIELDS, YES_NO, real, whole

VALUES = {
    "max_model_len": whole(1),
    "tensor_parallel_size": whole(1),
    "gpu_memory_utilization": real(above=0, most=1),
    "max_num_seqs": whole(1),
    "in_flight": whole(1),
    "seeds": YES_NO,
    "engine_args": FIELDS,
}
# Arguments of vLLM that say what is sampled; the provenance names it as the build set it.
_CONTROLLED = {
    *("model", "tokenizer", "revision", "tokenizer_revision", "dtype", "seed"),
    *("generation_config", "override_generation_config", "logits_processors"),
}


def check_engine_args(names: Iterable[str]) -> None:
    """Refuse arguments that are options already, or say what is sampled.

    Raises
    ------
    ConfigError
        Naming the argument.
    """
    for name in names:
        if name in VALUES:
            raise ConfigError(f"engine_args sets {name}: it is an option of the engine itself")
        if name in _CONTROLLED:
            raise ConfigError(
                f"engine_args sets {name}: leave it out, the model, the dtype, the seed and the "
                "sampling settings of the build say it"
            )
