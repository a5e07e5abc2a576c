#!/usr/bin/env bash
# Section 5.1: Qwen/Qwen2.5-Math-7B trained with GRPO on MATH Level 3-5; value estimates at an
# early, a middle and a late checkpoint against 256 rollouts of each prompt.
# Beside each setting stands the place of the paper (arXiv 2605.27293) that says it; "assumed" is
# what the paper does not say.
# Sized for 4 GPUs (gh200, 96 GB).
# The paper gives no time for Section 5.1.
#
#   basis-rl verl command --study section-5.1
(
set -euo pipefail

model="${MODEL:-Qwen/Qwen2.5-Math-7B}"
folder="${FOLDER:-$PWD/runs/section-5.1}"
train="${TRAIN:-$folder/train.parquet}"
pass_rates="${PASS_RATES:-$folder/pass-rates.parquet}"
run="$folder/grpo-8"

common=(
  # Model and data
  "actor_rollout_ref.model.path='$model'"                   # Section 5.1
  "data.train_files='$train'"                               # written by basis-rl verl prepare
  "data.val_files='$train'"                                 # verl wants a file here; not used
  data.train_batch_size=64                                  # assumed: not said of Section 5.1; Section 5.2, Appendix D: 512 rollouts a step, 8 rollouts a prompt
  data.max_prompt_length=1024                               # assumed: not said of Section 5.1; Appendix D
  data.max_response_length=2048                             # assumed: not said of Section 5.1; Appendix D
  data.filter_overlong_prompts=True                         # assumed: longer prompts are left out
  data.truncation=error                                     # assumed: verl's default
  data.seed=42                                              # assumed: all baselines see the prompts in one order
  # Rewards: the verifier that the pass rates are made with
  reward.custom_reward_function.path=pkg://basis_rl.verifiers.verl_reward  # assumed: the paper does not name its verifier
  reward.custom_reward_function.name=math_score             # assumed: math-verify, 0 or 1
  # Sampling
  actor_rollout_ref.rollout.temperature=1.0                 # assumed: not said of Section 5.1; Appendix D
  actor_rollout_ref.rollout.top_p=1.0                       # assumed: not said of Section 5.1; Appendix D
  actor_rollout_ref.rollout.top_k=-1                        # assumed: not said of Section 5.1; Appendix D
  # Size (rules: recipes/README.md)
  trainer.n_gpus_per_node=4                                 # assumed: not said of Section 5.1; --gpus; Appendix D: four GPUs
  trainer.nnodes=1                                          # assumed: not said of Section 5.1; --nodes; Appendix D: one node
  actor_rollout_ref.rollout.name=vllm                       # assumed: verl has sglang too; the paper does not say
  actor_rollout_ref.rollout.tensor_model_parallel_size=1    # assumed: sized for the GPUs
  actor_rollout_ref.rollout.gpu_memory_utilization=0.55     # assumed: sized for the GPUs
  actor_rollout_ref.actor.use_dynamic_bsz=True              # assumed: micro-batches by tokens, not by rollouts
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=12288   # assumed: sized for the GPUs
  actor_rollout_ref.model.enable_gradient_checkpointing=True  # assumed: verl's default
  actor_rollout_ref.model.use_remove_padding=True           # assumed: verl's default
  actor_rollout_ref.actor.strategy=fsdp                     # assumed: verl's default
  actor_rollout_ref.actor.fsdp_config.param_offload=False   # assumed: states leave room for rollouts
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=False  # assumed: states leave room for rollouts
  # Run
  critic.enable=False                                       # Abstract: critic-free
  trainer.project_name=basis-qwen2.5-math-7b                # assumed
  trainer.experiment_name=grpo-8                            # assumed
  "trainer.default_local_dir='$run'"                        # assumed
  trainer.logger='[console,file]'                           # assumed: add wandb if you have it
)
training=(
  # Baseline: the group mean
  actor_rollout_ref.rollout.n=8                             # assumed: not said of Section 5.1; Section 5.2: rollouts of a prompt
  algorithm.adv_estimator=grpo                              # Section 5.1: trained with GRPO
  algorithm.norm_adv_by_std_in_grpo=True                    # assumed: verl's default, as in GRPO's paper
  # Objective: GRPO
  actor_rollout_ref.actor.policy_loss.loss_mode=vanilla     # Section 5.1: trained with GRPO
  actor_rollout_ref.actor.loss_agg_mode=token-mean          # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_low=0.2                # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_high=0.2               # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_c=3.0                  # assumed: verl's default (dual clip)
  # Policy optimization
  actor_rollout_ref.actor.ppo_mini_batch_size=32            # assumed: not said of Section 5.1; Appendix D (in prompts): 2 inner updates a step
  actor_rollout_ref.actor.ppo_epochs=1                      # assumed: not said of Section 5.1; Appendix D: 2 inner updates, so once through the rollouts
  actor_rollout_ref.actor.optim.lr=1e-6                     # assumed: not said of Section 5.1; Appendix D
  actor_rollout_ref.actor.optim.lr_scheduler_type=constant  # assumed: verl's default
  actor_rollout_ref.actor.optim.lr_warmup_steps=-1          # assumed: verl's default: no warm-up
  actor_rollout_ref.actor.optim.weight_decay=0.01           # assumed: verl's default
  actor_rollout_ref.actor.optim.clip_grad=1.0               # assumed: verl's default
  actor_rollout_ref.actor.entropy_coeff=0                   # assumed: verl's default
  actor_rollout_ref.actor.use_kl_loss=False                 # assumed: not said of Section 5.1; Appendix D: no KL regularization
  algorithm.use_kl_in_reward=False                          # assumed: not said of Section 5.1; Appendix D: no KL regularization
  # Steps and checkpoints
  trainer.total_training_steps=100                          # assumed: up to the late checkpoint
  trainer.total_epochs=1000                                 # assumed: the steps decide
  trainer.save_freq=100                                     # assumed: at the last step of each part below
  trainer.test_freq=-1                                      # assumed: evaluated afterwards, from the checkpoints
  trainer.val_before_train=False                            # assumed: the same
  trainer.resume_mode=auto                                  # the same command goes on from the last checkpoint
)

# 1. Prompts in verl's form, with the answers
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

# 2. Pass rates of the reference policy
cache=(
  --model "$model"                                          # Section 4: the initial policy
  --data "$folder/recorded/validation.parquet"              # assumed: the prompts recorded below
  --n 64                                                    # Appendix A: n = 64 by default
  --temperature 1.0                                         # assumed: as online (Appendix D)
  --top-p 1.0                                               # assumed: as online (Appendix D)
  --top-k 0                                                 # assumed: as online (Appendix D); 0 here is verl's -1
  --max-tokens 2048                                         # assumed: as online (Appendix D)
  --verifier math                                           # Appendix D: the same verifier as online
  --engine ray                                              # assumed: sized for the GPUs
  --engine-option engine=vllm                               # assumed: sized for the GPUs
  --engine-option workers=4                                 # assumed: sized for the GPUs
  --engine-option 'engine_options={max_model_len: 3072}'    # assumed: sized for the GPUs
  --seed 0                                                  # assumed
)
basis-rl cache build "${cache[@]}" --out "$pass_rates"

# 3. Is the run set up rightly? A few seconds, without Ray
basis-rl verl check "${common[@]}" "${training[@]}" "$@"

# 4. Training with GRPO up to each checkpoint; the same script goes on from the last one
# Steps: Figure 2's files are called v_step10, v_step50 and v_step100; the text says early, middle
# and late.
# A checkpoint takes about 91 GB (weights and optimizer in float32), 3 of them 274 GB.
mkdir -p "$run"
for step in 10 50 100; do
  saved="$(cat "$run/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0)"
  test "$saved" -ge "$step" || \
  python -m verl.trainer.main_ppo "${common[@]}" "${training[@]}" \
    "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH='$run/metrics-$(date +%s).jsonl'" "$@" trainer.total_training_steps=$step
