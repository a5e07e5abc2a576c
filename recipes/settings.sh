# Settings that all runs share. The other files begin with it, and name the model and the run:
# source settings.sh qwen3-4b grpo-basis-unb
# Beside each setting stands the place of the paper (arXiv 2605.27293) that says it; "assumed" is
# what the paper does not say.
# Sized for 4 GPUs (gh200, 96 GB).
model_name="${1:-}" run_name="${2:-}"
recipes="$(dirname "$(realpath "${BASH_SOURCE[0]}")")"

fail() { echo "$*" >&2; exit 1; }
needs() {  # a file, and the script that writes it
  test -f "$1" || fail "$1 is missing: run recipes/$2 $model_name first"
}
test -n "$model_name" && test -f "$recipes/$model_name/settings.sh" || \
  fail "no settings of model '$model_name': name qwen3-4b or qwen2.5-math-7b"

# Words of verl (common, training) and of basis-rl cache build (rollouts, offline).
common=() training=() rollouts=() offline=()
source "$recipes/$model_name/settings.sh"
folder="${FOLDER:-$PWD/runs/$model_name}"
train="${TRAIN:-$folder/train.parquet}"
pass_rates="${PASS_RATES:-$folder/pass-rates.parquet}"
run="$folder/$run_name"

common+=(
  # Model and data
  "actor_rollout_ref.model.path='$model'"                   # Section 5.2
  "data.train_files='$train'"                               # written by basis-rl verl prepare
  "data.val_files='$train'"                                 # verl wants a file here; not used
  data.filter_overlong_prompts=True                         # assumed: longer prompts are left out
  data.truncation=error                                     # assumed: verl's default
  data.seed=42                                              # assumed: all baselines see the prompts in one order
  # Rewards: the verifier that the pass rates are made with
  reward.custom_reward_function.path=pkg://basis_rl.verifiers.verl_reward  # assumed: the paper does not name its verifier
  reward.custom_reward_function.name=math_score             # assumed: math-verify, 0 or 1
  # Sampling
  actor_rollout_ref.rollout.temperature=1.0                 # Appendix D
  # Size (rules: recipes/README.md)
  trainer.n_gpus_per_node=4                                 # --gpus; Appendix D: four GPUs
  trainer.nnodes=1                                          # --nodes; Appendix D: one node
  actor_rollout_ref.rollout.name=vllm                       # assumed: verl has sglang too; the paper does not say
  actor_rollout_ref.rollout.tensor_model_parallel_size=1    # assumed: sized for the GPUs
  actor_rollout_ref.actor.use_dynamic_bsz=True              # assumed: micro-batches by tokens, not by rollouts
  actor_rollout_ref.model.enable_gradient_checkpointing=True  # assumed: verl's default
  actor_rollout_ref.model.use_remove_padding=True           # assumed: verl's default
  actor_rollout_ref.actor.strategy=fsdp                     # assumed: verl's default
  actor_rollout_ref.actor.fsdp_config.param_offload=False   # assumed: states leave room for rollouts
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=False  # assumed: states leave room for rollouts
  # Run
  critic.enable=False                                       # Abstract: critic-free
  "trainer.experiment_name='$run_name'"                     # assumed
  "trainer.default_local_dir='$run'"                        # assumed
  trainer.logger='[console,file]'                           # assumed: add wandb if you have it
)
training+=(
  # Policy optimization
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
  trainer.total_epochs=1000                                 # assumed: the steps decide
  trainer.save_freq=50                                      # assumed: a checkpoint for each evaluation (Figures 6 and 7: steps 50 to 300)
  trainer.test_freq=-1                                      # assumed: evaluated afterwards, from the checkpoints
  trainer.val_before_train=False                            # assumed: the same
  trainer.resume_mode=auto                                  # the same command goes on from the last checkpoint
)
rollouts+=(
  --temperature 1.0                                         # assumed: as online (Appendix D)
  --top-p 1.0                                               # assumed: as online (Appendix D)
  --top-k 0                                                 # assumed: as online (Appendix D); 0 here is verl's -1
  --verifier math                                           # Appendix D: the same verifier as online
  --engine ray                                              # assumed: sized for the GPUs
  --engine-option engine=vllm                               # assumed: sized for the GPUs
  --engine-option workers=4                                 # assumed: sized for the GPUs
)
# Each run takes an objective, and a number of rollouts of a prompt.
grpo=(
  actor_rollout_ref.actor.policy_loss.loss_mode=vanilla     # Section 5.2 names the objective
  actor_rollout_ref.actor.loss_agg_mode=token-mean          # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_low=0.2                # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_high=0.2               # assumed: verl's default
  actor_rollout_ref.actor.clip_ratio_c=3.0                  # assumed: verl's default (dual clip)
)
gpg=(
  actor_rollout_ref.actor.policy_loss.loss_mode=gpg         # Section 5.2 names the objective
  actor_rollout_ref.actor.loss_agg_mode=token-mean          # assumed: verl's default
)
gspo=(
  actor_rollout_ref.actor.policy_loss.loss_mode=gspo        # Section 5.2 names the objective
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean  # assumed: the GSPO paper's loss (arXiv 2507.18071)
  actor_rollout_ref.actor.clip_ratio_low=0.0003             # assumed: the GSPO paper's ranges (arXiv 2507.18071)
  actor_rollout_ref.actor.clip_ratio_high=0.0004            # assumed: the GSPO paper's ranges (arXiv 2507.18071)
)
one_rollout=(
  data.train_batch_size=512                                 # Section 5.2, Appendix D: 512 rollouts a step, one rollout a prompt
  actor_rollout_ref.rollout.n=1                             # Section 5.2: rollouts of a prompt
  actor_rollout_ref.actor.ppo_mini_batch_size=256           # Appendix D (in prompts): 2 inner updates a step
)
eight_rollouts=(
  data.train_batch_size=64                                  # Section 5.2, Appendix D: 512 rollouts a step, 8 rollouts a prompt
  actor_rollout_ref.rollout.n=8                             # Section 5.2: rollouts of a prompt
  actor_rollout_ref.actor.ppo_mini_batch_size=32            # Appendix D (in prompts): 2 inner updates a step
)
