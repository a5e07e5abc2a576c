#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GSPO with REINFORCE++, one rollout a prompt, 300 steps.
# The paper: 13.0 hours on four GH200 GPUs (Table 3), which is 52.0 GPU hours.
# A checkpoint takes about 48 GB (weights and optimizer in float32), 6 of them 290 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen3-4b --objective gspo --baseline reinforce++
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen3-4b gspo-reinforce++
needs "$train" data.sh

training+=("${gspo[@]}" "${one_rollout[@]}")
training+=(
  # Baseline: REINFORCE++
  algorithm.adv_estimator=batch-mean                        # Appendix A: the reward mean within the current batch
  actor_rollout_ref.model.external_lib=basis_rl.verl        # this package's plug-in
  +algorithm.basis.normalize_advantages=none                # assumed: Section 5.2 changes the baseline alone; verl's default for others
  # Steps and checkpoints
  trainer.total_training_steps=300                          # Section 5.2: all baseline algorithms for 300 steps
)
source "$recipes/train.sh" "$@"
