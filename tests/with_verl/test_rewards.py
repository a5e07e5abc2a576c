"""Rewards of this package's verifiers inside verl's stock trainer, from `basis-rl verl prepare`."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import hostile_rewards
import pytest
from assets import Assets
from click.testing import CliRunner
from jobs import run_job

from basis_rl import PassRates
from basis_rl.cli.verl_prepare import prepare
from basis_rl.passrates import Provenance
from basis_rl.passrates.keys import prompt_key
from basis_rl.prompts import load_prompts
from basis_rl.verifiers.verl_names import overrides

VERIFIER = "hostile_rewards:reward"
PROMPTS = 32


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared file of 32 prompts, two of each hostile kind."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = [
        {"question": f"{i}-{i - i % 16}=", "answer": str(i % 16), "level": 5 + i % 5}
        for i in range(PROMPTS)
    ]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    arguments = [str(folder / "rows.jsonl"), "--out", str(folder), "--verifier", VERIFIER]
    done = CliRunner().invoke(prepare, [*arguments, "--prompt-column", "question"])
    assert done.exit_code == 0, (done.output, done.exception)
    return folder / "train.parquet"


def test_verl_reads_the_file_and_computes_the_same_keys(data: Path) -> None:
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    cache = str(data.parent / "hub")
    dataset = RLHFDataset(
        [str(data)], None, OmegaConf.create({"cache_dir": cache, "filter_overlong_prompts": False})
    )
    prompts = load_prompts(str(data))
    assert len(dataset) == len(prompts) == PROMPTS
    for row, prompt in zip(dataset, prompts, strict=True):
        assert prompt_key(row["raw_prompt"]) == prompt.key == row["prompt_id"]
        assert row["extra_info"]["prompt_id"] == prompt.key


def test_hostile_answers_in_a_job(assets: Assets, data: Path, tmp_path: Path) -> None:
    prompts = load_prompts(str(data))
    made_by = Provenance(
        model=str(assets.model), temperature=1.0, verifier=hostile_rewards.reward.name
    )
    keys = [prompt.key for prompt in prompts]
    table = PassRates.from_rewards(keys, [[1.0, 0.5]] * len(keys), provenance=made_by)
    table.save(tmp_path / "table.parquet")
    job = run_job(
        tmp_path / "job",
        [
            *overrides(VERIFIER),
            "algorithm.adv_estimator=basis",
            f"+algorithm.basis.pass_rates={tmp_path / 'table.parquet'}",
            "+algorithm.basis.max_unverified=0.2",
            "actor_rollout_ref.model.external_lib=basis_rl.verl",
            f"data.train_batch_size={PROMPTS}",
            "trainer.total_training_steps=2",
        ],
        assets=dataclasses.replace(assets, train=data),
        timeout=240,
    ).check()
    by_text = {prompt.prompt[0]["content"]: prompt.columns for prompt in prompts}
    assert len(job.rollouts) == 2 * PROMPTS
    fates = []
    for row in job.rollouts:
        columns = next(c for text, c in by_text.items() if f"\n{text}" in row["input"])
        score = hostile_rewards.expected(row["output"], columns)
        assert row["score"] == pytest.approx(score, nan_ok=True), (row, columns)
        fates.append(math.isnan(score))
    assert sum(fates) == 4
    assert all(math.isfinite(metrics["actor/grad_norm"]) for metrics in job.metrics)
    # The answers that scored 0 for the verifier's failure can be seen in the log.
    assert job.lines("failed on")
