"""How a run is spread over GPUs. Nothing of it is the paper's, which says "four GH200 GPUs"."""

from __future__ import annotations

from dataclasses import dataclass

from basis_rl.errors import ConfigError, nearest
from basis_rl.verl.paper.models import PaperModel
from basis_rl.verl.paper.setting import Setting

# GB of memory.
GPUS = {
    "a100-40": 40,
    "a100-80": 80,
    "a6000": 48,
    "b200": 180,
    "gh200": 96,
    "h100": 80,
    "h200": 141,
    "l40s": 48,
    "rtx-4090": 24,
}
PAPER_GPU = "gh200"
_GB = 1e9
_USABLE = 0.9  # the rest is for CUDA, NCCL and fragments
_STATE_BYTES = 16  # of a parameter: float32 weight, gradient and Adam's two moments
_RESIDENT_SHARE = 0.4  # of the memory: states larger than that are moved out for the rollouts
_MOST_SEQUENCES = 4  # full-length sequences in a micro-batch: more is hardly faster
_MOST_FOR_ROLLOUTS = 0.8
_ACTOR = "actor_rollout_ref.actor."
_ROLLOUT = "actor_rollout_ref.rollout."


@dataclass(frozen=True)
class Sizing:
    """How a model is spread.

    Attributes
    ----------
    tensor_parallel : int
        GPUs that share a model of the rollout engine.
    rollout_share : float
        Share of a GPU's memory for the rollout engine.
    max_tokens : int
        Tokens of a GPU's micro-batch.
    offload : {"none", "between phases", "always"}
        When weights and optimizer are in the host's memory.
    """

    tensor_parallel: int
    rollout_share: float
    max_tokens: int
    offload: str


def memory_of(name: str) -> int:
    """GB of a GPU by its name.

    Raises
    ------
    ConfigError
        If the name is unknown.
    """
    if name not in GPUS:
        raise ConfigError(f"--gpu {name} is not known{nearest(name, list(GPUS))}; or --gpu-memory")
    return GPUS[name]


def token_bytes(model: PaperModel) -> int:
    """Memory of one token of a micro-batch.

    Logits in bfloat16, a float32 copy and its gradient and 2 bytes to spare (12 of a vocabulary
    entry), a checkpoint of every layer, and one layer's activations (about 20 vectors).
    """
    return 12 * model.vocabulary + 2 * model.hidden * (model.layers + 20)


def spread(model: PaperModel, *, gpus: int, nodes: int, memory: float) -> Sizing:
    """Choose how a model is spread over GPUs.

    States (16 bytes a parameter) are shared by all GPUs. They stay where they are up to 40% of the
    memory; larger ones go to the host while rollouts are sampled; if even so no micro-batch of one
    sequence fits, they stay in the host (FSDP2's offload policy). A micro-batch has up to four
    sequences of full length. The rollout engine gets what the states leave, 80% at most, and is
    split over more GPUs where the weights take more than half of that.

    Parameters
    ----------
    gpus, nodes : int
        GPUs of a machine, and machines.
    memory : float
        GB of a GPU.

    Raises
    ------
    ConfigError
        If one sequence does not fit, or a mini-batch of 256 is not shared evenly.
    """
    total = gpus * nodes
    if 256 % total:
        raise ConfigError(
            f"{gpus} GPUs on {nodes} machines do not share a mini-batch of 256 rollouts evenly: "
            "use 1, 2, 4, 8, 16, … in all"
        )
    usable = _USABLE * memory * _GB
    states = _STATE_BYTES * model.parameters / total
    offload = "none" if states <= _RESIDENT_SHARE * memory * _GB else "between phases"
    tokens = _tokens(usable - states, model)
    if tokens == 0:
        offload, tokens = "always", _tokens(usable, model)
    if tokens == 0:
        need = model.sequence * token_bytes(model) / _USABLE / _GB
        raise ConfigError(
            f"{memory:g} GB do not hold a sequence of {model.sequence} tokens of {model.hub}: "
            f"use GPUs of {need:.0f} GB or more"
        )
    resident = states if offload == "none" else 0.0
    # In steps of 0.05.
    share = min(_MOST_FOR_ROLLOUTS, int((usable - resident) / memory / _GB * 20) / 20)
    return Sizing(_tensor_parallel(model, gpus, share * memory * _GB), share, tokens, offload)


def _tokens(room: float, model: PaperModel) -> int:
    sequences = int(max(room, 0.0) / token_bytes(model)) // model.sequence
    return min(sequences, _MOST_SEQUENCES) * model.sequence


def _tensor_parallel(model: PaperModel, gpus: int, room: float) -> int:
    size = 1
    while 2 * model.parameters / size > room / 2 and gpus % (2 * size) == 0:
        size *= 2
    if size > model.key_heads:
        raise ConfigError(f"{model.hub} cannot be split over more than {model.key_heads} GPUs")
    return size


def sizing_settings(sizing: Sizing, *, gpus: int, nodes: int) -> tuple[Setting, ...]:
    """Overrides of verl for a way to spread a model."""
    why = "assumed: sized for the GPUs"
    settings = [
        Setting("trainer.n_gpus_per_node", gpus, "--gpus; Appendix D: four GPUs"),
        Setting("trainer.nnodes", nodes, "--nodes; Appendix D: one node"),
        Setting(f"{_ROLLOUT}name", "vllm", "assumed: verl has sglang too; the paper does not say"),
        Setting(f"{_ROLLOUT}tensor_model_parallel_size", sizing.tensor_parallel, why),
        Setting(f"{_ROLLOUT}gpu_memory_utilization", sizing.rollout_share, why),
        Setting(
            f"{_ACTOR}use_dynamic_bsz", True, "assumed: micro-batches by tokens, not by rollouts"
        ),
        Setting(f"{_ACTOR}ppo_max_token_len_per_gpu", sizing.max_tokens, why),
        Setting(
            "actor_rollout_ref.model.enable_gradient_checkpointing", True, "assumed: verl's default"
        ),
        Setting("actor_rollout_ref.model.use_remove_padding", True, "assumed: verl's default"),
    ]
    return (*settings, *_offload_settings(sizing.offload))


def _offload_settings(offload: str) -> tuple[Setting, ...]:
    if offload == "always":
        why = "assumed: states do not fit beside a micro-batch"
        return (
            Setting(f"{_ACTOR}strategy", "fsdp2", why),
            Setting(f"{_ACTOR}fsdp_config.offload_policy", True, why),
        )
    moved = offload == "between phases"
    why = "assumed: states leave room for rollouts" if not moved else "assumed: states do not"
    return (
        Setting(f"{_ACTOR}strategy", "fsdp", "assumed: verl's default"),
        Setting(f"{_ACTOR}fsdp_config.param_offload", moved, why),
        Setting(f"{_ACTOR}fsdp_config.optimizer_offload", moved, why),
    )
