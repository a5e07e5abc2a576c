"""How many rollouts are sampled at a time, found from the memory that is free."""

from __future__ import annotations

from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.rollouts.options import Values, whole

AUTO = "auto"
# `benchmarks/bench_engines.py --rows 8 32 64 128`: on a CPU more are slower again.
CPU_ROWS = 64
GPU_ROWS = 512
_MEMORY_SHARE = 0.6  # of what is free; the rest is for activations and copies of the cache
_LOGIT_COPIES = 6  # logits, probabilities, their sums, … of one row in float32


def batch_sizes() -> Values:
    """What a batch size may be: "auto" or a positive number."""
    is_number = whole(1).has
    return Values(f"a positive number or {AUTO!r}", lambda value: value == AUTO or is_number(value))


class BatchSize:
    """Rollouts that are sampled at a time.

    Parameters
    ----------
    network : transformers.PreTrainedModel
    batch_size : int or "auto"

    Raises
    ------
    ConfigError
        If the batch size is neither.
    """

    def __init__(self, network: Any, batch_size: int | str = AUTO) -> None:
        if not batch_sizes().has(batch_size):
            raise ConfigError(f"batch_size is {batch_size!r}: use {batch_sizes().wanted}")
        self._network = network
        self._most = None if isinstance(batch_size, str) else batch_size
        self._memory: int | None = None

    def rows(self, width: int) -> int:
        """Rollouts that fit when each has ``width`` tokens, prompt included; at least 1."""
        if self._most is None:
            self._find()
        most = self._most or 1
        if self._memory is None:
            return most
        config = self._network.config
        each = width * cache_bytes(config, self._network.dtype.itemsize) + row_bytes(config)
        return max(1, min(most, self._memory // each))

    def halve(self, rows: int) -> None:
        """Sample fewer from now on: as many as ``rows`` did not fit."""
        self._most = max(1, rows // 2)

    def _find(self) -> None:
        device = self._network.device
        self._most = GPU_ROWS if device.type == "cuda" else CPU_ROWS
        if device.type == "cuda":
            self._memory = int(_MEMORY_SHARE * free_memory(device))


def cache_bytes(config: Any, itemsize: int) -> int:
    """Bytes that one token takes in the key-value cache: keys and values of every layer."""
    config = config.get_text_config()
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * groups * size * itemsize)


def row_bytes(config: Any) -> int:
    """Bytes that choosing the next token of one rollout takes."""
    return int(4 * _LOGIT_COPIES * config.get_text_config().vocab_size)


def free_memory(device: Any) -> int:
    """Bytes of a GPU that are free or kept for reuse by this process."""
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free + kept)
