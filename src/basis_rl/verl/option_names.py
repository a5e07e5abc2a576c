"""verl's words for the shared checks: overrides as its command line takes them."""

from __future__ import annotations

from basis_rl.adapters.option_names import OptionNames

VERL = OptionNames(
    trainer="verl",
    rollouts="actor_rollout_ref.rollout.n",
    key_column="+algorithm.basis.prompt_key_column",
    source_column="+algorithm.basis.prompt_source_column",
    prompt_column="name the one with the prompts, data.prompt_key=...",
    min_coverage="+algorithm.basis.min_coverage",
    max_zero_batches="+algorithm.basis.max_zero_batches",
    prior="+algorithm.basis.missing=prior",
    allow_mismatch="+algorithm.basis.allow_mismatch=[{}]",
    no_record="+algorithm.basis.record_rewards=false",
    checkpoint="a checkpoint of a run with the same algorithm.adv_estimator, or begin with its "
    "model (trainer.resume_mode=disable actor_rollout_ref.model.path=...)",
)
