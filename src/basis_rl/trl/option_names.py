"""TRL's words for the shared checks."""

from __future__ import annotations

from basis_rl.adapters.option_names import OptionNames

TRL = OptionNames(
    trainer="TRL",
    rollouts="num_generations",
    key_column="prompt_key_column",
    source_column="prompt_source_column",
    prompt_column="rename the one with the prompts, dataset.rename_column(..., 'prompt')",
    min_coverage="min_coverage",
    max_zero_batches="max_zero_batches",
    prior="estimator_options={'missing': 'prior'}",
    allow_mismatch="allow_mismatch=['{}']",
    no_record="record_rewards=False",
    checkpoint="a checkpoint that BasisTrainer wrote with it, without save_only_model",
)
