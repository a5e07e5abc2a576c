"""The `basis-rl cache build` command whose pass rates fit a configuration."""

from __future__ import annotations

import json
import shlex

from basis_rl.train.config import RewardSection, TrainConfig

_DEFAULT_ROLLOUTS = 8


def is_sum(section: RewardSection) -> bool:
    """Whether the reward is not what one verifier says: several functions, or another weight."""
    return [item.weight for item in section.items()] != [1.0]


def cache_command(config: TrainConfig) -> str | None:
    """Shell command that builds the configuration's pass rates.

    Returns
    -------
    str or None
        None where one command cannot do it: several data sets, a sum of rewards, no pass rates.
    """
    data, table = config.data, config.table
    if table is None or not isinstance(data.train, str) or is_sum(config.reward):
        return None
    (reward,) = config.reward.items()
    options: dict[str, object] = {
        "--model": config.model.name,
        "--revision": config.model.revision,
        "--data": data.train,
        "--split": None if data.split == "train" else data.split,
        "--prompt-column": None if data.prompt_column == "prompt" else data.prompt_column,
        "--key-column": data.key_column,
        "--source-column": data.source_column,
        "--template": None if data.template is None else data.template.replace("\n", "\\n"),
        "--system": data.system,
        "--limit": data.limit,
        "--dtype": None if config.model.dtype == "auto" else config.model.dtype,
        "--verifier": reward.name,
        "--answer-column": None if reward.answer_column == "answer" else reward.answer_column,
        "--temperature": config.trl.get("temperature"),
        "--top-p": config.trl.get("top_p"),
        "--top-k": config.trl.get("top_k"),
        "--max-tokens": config.trl.get("max_completion_length", 256),
        "--n": _DEFAULT_ROLLOUTS,
        "--out": table.path,
    }
    words = [w for name, value in options.items() if value is not None for w in (name, str(value))]
    for column, wanted in data.where.items():
        words += ["--where", f"{column}={json.dumps(wanted, ensure_ascii=False)}"]
    if data.chat is not None:
        words.append("--chat" if data.chat else "--no-chat")
    return shlex.join(["basis-rl", "cache", "build", *words])
