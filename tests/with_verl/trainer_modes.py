"""What jobs of these tests run: versions of verl, and its trainers."""

from __future__ import annotations

import sys
from pathlib import Path

INSTALLED = "0.9.1"

_V1 = "trainer.v1.trainer_mode"
_SAMPLER = "trainer.v1.sampler.custom_sampler.name=FastReplayBufferAsync"
_ROLLOUT = "actor_rollout_ref.rollout"
# Workers of their own for the rollout, which get the weights as files.
_FILES = [
    f"{_ROLLOUT}.checkpoint_engine.backend=file",
    f"{_ROLLOUT}.checkpoint_engine.custom_backend_module=file_weights",
]
_APART = [
    "actor_rollout_ref.hybrid_engine=False",
    "rollout.nnodes=1",
    "rollout.n_gpus_per_node=1",
    "ray_kwargs.ray_init.num_cpus=64",  # a number only, of which verl asks for many
    *_FILES,
]

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
        *_FILES,
    ],
    "legacy": ["trainer.use_v1=False"],
    "fully async": [
        *_APART,
        "data.train_batch_size=0",
        "data.gen_batch_size=1",
        "rollout.total_rollout_steps=24",
        "async_training.trigger_parameter_sync_step=2",
    ],
    "one step off": [
        *_APART,
        "hydra.searchpath=[pkg://verl.trainer.config]",
        "trainer.rollout_data_dir=null",  # verl 0.9.1 fails where it writes them
    ],
}
# Trainers with a program of their own.
_EXPERIMENTAL = "verl.experimental"
PROGRAMS = {
    "fully async": f"{_EXPERIMENTAL}.fully_async_policy.fully_async_main",
    "one step off": f"{_EXPERIMENTAL}.one_step_off_policy.main_ppo",
}

# What the tests run to the end: version, trainer. The others of 0.9.0 ask for flash_attn.
RUN = [(INSTALLED, mode) for mode in MODES] + [
    ("0.9.0", mode) for mode in MODES if mode != "legacy" and mode not in PROGRAMS
]
# What they show to be refused.
REFUSED = ["0.8.0", "0.7.1"]


def other_version(version: str) -> Path:
    """Folder with another version of verl, which `make test-verl` sets up."""
    return Path(sys.prefix, "versions", version)
