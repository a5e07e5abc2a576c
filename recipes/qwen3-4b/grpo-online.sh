#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GRPO with basis-online, one rollout a prompt, 150 steps.
# The paper gives no time for this run.
# A checkpoint takes about 48 GB (weights and optimizer in float32), 3 of them 145 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen3-4b --baseline online
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen3-4b grpo-online
needs "$train" data.sh
needs "$pass_rates" pass-rates.sh

training+=("${grpo[@]}" "${one_rollout[@]}")
training+=(
  # Baseline: basis-online
  algorithm.adv_estimator=basis-online                      # not in the paper: this package's estimator that follows prompts over steps
  actor_rollout_ref.model.external_lib=basis_rl.verl        # this package's plug-in
  "+algorithm.basis.pass_rates='$pass_rates'"               # Section 4: of the reference policy
  +algorithm.basis.normalize_advantages=none                # Algorithm 1, line 9: A = r - b, not divided
  # Steps and checkpoints
  trainer.total_training_steps=150                          # Section 5.2: BASIS is trained for only 150 steps
)
source "$recipes/train.sh" "$@"
