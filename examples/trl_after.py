"""Reinforcement learning with TRL: python this_script.py MODEL PROMPTS.jsonl OUTPUT_DIR."""

import sys

from datasets import load_dataset
from basis_rl.trl import BasisConfig, BasisTrainer


def exact(completions, answer, **columns):
    """1 where the completion is the answer, else 0: the verdicts of the verifier "exact"."""
    return [float(text.strip() == right) for text, right in zip(completions, answer, strict=True)]


model, prompts, output_dir = sys.argv[1:4]
settings = {
    "per_device_train_batch_size": 64,
    "max_completion_length": 4,
    "max_steps": 20,
    "learning_rate": 5e-4,
    "use_cpu": True,
    "bf16": False,
}
data = load_dataset("json", data_files=prompts, split="train")
arguments = BasisConfig(output_dir, pass_rates="pass-rates.parquet", **settings)
trainer = BasisTrainer(model, exact, arguments, data)
trainer.train()
trainer.save_model(output_dir)
