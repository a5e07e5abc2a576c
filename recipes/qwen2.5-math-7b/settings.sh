# Settings that all runs of Qwen/Qwen2.5-Math-7B share; ../settings.sh has the others.
model="${MODEL:-Qwen/Qwen2.5-Math-7B}"

common+=(
  # Model and data
  data.max_prompt_length=1024                               # Appendix D
  data.max_response_length=2048                             # Appendix D
  # Sampling
  actor_rollout_ref.rollout.top_p=1.0                       # Appendix D
  actor_rollout_ref.rollout.top_k=-1                        # Appendix D
  # Size (rules: recipes/README.md)
  actor_rollout_ref.rollout.gpu_memory_utilization=0.55     # assumed: sized for the GPUs
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=12288   # assumed: sized for the GPUs
  # Run
  trainer.project_name=basis-qwen2.5-math-7b                # assumed
)
rollouts+=(
  --max-tokens 2048                                         # assumed: as online (Appendix D)
  --engine-option 'engine_options={max_model_len: 4096}'    # assumed: room for prompts that verl leaves out, as too long
)
offline+=(
  # Rollouts behind a pass rate
  --n 32                                                    # Appendix D
)
