"""What jobs of these tests run: versions of verl, and its trainers."""

from __future__ import annotations

import sys
from pathlib import Path

INSTALLED = "0.9.1"

_V1 = "trainer.v1.trainer_mode"
_SAMPLER = "trainer.v1.sampler.custom_sampler.name=FastReplayBufferAsync"
_ROLLOUT = "actor_rollout_ref.rollout"

# Overrides of each trainer, by its name in the table of docs/verl.md.
MODES = {
    "sync": [],
    "colocate_async": [f"{_V1}=colocate_async", _SAMPLER],
    "separate_async": [
        f"{_V1}=separate_async",
        _SAMPLER,
        "trainer.v1.separate_async.parameter_sync_step=2",
        f"{_ROLLOUT}.nnodes=1",
        f"{_ROLLOUT}.n_gpus_per_node=1",
        f"{_ROLLOUT}.checkpoint_engine.backend=file",
        f"{_ROLLOUT}.checkpoint_engine.custom_backend_module=file_weights",
    ],
    "legacy": ["trainer.use_v1=False"],
}

# What the tests run to the end: version, trainer. The legacy trainer of 0.9.0 asks for flash_attn.
RUN = [(INSTALLED, mode) for mode in MODES] + [
    ("0.9.0", mode) for mode in MODES if mode != "legacy"
]
# What they show to be refused.
REFUSED = ["0.8.0", "0.7.1"]


def other_version(version: str) -> Path:
    """Folder with another version of verl, which `make test-verl` sets up."""
    return Path(sys.prefix, "versions", version)
