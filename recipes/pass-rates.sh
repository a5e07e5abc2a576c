#!/usr/bin/env bash
# Pass rates of the reference policy, once for all runs of a model:
# bash recipes/pass-rates.sh qwen3-4b
# More options of basis-rl cache build may follow: --n 8
# Appendix D: "a few hours on the same four-GPU node used for training"; no number.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh" "${1:-}"
needs "$train" data.sh

cache=(
  --model "$model"                                          # Section 4: the initial policy
  --data "$train"                                           # Appendix D: each training prompt
  --seed 0                                                  # assumed
)
basis-rl cache build "${cache[@]}" "${offline[@]}" "${rollouts[@]}" \
  --out "$pass_rates" "${@:2}"
