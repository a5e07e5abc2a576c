# Settings that all runs of Qwen/Qwen3-4B share; ../settings.sh has the others.
model="${MODEL:-Qwen/Qwen3-4B}"

common+=(
  # Model and data
  data.max_prompt_length=1024                               # assumed: Appendix D gives it for Qwen2.5-Math-7B alone
  data.max_response_length=4096                             # Appendix D
  data.apply_chat_template_kwargs='{}'                      # assumed: verl's default, so Qwen3 may think; the pass rates' prompts too
  # Sampling
  actor_rollout_ref.rollout.top_p=1.0                       # assumed: Appendix D gives it for Qwen2.5-Math-7B alone
  actor_rollout_ref.rollout.top_k=-1                        # assumed: Appendix D gives it for Qwen2.5-Math-7B alone
  # Size (rules: recipes/README.md)
  actor_rollout_ref.rollout.gpu_memory_utilization=0.7      # assumed: sized for the GPUs
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480   # assumed: sized for the GPUs
  # Run
  trainer.project_name=basis-qwen3-4b                       # assumed
)
rollouts+=(
  --max-tokens 4096                                         # assumed: as online (Appendix D)
  --engine-option 'engine_options={max_model_len: 6144}'    # assumed: room for prompts that verl leaves out, as too long
)
offline+=(
  # Rollouts behind a pass rate
  --n 64                                                    # Appendix D
)
