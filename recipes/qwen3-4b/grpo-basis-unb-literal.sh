#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GRPO with BASIS-UNB, one rollout a prompt, 150 steps.
# The paper: 8.3 hours on four GH200 GPUs (Table 3), which is 33.2 GPU hours.
# Eq. 5 as printed: its mean is over the active set, which a small beta can shrink to a few hard
# prompts that all fail: the loss is 0 then, and nearly every baseline too. Preset paper takes the
# mean over the whole batch.
# A checkpoint takes about 48 GB (weights and optimizer in float32), 3 of them 145 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen3-4b --preset paper-literal
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen3-4b grpo-basis-unb-literal
needs "$train" data.sh
needs "$pass_rates" pass-rates.sh

training+=("${grpo[@]}" "${one_rollout[@]}")
training+=(
  # Baseline: BASIS-UNB
  algorithm.adv_estimator=basis                             # Section 4
  actor_rollout_ref.model.external_lib=basis_rl.verl        # this package's plug-in
  +algorithm.basis.preset=paper-literal                     # Eq. 5 as printed: its mean is taken over the active set
  "+algorithm.basis.pass_rates='$pass_rates'"               # Section 4: of the reference policy
  +algorithm.basis.variant=unb                              # Section 4, Eq. 2 and 3
  +algorithm.basis.epsilon=1e-6                             # Appendix D: the active set's threshold
  +algorithm.basis.normalize_advantages=none                # Algorithm 1, line 9: A = r - b, not divided
  # Steps and checkpoints
  trainer.total_training_steps=150                          # Section 5.2: BASIS is trained for only 150 steps
)
source "$recipes/train.sh" "$@"
