#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GSPO with the group mean, 8 rollouts a prompt, 300 steps.
# The paper: 14.4 hours on four GH200 GPUs (Table 3), which is 57.6 GPU hours.
# A checkpoint takes about 48 GB (weights and optimizer in float32), 6 of them 290 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen3-4b --objective gspo --baseline grpo-8
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen3-4b gspo-8
needs "$train" data.sh

training+=("${gspo[@]}" "${eight_rollouts[@]}")
training+=(
  # Baseline: the group mean
  algorithm.adv_estimator=grpo                              # Section 5.2: the group mean is the baseline
  algorithm.norm_adv_by_std_in_grpo=True                    # assumed: verl's default, as in GRPO's paper
  # Steps and checkpoints
  trainer.total_training_steps=300                          # Section 5.2: all baseline algorithms for 300 steps
)
source "$recipes/train.sh" "$@"
