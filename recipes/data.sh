#!/usr/bin/env bash
# Prompts of a model's runs, and the benchmarks: bash recipes/data.sh qwen3-4b
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh" "${1:-}"

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
