#!/usr/bin/env bash
# Evaluation of a run's checkpoints, named by their steps:
# bash recipes/evaluate.sh qwen3-4b grpo-basis-unb 50 100 150
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh" "${1:-}" "${2:-}"
test $# -ge 3 || fail "give model, run and steps: bash recipes/evaluate.sh qwen3-4b grpo-basis-unb 50 100 150"
for name in aime24 aime25 amc23 hmmt25 math500 minerva olympiadbench; do
  needs "$folder/benchmarks/$name.parquet" data.sh
done
for step in "${@:3}"; do
  saved="$run/global_step_$step"
  test -d "$saved" || fail "$saved is missing: run $run_name.sh up to that step first"
done

# Figures 6 and 7 have steps 50 to 300 (every 50: assumed); Table 1 the last. Accuracy:
# val-core/<benchmark>/acc/mean@32 and mean@1, printed and in the files below. Every completion is
# kept beside them.
evaluation=(
  trainer.val_only=True                                     # no training
  trainer.val_before_train=True                             # verl validates here
  trainer.resume_mode=resume_path                           # of the checkpoint below
  algorithm.adv_estimator=grpo                              # not used: nothing is trained
  actor_rollout_ref.rollout.val_kwargs.top_p=1.0            # assumed: as in training
  actor_rollout_ref.rollout.val_kwargs.top_k=-1             # assumed: as in training
  data.train_batch_size=512                                 # not used: nothing is trained
)
sampled=(
  # Section 5.2: avg@32
  "data.val_files=['$folder/benchmarks/aime24.parquet','$folder/benchmarks/aime25.parquet','$folder/benchmarks/amc23.parquet','$folder/benchmarks/hmmt25.parquet']"  # AIME 2024, AIME 2025, AMC 2023, HMMT 2025
  actor_rollout_ref.rollout.val_kwargs.n=32                 # Section 5.2: avg@32 for AIME, AMC and HMMT
  actor_rollout_ref.rollout.val_kwargs.do_sample=True       # Section 5.2: sampled rollouts
  actor_rollout_ref.rollout.val_kwargs.temperature=1.0      # assumed: as in training
)
greedy=(
  # Section 5.2: one greedy rollout
  "data.val_files=['$folder/benchmarks/math500.parquet','$folder/benchmarks/minerva.parquet','$folder/benchmarks/olympiadbench.parquet']"  # MATH-500, Minerva Math, OlympiadBench
  actor_rollout_ref.rollout.val_kwargs.n=1                  # Section 5.2: a single greedy deterministic rollout
  actor_rollout_ref.rollout.val_kwargs.do_sample=False      # Section 5.2
  actor_rollout_ref.rollout.val_kwargs.temperature=0        # Section 5.2
)
for step in "${@:3}"; do
  for way in sampled greedy; do
    scores="$run/evaluation/step-$step-$way.jsonl"
    test ! -s "$scores" || continue
    mkdir -p "$run/evaluation"
    declare -n of_way="$way"
    python -m verl.trainer.main_ppo "${common[@]}" "${evaluation[@]}" "${of_way[@]}" \
      "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH='$scores'" \
      "trainer.resume_from_path='$run/global_step_$step'" \
      "trainer.validation_data_dir='$run/evaluation/$way'"
  done
done
