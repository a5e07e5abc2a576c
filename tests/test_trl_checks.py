from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from datasets import DatasetDict, IterableDataset
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
)

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


def test_data_that_cannot_be_trained_on_are_refused(tmp_path: Path) -> None:
    data = sums(8)
    splits = DatasetDict({"train": data, "test": data})
    unnamed = data.rename_column("prompt", "question")
    cases: list[tuple[Any, dict[str, Any], list[str]]] = [
        (splits, {}, ["DatasetDict", "train, test", "dataset['train']"]),
        (data.select([]), {}, ["empty"]),
        (unnamed, {"prompt_key_column": "id"}, ["no column 'prompt'", "question, id", "rename"]),
        (data, {"per_device_train_batch_size": 9}, ["8 training prompts", "takes 9", "per_device"]),
        (
            data,
            {"steps_per_generation": 5, "num_generations": 2},
            ["8 training prompts", "takes 10 (20 rollouts, 2 per prompt)"],
        ),
    ]
    for train, settings, words in cases:
        with pytest.raises(ConfigError) as caught:
            tiny_trainer(tiny_config(tmp_path, **settings), train, pass_rates=table_for(data))
        one_line(caught, *words)


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