done

# 5. Rollouts under the checkpoints, and the figures
recording=(
  --data "$folder/recorded/validation.parquet"              # assumed: a fifth of the prompts
  --oracle 256                                              # Section 5.1, Appendix A
  --rollouts 8                                              # Appendix A: up to eight rewards a prompt
  --seed 1                                                  # assumed: not that of the pass rates
  --temperature 1.0                                         # assumed: as online (Appendix D)
  --top-p 1.0                                               # assumed: as online (Appendix D)
  --top-k 0                                                 # assumed: as online (Appendix D); 0 here is verl's -1
  --max-tokens 2048                                         # assumed: as online (Appendix D)
  --verifier math                                           # Appendix D: the same verifier as online
  --engine ray                                              # assumed: sized for the GPUs
  --engine-option engine=vllm                               # assumed: sized for the GPUs
  --engine-option workers=4                                 # assumed: sized for the GPUs
  --engine-option 'engine_options={max_model_len: 3072}'    # assumed: sized for the GPUs
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
  basis-rl lab record "$merged" "${recording[@]}" --step "$step" \
    --pass-rates "$pass_rates" --out "$run/$name.parquet"
done
basis-rl lab figures "$run/early.parquet" "$run/middle.parquet" "$run/late.parquet" \
  "${drawing[@]}" --pass-rates "$pass_rates" --out "$run/figures"
)
