#!/usr/bin/env bash
# Qwen/Qwen3-4B on DAPO-Math-17K: GRPO with REINFORCE++, one rollout a prompt, 300 steps.
# Beside each setting stands the place of the paper (arXiv 2605.27293) that says it; "assumed" is
# what the paper does not say.
# Sized for 4 GPUs (gh200, 96 GB).
# The paper: 17.7 hours on four GH200 GPUs (Table 3), which is 70.8 GPU hours.
# More overrides of verl for training may follow: bash FILE trainer.save_freq=10
#
#   basis-rl verl command --model qwen3-4b --baseline reinforce++
(
set -euo pipefail

model="${MODEL:-Qwen/Qwen3-4B}"
folder="${FOLDER:-$PWD/runs/qwen3-4b}"
train="${TRAIN:-$folder/train.parquet}"
run="$folder/grpo-reinforce++"

common=(
  # Model and data
  "actor_rollout_ref.model.path='$model'"                   # Section 5.2
  "data.train_files='$train'"                               # written by basis-rl verl prepare
  "data.val_files='$train'"                                 # verl wants a file here; not used
  data.train_batch_size=512                                 # Section 5.2, Appendix D: 512 rollouts a step, one rollout a prompt
  data.max_prompt_length=1024                               # assumed: Appendix D gives it for Qwen2.5-Math-7B alone
  data.max_response_length=4096                             # Appendix D
  data.apply_chat_template_kwargs='{}'                      # assumed: verl's default, so Qwen3 may think; the pass rates' prompts too
  data.filter_overlong_prompts=True                         # assumed: longer prompts are left out
  data.truncation=error                                     # assumed: verl's default
  data.seed=42                                              # assumed: all baselines see the prompts in one order
  # Rewards: the verifier that the pass rates are made with
  reward.custom_reward_function.path=pkg://basis_rl.verifiers.verl_reward  # assumed: the paper does not name its verifier
  reward.custom_reward_function.name=math_score             # assumed: math-verify, 0 or 1
  # Sampling
  actor_rollout_ref.rollout.temperature=1.0                 # Appendix D
  actor_rollout_ref.rollout.top_p=1.0                       # assumed: Appendix D gives it for Qwen2.5-Math-7B alone
  actor_rollout_ref.rollout.top_k=-1                        # assumed: Appendix D gives it for Qwen2.5-Math-7B alone
  # Size (rules: recipes/README.md)
  trainer.n_gpus_per_node=4                                 # --gpus; Appendix D: four GPUs
  trainer.nnodes=1                                          # --nodes; Appendix D: one node
  actor_rollout_ref.rollout.name=vllm                       # assumed: verl has sglang too; the paper does not say
  actor_rollout_ref.rollout.tensor_model_parallel_size=1    # assumed: sized for the GPUs
  actor_rollout_ref.rollout.gpu_memory_utilization=0.7      # assumed: sized for the GPUs
  actor_rollout_ref.actor.use_dynamic_bsz=True              # assumed: micro-batches by tokens, not by rollouts
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480   # assumed: sized for the GPUs
  actor_rollout_ref.model.enable_gradient_checkpointing=True  # assumed: verl's default
  actor_rollout_ref.model.use_remove_padding=True           # assumed: verl's default
  actor_rollout_ref.actor.strategy=fsdp                     # assumed: verl's default
  actor_rollout_ref.actor.fsdp_config.param_offload=False   # assumed: states leave room for rollouts
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=False  # assumed: states leave room for rollouts
  # Run
  critic.enable=False                                       # Abstract: critic-free
  trainer.project_name=basis-qwen3-4b                       # assumed
  trainer.experiment_name=grpo-reinforce++                  # assumed
  "trainer.default_local_dir='$run'"                        # assumed
  trainer.logger='[console,file]'                           # assumed: add wandb if you have it
)
training=(
  # Baseline: REINFORCE++
  actor_rollout_ref.rollout.n=1                             # Section 5.2: rollouts of a prompt
  algorithm.adv_estimator=batch-mean                        # Appendix A: the reward mean within the current batch
  actor_rollout_ref.model.external_lib=basis_rl.verl        # this package's plug-in
  +algorithm.basis.normalize_advantages=none                # assumed: Section 5.2 changes the baseline alone; verl's default for others
  # Objective: GRPO
  actor_rollout_ref.actor.policy_loss.loss_mode=vanilla     # Section 5.2 names the objective
  actor_rollout_ref.actor.loss_agg_mode=token-mean          # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_low=0.2                # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_high=0.2               # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_c=3.0                  # assumed: verl's default (dual clip)
  # Policy optimization
  actor_rollout_ref.actor.ppo_mini_batch_size=256           # Appendix D (in prompts): 2 inner updates a step
  actor_rollout_ref.actor.ppo_epochs=1                      # Appendix D: 2 inner updates, so once through the rollouts
  actor_rollout_ref.actor.optim.lr=1e-6                     # Appendix D
  actor_rollout_ref.actor.optim.lr_scheduler_type=constant  # assumed: verl's default
  actor_rollout_ref.actor.optim.lr_warmup_steps=-1          # assumed: verl's default: no warm-up
  actor_rollout_ref.actor.optim.weight_decay=0.01           # assumed: verl's default
  actor_rollout_ref.actor.optim.clip_grad=1.0               # assumed: verl's default
  actor_rollout_ref.actor.entropy_coeff=0                   # assumed: verl's default
  actor_rollout_ref.actor.use_kl_loss=False                 # Appendix D: no KL regularization
  algorithm.use_kl_in_reward=False                          # Appendix D: no KL regularization
  # Steps and checkpoints
  trainer.total_training_steps=300                          # Section 5.2: all baseline algorithms for 300 steps
  trainer.total_epochs=1000                                 # assumed: the steps decide
  trainer.save_freq=50                                      # assumed: a checkpoint for each evaluation (Figures 6 and 7: steps 50 to 300)
  trainer.test_freq=-1                                      # assumed: evaluated afterwards, from the checkpoints
  trainer.val_before_train=False                            # assumed: the same
  trainer.resume_mode=auto                                  # the same command goes on from the last checkpoint
)

# 1. Prompts in verl's form, with the answers
prompts=(
  # DAPO-Math-17K, 17,398 prompts (Section 5.2, Appendix D)
  BytedTsinghua-SIA/DAPO-Math-17k                           # Section 5.2 (file assumed: 17,398 prompts, each about a hundred times)
  --answer-column reward_model.ground_truth                 # that file's column
)
test -f "$train" || basis-rl verl prepare "${prompts[@]}" --verifier math \
  --out "$(dirname "$train")" --name "$(basename "$train" .parquet)"
# Benchmarks: Section 5.2 names them. Assumed: hub ids, and that they are asked as DAPO-Math-17K's
# prompts are.
asked='Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{QUESTION}\n\nRemember to put your answer on its own line after "Answer:".'
benchmark() {  # name, hub id, split, columns of the question and of the answer
  test -f "$folder/benchmarks/$1.parquet" || basis-rl verl prepare "$2" --split "$3" \
    --template "${asked/QUESTION/$4}" --answer-column "$5" --data-source "$1" \
    --verifier math --out "$folder/benchmarks" --name "$1"
}
benchmark aime24 HuggingFaceH4/aime_2024 train problem answer                   # AIME 2024, 30 problems
benchmark aime25 math-ai/aime25 test problem answer                             # AIME 2025, 30 problems
benchmark amc23 math-ai/amc23 test question answer                              # AMC 2023, 40 problems
benchmark hmmt25 MathArena/hmmt_feb_2025 train problem answer                   # HMMT 2025, 30 problems
benchmark math500 HuggingFaceH4/MATH-500 test problem answer                    # MATH-500, 500 problems
benchmark minerva math-ai/minervamath test question answer                      # Minerva Math, 272 problems
benchmark olympiadbench math-ai/olympiadbench test question final_answer.0      # OlympiadBench, 674 problems

# 2. Is the run set up rightly? A few seconds, without Ray
basis-rl verl check "${common[@]}" "${training[@]}" "$@"

# 3. Training; the same script goes on from the last checkpoint
# A checkpoint takes about 48 GB (weights and optimizer in float32), 6 of them 290 GB.
mkdir -p "$run"
python -m verl.trainer.main_ppo "${common[@]}" "${training[@]}" \
  "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH='$run/metrics-$(date +%s).jsonl'" "$@"

# 4. Evaluation of the checkpoints
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
for step in 50 100 150 200 250 300; do
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
)
