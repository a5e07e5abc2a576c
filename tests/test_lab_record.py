"""`basis-rl lab record`: rewards of many rollouts of a policy, stopped and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_parts import Digits, digit, prompts
from random_qwen3 import save_model

from basis_rl import PassRates, cli
from basis_rl.errors import BasisError, ConfigError, PassRatesError
from basis_rl.lab.oracle import rollouts_path, sample_record
from basis_rl.lab.read import read_record
from basis_rl.lab.record import RecordError
from basis_rl.lab.stages import stages_of
from basis_rl.passrates import Provenance
from basis_rl.passrates.build import journal_path
from basis_rl.verifiers import NamedVerifier, create


def reward_of(text: str, answer: str) -> float:
    return float(text == answer)


def digits_verifier() -> NamedVerifier:
    return create("exact", processes=1)


def record_of(path: Path, engine: Digits, **changes: Any) -> Any:
    settings: dict[str, Any] = {"oracle": 6, "rollouts": 2}
    return sample_record(prompts(), engine, digits_verifier(), path, **(settings | changes))


def test_the_record_has_the_rewards_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    made = record_of(tmp_path / "late.parquet", Digits(), step=7)
    read = read_record(tmp_path / "late.parquet")
    for record in (made, read):
        assert record.keys == [prompt.key for prompt in prompts()]
        assert record.sources == [prompt.source for prompt in prompts()]
        assert (record.step == 7).all()
        assert (record.counts == 8).all()
        assert record.name == "late"
        assert record.lengths is not None
        assert (record.lengths == 2).all()
        for visit, prompt in enumerate(prompts()):
            texts = [digit(1, prompt.key, number) for number in range(8)]
            wanted = [reward_of(text, prompt.columns["answer"]) for text in texts]
            assert record.of_visit(visit).tolist() == wanted
    table = PassRates.load(rollouts_path(tmp_path / "late.parquet"))
    assert table.means == pytest.approx([made.of_visit(v).mean() for v in range(10)])


def test_a_stopped_record_goes_on_and_is_the_same(tmp_path: Path) -> None:
    whole = record_of(tmp_path / "whole.parquet", Digits())
    stopped = Digits(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        record_of(tmp_path / "parts.parquet", stopped)
    assert not (tmp_path / "parts.parquet").exists()
    rest = Digits()
    parts = record_of(tmp_path / "parts.parquet", rest)
    assert not set(rest.asked) & set(stopped.asked)
    assert len(rest.asked) + len(stopped.asked) == 80
    assert (parts.rewards == whole.rewards).all()
    again = Digits()
    same = record_of(tmp_path / "parts.parquet", again)
    assert not again.asked
    assert (same.rewards == whole.rewards).all()


def test_a_larger_oracle_samples_only_what_is_missing(tmp_path: Path) -> None:
    first = record_of(tmp_path / "a.parquet", Digits())
    more = Digits()
    larger = record_of(tmp_path / "a.parquet", more, oracle=8)
    assert len(more.asked) == 20
    assert all(number >= 8 for _, number in more.asked)
    for visit in range(10):
        assert (larger.of_visit(visit)[:8] == first.of_visit(visit)).all()
    with pytest.raises(PassRatesError, match="n is 8"):
        record_of(tmp_path / "a.parquet", Digits())


def test_rollouts_without_a_verdict_are_left_out(tmp_path: Path) -> None:
    import test_lab_record as own

    verifier = create(f"{own.__name__}:sometimes", processes=1)
    record = sample_record(
        prompts(), Digits(), verifier, tmp_path / "a.parquet", oracle=30, rollouts=2
    )
    for visit, prompt in enumerate(prompts()):
        texts = [digit(1, prompt.key, number) for number in range(32)]
        wanted = [1.0 if text > "4" else 0.0 for text in texts if text != "9" or visit != 3]
        assert record.of_visit(visit).tolist() == wanted


def sometimes(completion: str, answer: str) -> float | None:
    if completion == "9" and answer == "3":
        return None
    return float(completion > "4")


def test_records_of_checkpoints_are_stages(tmp_path: Path) -> None:
    reference = PassRates.from_counts([p.key for p in prompts()], [1] * 10, 10)
    records = []
    for step in (1, 2, 3):
        record = record_of(
            tmp_path / f"{step}.parquet", Digits(), seed=step, step=step, pass_rates=reference
        )
        records.append(record)
    read = [read_record(tmp_path / f"{step}.parquet") for step in (1, 2, 3)]
    assert read[0].pass_rates is not None
    assert (read[0].pass_rates.means == reference.means).all()
    stages = stages_of(read, shown=2, oracle=6)
    assert [stage.name for stage in stages] == ["early", "middle", "late"]
    for stage, record in zip(stages, records, strict=True):
        rewards = record.rewards.reshape(10, 8)
        assert (stage.shown == rewards[:, :2]).all()
        assert stage.oracle == pytest.approx(rewards[:, 2:].mean(axis=1))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"oracle": 1}, "oracle is 1"),
        ({"rollouts": 0}, "rollouts is 0"),
        ({"step": -1}, "step is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_numbers_are_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        record_of(tmp_path / "a.parquet", Digits(), **changes)


def test_the_caches_own_random_numbers_are_refused(tmp_path: Path) -> None:
    table = PassRates.from_counts(
        ["a"], [1], 2, provenance=Provenance(extra={"build": {"seed": 1}})
    )
    with pytest.raises(ConfigError, match="seed is 1"):
        record_of(tmp_path / "a.parquet", Digits(), pass_rates=table)


def test_pass_rates_that_cannot_go_with_the_record_are_refused_first(tmp_path: Path) -> None:
    keys = [prompt.key for prompt in prompts()]
    other = PassRates.from_counts(keys, [1] * 10, 2, provenance=Provenance(verifier="math"))
    rates = PassRates.from_rates(keys, [0.5] * 10)
    for table, error, word in (
        (other, ConfigError, "verifier is 'exact', and that of the pass rates 'math'"),
        (PassRates.from_counts(["x"], [1], 2), RecordError, "none of the 10 prompts"),
        (rates, RecordError, "unknown number"),
    ):
        engine = Digits()
        with pytest.raises(error, match=word):
            record_of(tmp_path / "a.parquet", engine, pass_rates=table)
        assert not engine.asked
    half = PassRates.from_counts(keys[:5], [1] * 5, 2)
    with pytest.warns(UserWarning, match=r"know 50\.0% of the prompts"):
        record_of(tmp_path / "a.parquet", Digits(), pass_rates=half)


def test_what_cannot_be_written_is_found_before_sampling(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    for path, word in ((tmp_path / "a.parquet", "it is a folder"), (tmp_path / "b/c", "no folder")):
        engine = Digits()
        with pytest.raises(BasisError, match=word):
            record_of(path, engine)
        assert not engine.asked


def test_a_lost_journal_is_an_error(tmp_path: Path) -> None:
    record_of(tmp_path / "a.parquet", Digits())
    journal_path(rollouts_path(tmp_path / "a.parquet")).unlink()
    with pytest.raises(PassRatesError, match=r"no journal .*a\.rollouts\.parquet"):
        record_of(tmp_path / "a.parquet", Digits())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record")
    save_model(folder / "model")
    lines = [{"prompt": f"{i}+1=", "answer": "x", "task": "sum"} for i in range(6)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "lengths_reward.py").write_text(
        "def odd(completion, answer): return float(len(completion) % 2)\n"
    )
    return folder


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["lab", "record", *arguments])
    return int(ended.value.code or 0)


def test_the_command_records_a_model(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    out = str(tmp_path / "early.parquet")
    arguments = (
        "model", "--data", "prompts.jsonl", "--source-column", "task", "--verifier",
        "lengths_reward:odd", "--max-tokens", "4", "--oracle", "12", "--rollouts", "4",
        "--step", "3", "--out", out, "--verifier-processes", "1",
    )  # fmt: skip
    assert command(*arguments) == 0
    shown = capsys.readouterr().out
    assert f"wrote {out}: 6 prompts, 96 rewards, mean" in shown
    record = read_record(out)
    assert (record.counts == 16).all()
    assert (record.step == 3).all()
    assert record.sources == ["sum"] * 6
    assert 0 < record.rewards.mean() < 1
    assert command(*arguments, "--pass-rates", str(rollouts_path(out))) == 2
    assert "seed is 1, and the pass rates" in capsys.readouterr().err
    assert command(*arguments) == 0
    assert "is there already; nothing to do" in capsys.readouterr().out
    assert np.array_equal(read_record(out).rewards, record.rewards)
    assert command(*arguments, "--reverify") == 0
    assert np.array_equal(read_record(out).rewards, record.rewards)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["model", "--verifier", "exact"], "--data"),
        (["model", "--verifier", "exact", "--data", "prompts.jsonl", "--out", "a.txt"], "Parquet"),
        (["model", "--verifier", "exact", "--data", "prompts.jsonl", "--oracle", "1"], "oracle"),
        (["none", "--verifier", "exact", "--data", "prompts.jsonl", "--out", "b.parquet"], "none"),
    ],
)
def test_what_the_command_cannot_do_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    word: str,
) -> None:
    monkeypatch.chdir(folder)
    assert command(*arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("basis-rl: ")
    assert word in error
    assert not (folder / "b.parquet").exists()


def test_nothing_but_missing_verdicts_is_an_error(tmp_path: Path) -> None:
    from basis_rl.lab.oracle import read_rollouts

    record_of(tmp_path / "a.parquet", Digits())
    with pytest.raises(RecordError, match="no verdict"):
        read_rollouts([], rollouts_path(tmp_path / "a.parquet"))
