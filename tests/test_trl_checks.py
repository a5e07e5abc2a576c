from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from datasets import IterableDataset
from tiny_model import (
    RecordingTrainer,
    parity,
    sums,
    table_for,
    tiny_config,
    tiny_model,
    tiny_trainer,
)

from basis_rl import (
    BasisError,
    BatchError,
    ConfigError,
    MissingPassRateError,
    PassRatesError,
    RewardBatch,
)
from basis_rl.passrates import Provenance
from basis_rl.trl.checks import WARN_AFTER, ZeroAdvantageWatch, check_provenance, same_model

PRIOR = {"missing": "prior"}


def one_line(error: pytest.ExceptionInfo[BasisError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_too_little_coverage_names_a_prompt_and_the_remedy(tmp_path: Path) -> None:
    data = sums(10)
    table = table_for(data.select(range(4)))
    with pytest.raises(PassRatesError) as caught:
        tiny_trainer(tiny_config(tmp_path), data, pass_rates=table)
    one_line(caught, "40.0%", "100.0%", "'0+4='", "basis-rl cache build", "prompt_key_column")
    with pytest.raises(PassRatesError) as caught:
        tiny_trainer(tiny_config(tmp_path, estimator_options=PRIOR), data, pass_rates=table)
    one_line(caught, "40.0%", "50.0%")
    config = tiny_config(tmp_path, estimator_options=PRIOR, min_coverage=0.4, max_steps=2)
    trainer = tiny_trainer(config, data, pass_rates=table)
    trainer.train()
    assert 0 < trainer.state.log_history[0]["basis/coverage"] <= 1


def test_less_coverage_needs_an_estimator_that_allows_it(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, min_coverage=0.5)
    with pytest.raises(ConfigError) as caught:
        tiny_trainer(config, sums(8))
    one_line(caught, "min_coverage=0.5", "missing='error'", "'prior'")


@pytest.mark.parametrize("option", ["prompt_key_column", "prompt_source_column"])
def test_an_unknown_column_is_named_with_the_known_ones(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny_trainer(tiny_config(tmp_path, **{option: "identity"}), sums(8))
    one_line(caught, option, "'identity'", "prompt, id")


@pytest.mark.parametrize("bad", [None, "", 1.5])
def test_a_bad_entry_of_a_key_column_is_named(tmp_path: Path, bad: Any) -> None:
    names = [None] * 8 if bad is None else [bad] * 8
    config = tiny_config(tmp_path, prompt_key_column="name")
    with pytest.raises(BatchError) as caught:
        tiny_trainer(config, sums(8, name=names))
    one_line(caught, "'name'", repr(bad))


def test_pictures_need_a_key_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny_trainer(tiny_config(tmp_path), sums(8, image=["x"] * 8))
    one_line(caught, "'image'", "prompt_key_column")


def test_a_stream_is_checked_batch_by_batch(tmp_path: Path) -> None:
    data = sums(8)
    stream = IterableDataset.from_generator(lambda: ({"prompt": p} for p in data["prompt"]))
    trainer = tiny_trainer(tiny_config(tmp_path), stream, pass_rates=table_for(data))
    trainer.train()
    assert len(trainer.generated[0][0]) == 4
    short = table_for(data.select(range(2)))
    trainer = tiny_trainer(tiny_config(tmp_path), stream, pass_rates=short)
    with pytest.raises(MissingPassRateError):
        trainer.train()


def known(**changes: Any) -> Provenance:
    entries = {
        "model": "org/model", "revision": "main", "verifier": "math", "temperature": 1.0,
        "top_p": 1.0, "top_k": 0, "max_tokens": 512,
    }  # fmt: skip
    return Provenance(**(entries | changes))


@pytest.mark.parametrize(
    ("cached", "run", "verifiers", "name"),
    [
        ({"model": "org/other"}, {}, ["math"], "model"),
        ({"model": "me/model"}, {}, ["math"], "model"),
        ({"revision": "v2"}, {}, ["math"], "revision"),
        ({"verifier": "exact"}, {}, ["math"], "verifier"),
        ({"verifier": "exact"}, {}, ["math", "length"], "verifier"),
        ({"verifier": "mine:reward"}, {}, ["other"], "verifier"),
    ],
)
def test_another_model_or_verifier_is_an_error_unless_allowed(
    cached: dict[str, Any], run: dict[str, Any], verifiers: list[str], name: str
) -> None:
    current = known(**({"verifier": None} | run))
    with pytest.raises(PassRatesError) as caught:
        check_provenance(known(**cached), current, verifiers, [])
    one_line(caught, f"{name} is", f"allow_mismatch=['{name}']", "basis-rl cache build")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_provenance(known(**cached), current, verifiers, [name])


@pytest.mark.parametrize(
    ("cached", "verifiers"),
    [
        ({}, ["math"]),
        ({"verifier": "mine:reward"}, ["reward", "__main__:reward"]),
        ({"verifier": "exact"}, []),  # a lambda: nobody knows
        ({"model": None, "verifier": None, "temperature": None}, ["math"]),
    ],
)
def test_what_agrees_or_is_unknown_passes(cached: dict[str, Any], verifiers: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_provenance(known(**cached), known(verifier=None), verifiers, [])


def test_other_sampling_settings_are_one_warning() -> None:
    with pytest.warns(UserWarning, match="temperature is 0.6") as caught:
        check_provenance(known(temperature=0.6, max_tokens=99), known(), ["math"], [])
    assert len(caught) == 1
    assert "max_tokens is 99" in str(caught[0].message)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("org/model", "org/model", True),
        ("org/model", "me/model", False),
        ("/data/model", "org/model", True),
        ("/data/model/", "/other/model", True),
        ("./model", "model", True),
        ("/data/model-sft", "org/model", False),
    ],
)
def test_folders_are_compared_by_their_last_part(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same
    assert same_model(other, one) is same


def test_the_trainer_compares_model_and_verifier(tmp_path: Path) -> None:
    data, model = sums(8), tiny_model()
    model.config._name_or_path = "org/model"

    def make(allowed: list[str], **provenance: Any) -> RecordingTrainer:
        # Sampled as in tiny_config.
        table = table_for(data, temperature=1.0, max_tokens=6, **provenance)
        config = tiny_config(tmp_path, allow_mismatch=allowed)
        return tiny_trainer(config, data, pass_rates=table, model=model)

    make([], model="org/model", verifier="parity")
    with pytest.raises(PassRatesError, match="model is 'org/base'"):
        make([], model="org/base")
    with pytest.raises(PassRatesError, match="verifier is 'exact'"):
        make(["model"], model="org/base", verifier="exact")
    make(["model", "verifier"], model="org/base", verifier="exact")
    with pytest.warns(UserWarning, match="top_k is 20"):
        make([], top_k=20)


def test_zero_advantages_with_different_rewards_are_an_error(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, estimator="batch-mean")
    trainer = tiny_trainer(config, sums(8))
    estimate = trainer.estimator.estimate

    def silent(batch: Any) -> Any:
        made = estimate(batch)
        made.advantages[:] = 0
        return made

    trainer.estimator.estimate = silent  # type: ignore[method-assign]
    with pytest.raises(BasisError) as caught:
        trainer.train()
    one_line(caught, "all 4 advantages are zero", "'batch-mean'", "num_generations")


def test_groups_that_agree_are_no_error(tmp_path: Path) -> None:
    """With a group baseline, prompts that are all right or all wrong rightly teach nothing."""
    config = tiny_config(tmp_path, estimator="group-mean", num_generations=2, max_steps=WARN_AFTER)
    trainer = tiny_trainer(config, sums(8))  # parity: the reward is the prompt's
    with pytest.warns(UserWarning, match="the last rewards: 0, 1"):
        trainer.train()


def test_a_group_that_differs_must_have_advantages() -> None:
    batch = RewardBatch(["a", "a", "b", "b"], [1.0, 1.0, 0.0, 1.0])
    with pytest.raises(BasisError, match="from 0 to 1"):
        ZeroAdvantageWatch(limit=0).see(batch, np.zeros(4), "group-mean")


def test_equal_rewards_warn_and_then_stop() -> None:
    watch = ZeroAdvantageWatch(limit=WARN_AFTER + 2)
    rewards, zeros = RewardBatch(["a", "b", "c", "d"], np.ones(4)), np.zeros(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(WARN_AFTER - 1):
            watch.see(rewards, zeros, "batch-mean")
        watch.see(rewards, np.arange(4.0), "batch-mean")  # starts again
        assert watch.in_a_row == 0
        for _ in range(WARN_AFTER - 1):
            watch.see(rewards, zeros, "batch-mean")
    with pytest.warns(UserWarning, match="the last rewards: 1"):
        watch.see(rewards, zeros, "batch-mean")
    watch.see(rewards, zeros, "batch-mean")
    with pytest.raises(BasisError, match="max_zero_batches=7"):
        watch.see(rewards, zeros, "batch-mean")


def test_a_run_without_any_signal_stops(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, estimator="batch-mean", max_steps=9, max_zero_batches=3)
    trainer = tiny_trainer(config, sums(40), lambda prompts, **_: [0.0] * len(prompts))
    with pytest.raises(BasisError, match="3 generation batches in a row"):
        trainer.train()
    assert trainer.state.global_step == 2


def test_an_estimator_that_is_never_called_is_an_error(tmp_path: Path) -> None:
    class Replaced(RecordingTrainer):
        def _calculate_rewards(self, inputs: Any, *args: Any) -> Any:
            from trl import GRPOTrainer

            return GRPOTrainer._calculate_rewards(self, inputs, *args)

    data = sums(8)
    from tiny_model import tiny_tokenizer

    trainer = Replaced(
        tiny_model(),
        parity,
        tiny_config(tmp_path),
        data,
        processing_class=tiny_tokenizer(),
        pass_rates=table_for(data),
    )
    with pytest.raises(BasisError) as caught:
        trainer.train()
    one_line(caught, "'basis' was not called", "_calculate_rewards")


def test_too_many_missing_verdicts_stop_the_run(tmp_path: Path) -> None:
    trainer = tiny_trainer(tiny_config(tmp_path), sums(8), lambda prompts, **_: [None] * 4)
    with pytest.raises(BatchError, match="NaN"):
        trainer.train()


def test_rewards_outside_zero_and_one_point_to_the_continuous_form(tmp_path: Path) -> None:
    trainer = tiny_trainer(tiny_config(tmp_path), sums(8), lambda prompts, **_: [0.25] * 4)
    with pytest.raises(BatchError, match="from_rewards"):
        trainer.train()
