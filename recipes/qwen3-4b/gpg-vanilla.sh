#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GPG with vanilla, one rollout, one rollout a prompt, 300 steps.
# The paper: 18.6 hours on four GH200 GPUs (Table 3), which is 74.4 GPU hours.
# GPG's factor is not in the paper. verl's own gpg estimator multiplies advantages by rollouts /
# nonzero rewards (assumed with 8 rollouts); another estimator has no such factor (assumed with
# one).
# A checkpoint takes about 48 GB (weights and optimizer in float32), 6 of them 290 GB.
# More overrides of verl may follow: trainer.save_freq=10. The run as one script:
#
#   basis-rl verl command --model qwen3-4b --objective gpg --baseline vanilla
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen3-4b gpg-vanilla
needs "$train" data.sh

training+=("${gpg[@]}" "${one_rollout[@]}")
training+=(
  # Baseline: vanilla, one rollout
  algorithm.adv_estimator=zero                              # Section 5.2: its vanilla version, which uses a zero baseline
  actor_rollout_ref.model.external_lib=basis_rl.verl        # this package's plug-in
  +algorithm.basis.normalize_advantages=none                # assumed: Section 5.2 changes the baseline alone; verl's default for others
  # Steps and checkpoints
  trainer.total_training_steps=300                          # Section 5.2: all baseline algorithms for 300 steps
)
source "$recipes/train.sh" "$@"
