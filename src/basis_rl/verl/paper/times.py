"""Wall-clock hours of online training on Qwen3-4B, on four GH200 GPUs (Tables 1 and 3)."""

from __future__ import annotations

SOURCE = "Table 3"
GPUS = 4
# (objective, baseline, steps) -> hours
HOURS = {
    ("grpo", "grpo-8", 300): 15.5,
    ("grpo", "vanilla", 300): 20.7,
    ("grpo", "reinforce++", 300): 17.7,
    ("grpo", "basis-unb", 150): 8.3,
    ("grpo", "basis-unb", 300): 16.6,
    ("gpg", "grpo-8", 300): 14.0,
    ("gpg", "vanilla", 300): 18.6,
    ("gpg", "reinforce++", 300): 12.9,
    ("gpg", "basis-unb", 150): 6.4,
    ("gpg", "basis-unb", 300): 12.7,
    ("gspo", "grpo-8", 300): 14.4,
    ("gspo", "vanilla", 300): 13.0,
    ("gspo", "reinforce++", 300): 13.0,
    ("gspo", "basis-unb", 150): 7.2,
    ("gspo", "basis-unb", 300): 14.3,
}


def what_it_costs(model: str, objective: str, baseline: str, steps: int) -> str:
    """One sentence: the paper's hours for a run, or that it gives none."""
    hours = HOURS.get((objective, baseline, steps)) if model == "qwen3-4b" else None
    if hours is None:
        return "The paper gives no time for this run."
    return (
        f"The paper: {hours} hours on four GH200 GPUs ({SOURCE}), which is {hours * GPUS:.1f} GPU "
        "hours."
    )


def what_the_cache_costs() -> str:
    """One sentence: the paper's time for the offline rollouts."""
    return 'Appendix D: "a few hours on the same four-GPU node used for training"; no number.'
