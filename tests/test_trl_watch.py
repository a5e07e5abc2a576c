from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from tiny_model import sums, tiny_config, tiny_trainer

from basis_rl import BasisError, RewardBatch
from basis_rl.adapters.watch import WARN_AFTER, EmptyLossWatch, ZeroAdvantageWatch
from basis_rl.trl.option_names import TRL


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
    for words in ("all 4 advantages are zero", "'batch-mean'", "num_generations"):
        assert words in str(caught.value)


def test_groups_that_agree_are_no_error(tmp_path: Path) -> None:
    """With a group baseline, prompts that are all right or all wrong rightly teach nothing."""
    config = tiny_config(tmp_path, estimator="group-mean", num_generations=2, max_steps=WARN_AFTER)
    trainer = tiny_trainer(config, sums(8))  # parity: the reward is the prompt's
    with pytest.warns(UserWarning, match="the last rewards: 0, 1"):
        trainer.train()


def test_a_group_that_differs_must_have_advantages() -> None:
    batch = RewardBatch(["a", "a", "b", "b"], [1.0, 1.0, 0.0, 1.0])
    with pytest.raises(BasisError, match="from 0 to 1"):
        ZeroAdvantageWatch(limit=0, names=TRL).see(batch, np.zeros(4), "group-mean")


def test_equal_rewards_warn_and_then_stop() -> None:
    watch = ZeroAdvantageWatch(limit=WARN_AFTER + 2, names=TRL)
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


def test_a_run_whose_completions_are_all_cut_off_stops(tmp_path: Path) -> None:
    """One token is never the end here, so dapo leaves every completion out of the loss."""
    config = tiny_config(
        tmp_path, objective="dapo", max_completion_length=1, max_steps=9, max_zero_batches=3
    )
    trainer = tiny_trainer(config, sums(40))
    with pytest.raises(BasisError) as caught:
        trainer.train()
    message = str(caught.value)
    assert "\n" not in message
    for words in (
        "no token",
        "3 generation batches",
        "max_completion_length",
        "max_zero_batches=3",
    ):
        assert words in message
    assert trainer.state.global_step == 2
    assert np.abs(trainer.generated[-1][1]["advantages"].numpy()).max() > 0.1


def test_empty_losses_warn_and_then_stop() -> None:
    watch = EmptyLossWatch(limit=WARN_AFTER + 1, names=TRL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(WARN_AFTER - 1):
            watch.see(0, True)
        watch.see(7, True)  # starts again
        for _ in range(WARN_AFTER - 1):
            watch.see(0, True)
    with pytest.warns(UserWarning, match="mask_truncated_completions to False"):
        watch.see(0, True)
    with pytest.raises(BasisError, match="log_completions"):
        watch.see(0, False)
