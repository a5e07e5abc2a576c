#!/usr/bin/env bash
# Qwen/Qwen2.5-Math-7B on DAPO-Math-17K: GRPO with the group mean, 8 rollouts a prompt, 300 steps.
# The paper gives no time for this run.
# A checkpoint takes about 91 GB (weights and optimizer in float32), 6 of them 548 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen2.5-math-7b --baseline grpo-8
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen2.5-math-7b grpo-8
needs "$train" data.sh

training+=("${grpo[@]}" "${eight_rollouts[@]}")
training+=(
  # Baseline: the group mean
  algorithm.adv_estimator=grpo                              # Section 5.2: the group mean is the baseline
  algorithm.norm_adv_by_std_in_grpo=True                    # assumed: verl's default, as in GRPO's paper
  # Steps and checkpoints
  trainer.total_training_steps=300                          # Section 5.2: all baseline algorithms for 300 steps
)
source "$recipes/train.sh" "$@"
