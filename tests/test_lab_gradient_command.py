"""`basis-rl lab gradient`: sampling a pool, going on after a stop, and what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from random_qwen3 import make_model, make_tokenizer, save_model

from basis_rl import PassRates, verifiers
from basis_rl.cli import main
from basis_rl.errors import ConfigError
from basis_rl.lab.gradient.advantages import offline_pass_rates
from basis_rl.lab.gradient.pool import PoolFolder, RolloutPool
from basis_rl.lab.gradient.sample import PoolSettings, choose_prompts, sample_pool
from basis_rl.lab.gradient.scores import PolicyEngine
from basis_rl.lab.record import RecordError
from basis_rl.prompts import Prompt
from basis_rl.rollouts import SamplingSettings

SETTINGS = PoolSettings(rollouts=4, offline=3, epochs=2, width=64)
SAMPLING = SamplingSettings(max_tokens=3)
# A text that the tiny model writes now and then.
REWARD = """
def small_letter(completion, **_):
    return float(any(c.islower() for c in completion))
"""


def prompts(count: int, answer: str = "1") -> list[Prompt]:
    return [Prompt(f"k{i}", f"{i}+1=", None, {"answer": answer}) for i in range(count)]


@pytest.fixture(scope="module")
def engine() -> PolicyEngine:
    return PolicyEngine(make_model(), make_tokenizer(), name="tiny")


def sampled(folder: PoolFolder, engine: PolicyEngine, **options) -> RolloutPool:
    verifier = verifiers.create("exact")
    return sample_pool(folder, engine, verifier, SETTINGS, SAMPLING, **options)


def test_a_pool_has_the_rollouts_of_each_prompt(tmp_path, engine):
    pool = sampled(PoolFolder(tmp_path / "pool", prompts(5), {}), engine)
    assert pool.keys == [f"k{i}" for i in range(5)]
    assert pool.rewards.shape == pool.lengths.shape == (5, 4)
    assert pool.sketches.shape == (5, 4, 64)
    assert (pool.offline.shape, pool.earlier.shape) == ((5, 3), (5, 2))
    assert ((pool.lengths >= 1) & (pool.lengths <= 3)).all()
    assert (pool.squared_norms > 0).all()
    error = (pool.sketches.astype(float) ** 2).sum(-1) / pool.squared_norms - 1
    assert np.abs(error).max() < 5 * np.sqrt(2 / 64)


def test_sampling_goes_on_where_it_was_stopped(tmp_path, engine):
    whole = sampled(PoolFolder(tmp_path / "whole", prompts(5), {}), engine)

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sampled(PoolFolder(tmp_path / "parts", prompts(4), {}), engine, progress=stop)
    assert not list((tmp_path / "parts").glob("*.tmp"))
    folder = PoolFolder(tmp_path / "parts", prompts(5), {})  # one prompt more
    assert folder.done == 2
    before = (tmp_path / "parts" / "000001.npz").stat().st_mtime_ns
    parts = sampled(folder, engine)
    assert (tmp_path / "parts" / "000001.npz").stat().st_mtime_ns == before
    for name in ("rewards", "lengths", "sketches", "squared_norms", "offline", "earlier"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_a_folder_with_other_rollouts_is_refused(tmp_path, engine):
    path = tmp_path / "pool"
    folder = PoolFolder(path, prompts(4), {"seed": 0})
    sampled(folder, engine)
    with pytest.raises(RecordError, match="rollouts with seed 0, not 1"):
        PoolFolder(path, prompts(4), {"seed": 1})
    with pytest.raises(RecordError, match="rollouts of another prompt than 'k0'"):
        PoolFolder(path, prompts(4, answer="2"), {"seed": 0}).read()
    (path / "000002.npz").write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(RecordError, match=r"000002.npz cannot be read"):
        folder.read()
    (path / "settings.json").write_text("{")
    with pytest.raises(RecordError, match=r"settings.json cannot be read"):
        PoolFolder(path, prompts(4), {"seed": 0})


def test_prompts_without_a_verdict_are_left_out(tmp_path, engine):
    pool = sampled(PoolFolder(tmp_path / "pool", prompts(6), {}), engine)
    pool.offline[1, 0] = np.nan
    pool.rewards[4, 2] = np.nan
    kept = pool.without_missing()
    assert kept.keys == ["k0", "k2", "k3", "k5"]
    np.testing.assert_array_equal(kept.sketches, pool.sketches[[0, 2, 3, 5]])
    table = offline_pass_rates(kept)
    assert table is not None
    assert len(table) == 4
    assert not table.is_continuous


def test_more_prompts_are_the_same_ones_first():
    few, many = (choose_prompts(prompts(20), count, seed=3) for count in (5, 12))
    assert [p.key for p in many[:5]] == [p.key for p in few]
    assert [p.key for p in few] != [f"k{i}" for i in range(5)]
    assert len(choose_prompts(prompts(3), 9, seed=0)) == 3


@pytest.mark.parametrize("changes", [{"rollouts": 1}, {"offline": -1}, {"epochs": -1}])
def test_numbers_out_of_range_are_refused(changes):
    with pytest.raises(ConfigError, match=f"{next(iter(changes))} is"):
        PoolSettings(**changes)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["lab", "gradient", *arguments])
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def test_the_command_samples_once_and_compares_as_often_as_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("letters.py").write_text(REWARD)
    rows = [{"prompt": f"{a}+{b}=", "answer": "x"} for a in range(4) for b in range(5)]
    PassRates.from_counts(["other"], [1], 2).save("other.parquet")
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_model(tmp_path / "model")
    sampling = ["--max-tokens", "3", "--rollouts", "8", "--sketch", "128", "--epochs", "1"]
    sizes = ["--prompts", "16", "--budget", "8", "--group", "4", "--offline", "4", "--draws", "8"]
    names = ["--estimators", "zero,batch-mean,group-mean,basis,value", "--out", "noise"]
    data = ["--data", "data.jsonl", "--verifier", "letters:small_letter"]
    arguments = ["model", *data, "--verifier-processes", "0", *sampling, *sizes, *names]
    code, out, err = run(arguments, capsys)
    assert code == 0
    assert "16 prompts x 8 rollouts" in out
    assert "8 prompts x 1" in out
    assert "2 prompts x 4" in out
    assert "16 prompts x 13 rollouts, 128 of them with gradients: 0 MB" in err
    rows = list(csv.DictReader(Path("noise/noise.csv").read_text().splitlines()))
    assert len(rows) == 10
    assert Path("noise/noise.png").read_bytes()[:4] == b"\x89PNG"
    first = Path("noise/noise.csv").read_bytes()
    # The model is not needed any more; the same numbers come out.
    Path("model/config.json").unlink()
    assert run(arguments, capsys)[0] == 0
    assert Path("noise/noise.csv").read_bytes() == first
    assert run([*arguments, "--loss", "token-mean", "--budget", "4"], capsys)[0] == 0
    assert Path("noise/noise.csv").read_bytes() != first

    code, _, err = run([*arguments, "--budget", "16"], capsys)
    assert code == 2
    assert "16 prompts are too few for two batches of 16" in err
    assert "Traceback" not in err
    # All of these are said without a model, before anything is sampled.
    for more, words in {
        ("--estimators", "zeroo"): "did you mean 'zero'",
        ("--estimators", "critic"): "needs values",
        ("--offline", "0"): "needs pass rates",
        ("--pass-rates", "other.parquet"): "have no pass rate",
        ("--out", "data.jsonl"): "cannot make the folder data.jsonl",
    }.items():
        code, _, err = run([*arguments, "--out", "fresh", *more], capsys)
        assert (code, words in err) == (2, True), err
        assert not Path("fresh").exists()
    code, _, err = run([*arguments, "--seed", "1"], capsys)
    assert code == 2
    assert "choose another folder" in err
    code, _, err = run([*arguments, "--temperature", "0"], capsys)
    assert "no policy gradient" in err


def test_a_stop_says_that_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{a}+1=", "answer": "2"} for a in range(8)]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_model(tmp_path / "model")
    arguments = ["model", "--data", "data.jsonl", "--verifier", "exact", "--verifier-processes"]
    arguments += ["0", "--max-tokens", "2", "--rollouts", "4", "--budget", "2", "--group", "2"]
    write = PoolFolder.write

    def stopped(self: PoolFolder, number: int, **arrays: np.ndarray) -> None:
        if number == 2:
            raise KeyboardInterrupt
        write(self, number, **arrays)

    monkeypatch.setattr(PoolFolder, "write", stopped)
    code, _, err = run([*arguments, "--sketch", "16", "--out", "noise"], capsys)
    assert code == 130
    assert "stays, and the same command goes on" in err
    assert len(list(Path("noise/rollouts").glob("*.npz"))) == 2
    monkeypatch.setattr(PoolFolder, "write", write)
    code, _, err = run([*arguments, "--sketch", "16", "--out", "noise"], capsys)
    assert "going on: 2 of 8 prompts" in err
    # This model never answers 2.
    assert code == 2
    assert "all 32 rewards are 0: there is no gradient to look at" in err
