#!/usr/bin/env bash
# Section 5.1: Qwen/Qwen2.5-Math-7B trained with GRPO on MATH Level 3-5; value estimates at an
# early, a middle and a late checkpoint against 256 rollouts of each prompt.
# The paper gives no time. Settings that are not here are those of Section 5.2 (../settings.sh),
# which is assumed. The run as one script:
#
#   basis-rl verl command --study section-5.1
set -euo pipefail
FOLDER="${FOLDER:-$PWD/runs/section-5.1}"
source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh" qwen2.5-math-7b grpo-8

training+=("${grpo[@]}" "${eight_rollouts[@]}")
training+=(
  # Baseline: the group mean
  algorithm.adv_estimator=grpo                              # Section 5.1: trained with GRPO
  algorithm.norm_adv_by_std_in_grpo=True                    # assumed: verl's default, as in GRPO's paper
  # Steps and checkpoints
  trainer.total_training_steps=100                          # assumed: up to the late checkpoint
  trainer.save_freq=100                                     # assumed: at the last step of each part below
)

prompts=(
  # MATH, Level 3-5 (Section 5.1)
  DigitalLearningGmbH/MATH-lighteval                        # Section 5.1 (file and split assumed)
  --where 'level=[Level 3, Level 4, Level 5]'               # Section 5.1
  --template '{problem} Please reason step by step, and put your final answer within \boxed{}.'  # assumed: Qwen2.5-Math's own instruction
  --answer-column solution                                  # that file's column; the answer is in \boxed{}
)
test -f "$train" || basis-rl verl prepare "${prompts[@]}" --verifier math \
  --out "$(dirname "$train")" --name "$(basename "$train" .parquet)"
# Values are measured on a random fifth of the training prompts (assumed; the paper has 10 batches
# of 64 and 500 batches, and does not say out of how many).
test -f "$folder/recorded/validation.parquet" || basis-rl verl prepare "$train" --verifier math \
  --answer-column reward_model.ground_truth --validation-fraction 0.2 \
  --out "$folder/recorded"

cache=(
  --model "$model"                                          # Section 4: the initial policy
  --data "$folder/recorded/validation.parquet"              # assumed: the prompts recorded below
  --n 64                                                    # Appendix A: n = 64 by default
  --seed 0                                                  # assumed
)
basis-rl cache build "${cache[@]}" "${rollouts[@]}" --out "$pass_rates"

# Steps: Figure 2's files are called v_step10, v_step50 and v_step100; the text says early, middle
# and late.
# A checkpoint takes about 91 GB (weights and optimizer in float32), 3 of them 274 GB.
for step in 10 50 100; do
  saved="$(cat "$run/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0)"
  test "$saved" -ge "$step" || \
  source "$recipes/train.sh" "$@" trainer.total_training_steps=$step
done

recording=(
  --data "$folder/recorded/validation.parquet"              # assumed: a fifth of the prompts
  --oracle 256                                              # Section 5.1, Appendix A
  --rollouts 8                                              # Appendix A: up to eight rewards a prompt
  --seed 1                                                  # assumed: not that of the pass rates
)
drawing=(
  --batch-size 64                                           # Appendix A
  --repeats 10                                              # Appendix A; the default, 100, leaves less to chance
  --batches 500                                             # Appendix A
)
for checkpoint in early:10 middle:50 late:100; do
  name="${checkpoint%:*}" step="${checkpoint#*:}" merged="$run/merged/$name"
  test -f "$merged/config.json" || python -m verl.model_merger merge --backend fsdp \
    --local_dir "$run/global_step_$step/actor" --target_dir "$merged"
  basis-rl lab record "$merged" "${recording[@]}" "${rollouts[@]}" --step "$step" \
    --pass-rates "$pass_rates" --out "$run/$name.parquet"
done
basis-rl lab figures "$run/early.parquet" "$run/middle.parquet" "$run/late.parquet" \
  "${drawing[@]}" --pass-rates "$pass_rates" --out "$run/figures"
