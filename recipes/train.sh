# Last part of a run: check, and training, which goes on from the last checkpoint.
basis-rl verl check "${common[@]}" "${training[@]}" "$@"
mkdir -p "$run"
python -m verl.trainer.main_ppo "${common[@]}" "${training[@]}" \
  "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH='$run/metrics-$(date +%s).jsonl'" "$@"
