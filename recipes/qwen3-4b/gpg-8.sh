#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GPG with the group mean, 8 rollouts a prompt, 300 steps.
# The paper: 14.0 hours on four GH200 GPUs (Table 3), which is 56.0 GPU hours.
# GPG's factor is not in the paper. verl's own gpg estimator multiplies advantages by rollouts /
# nonzero rewards (assumed with 8 rollouts); another estimator has no such factor (assumed with
# one).
# A checkpoint takes about 48 GB (weights and optimizer in float32), 6 of them 290 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen3-4b --objective gpg --baseline grpo-8
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen3-4b gpg-8
needs "$train" data.sh

training+=("${gpg[@]}" "${eight_rollouts[@]}")
training+=(
  # Baseline: the group mean
  algorithm.adv_estimator=gpg                               # Section 5.2: the group mean is the baseline; assumed: verl's own gpg, which multiplies by rollouts / nonzero rewards
  # Steps and checkpoints
  trainer.total_training_steps=300                          # Section 5.2: all baseline algorithms for 300 steps
)
source "$recipes/train.sh" "$@"
