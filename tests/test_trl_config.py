from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from tiny_model import sums, table_for, tiny_config, tiny_model, tiny_tokenizer
from trl import GRPOConfig, TrlParser

from basis_rl import Basis, BatchMean, ConfigError
from basis_rl.trl import BasisConfig, BasisTrainer
from basis_rl.trl.objectives import OBJECTIVES, gpg_factor

MALFORMED: list[tuple[dict[str, Any], list[str]]] = [
    ({"num_generations": 0}, ["num_generations", "0", "at least 1"]),
    ({"num_generations": 1.5}, ["num_generations", "1.5"]),
    ({"num_generations": "4"}, ["num_generations", "'4'"]),
    ({"num_generations": True}, ["num_generations", "True"]),
    ({"num_generations": 3}, ["num_generations", "3", "divisible"]),
    ({"num_generations_eval": 0}, ["num_generations_eval", "0"]),
    ({"per_device_train_batch_size": 0}, ["per_device_train_batch_size", "0"]),
    ({"gradient_accumulation_steps": -1}, ["gradient_accumulation_steps", "-1"]),
    ({"steps_per_generation": 0}, ["steps_per_generation", "0"]),
    ({"generation_batch_size": 6}, ["generation_batch_size=6", "= 4"]),
    ({"generation_batch_size": 8, "steps_per_generation": 2}, ["generation_batch_size"]),
    ({"num_iterations": 0}, ["num_iterations", "0"]),
    ({"max_completion_length": 0}, ["max_completion_length", "0"]),
    ({"temperature": 0.0}, ["temperature", "0.0", "above 0"]),
    ({"temperature": float("nan")}, ["temperature", "nan"]),
    ({"top_p": 1.5}, ["top_p", "1.5", "at most 1"]),
    ({"learning_rate": "1e-5"}, ["learning_rate", "'1e-5'", "number"]),
    ({"beta": -0.1}, ["beta", "-0.1"]),
    ({"epsilon": -0.2}, ["epsilon", "-0.2"]),
    ({"epsilon_high": "high"}, ["epsilon_high", "'high'"]),
    ({"estimator": "basys"}, ["'basys'", "did you mean 'basis'"]),
    ({"estimator": ""}, ["estimator", "''"]),
    ({"estimator": None}, ["estimator", "None"]),
    ({"estimator_options": ["robust"]}, ["estimator_options", "['robust']", "dict"]),
    ({"estimator_options": "{"}, ["estimator_options", "dict"]),
    ({"estimator_options": {1: 2}}, ["estimator_options", "dict"]),
    ({"pass_rates": "no/such.parquet"}, ["no/such.parquet", "basis-rl cache build"]),
    ({"pass_rates": 3}, ["pass_rates", "3"]),
    ({"objective": "grop"}, ["'grop'", "did you mean 'grpo'"]),
    ({"objective": 1}, ["objective", "1"]),
    ({"objective": "grpo", "loss_type": "dapo"}, ["loss_type='dapo'", "objective='grpo'"]),
    (
        {"objective": "gspo", "importance_sampling_level": "token"},
        ["importance_sampling_level='token'", "objective='gspo'"],
    ),
    ({"objective": "gpg", "epsilon": 0.1}, ["epsilon=0.1", "objective='gpg'"]),
    ({"objective": "gpg", "epsilon_high": 0.3}, ["epsilon_high=0.3", "objective='gpg'"]),
    ({"objective": "gpg", "delta": 2.0}, ["delta=2.0", "objective='gpg'"]),
    ({"objective": None, "loss_type": "dappo"}, ["loss_type", "'dappo'"]),
    ({"objective": None, "importance_sampling_level": "word"}, ["importance_sampling_level"]),
    ({"gpg_scale": "verl", "objective": "gpg"}, ["gpg_scale", "'verl'", "'verl-nonzero'"]),
    ({"gpg_scale": "none"}, ["gpg_scale='none'", "objective='grpo'"]),
    ({"scale_rewards": "group"}, ["scale_rewards='group'", "group-mean"]),
    ({"scale_rewards": True}, ["scale_rewards=True", "group-mean"]),
    ({"scale_rewards": "std"}, ["scale_rewards", "'std'"]),
    (
        {"multi_objective_aggregation": "normalize_then_sum"},
        ["multi_objective_aggregation", "estimator"],
    ),
    ({"min_coverage": 1.1}, ["min_coverage", "1.1", "at most 1"]),
    ({"min_coverage": -1}, ["min_coverage", "-1"]),
    ({"allow_mismatch": "model"}, ["allow_mismatch", "'model'", "list"]),
    ({"allow_mismatch": ["modle"]}, ["'modle'", "did you mean 'model'"]),
    ({"max_zero_batches": -1}, ["max_zero_batches", "-1"]),
    ({"plain_logits": "yes"}, ["plain_logits", "'yes'"]),
    ({"prompt_key_column": 7}, ["prompt_key_column", "7"]),
    ({"prompt_source_column": ""}, ["prompt_source_column", "''"]),
    ({"estimator": "group-mean"}, ["estimator='group-mean'", "num_generations is 1", "2 or more"]),
    ({"estimator": "leave-one-out"}, ["'leave-one-out'", "num_generations is 1"]),
    (
        {"remove_unused_columns": True, "prompt_key_column": "id"},
        ["remove_unused_columns=True", "'id'", "leave remove_unused_columns out"],
    ),
    (
        {"remove_unused_columns": True, "prompt_source_column": "task"},
        ["remove_unused_columns=True", "'task'"],
    ),
    ({"auto_find_batch_size": True}, ["auto_find_batch_size"]),
]


@pytest.mark.parametrize(("changes", "words"), MALFORMED)
def test_a_malformed_config_is_one_clear_line(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny_config(tmp_path, **changes)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_objectives_set_trls_loss(tmp_path: Path, objective: str) -> None:
    config = tiny_config(tmp_path, objective=objective)
    expected = {
        "grpo": ("grpo", "token", 0.2, None, False),
        "gpg": ("dapo", "token", 0.2, None, False),
        "gspo": ("grpo", "sequence", 3e-4, 4e-4, False),
        "dapo": ("dapo", "token", 0.2, 0.28, True),
        "dr_grpo": ("dr_grpo", "token", 0.2, None, False),
    }[objective]
    found = (
        config.loss_type,
        config.importance_sampling_level,
        config.epsilon,
        config.epsilon_high,
        config.mask_truncated_completions,
    )
    assert found == expected


def test_the_users_own_settings_win(tmp_path: Path) -> None:
    config = tiny_config(
        tmp_path, objective="dapo", epsilon_high=0.25, mask_truncated_completions=False
    )
    assert (config.epsilon_high, config.mask_truncated_completions) == (0.25, False)
    config = tiny_config(tmp_path, objective=None, loss_type="cispo", epsilon_high=5.0)
    assert (config.loss_type, config.epsilon, config.epsilon_high) == ("cispo", 0.2, 5.0)


def test_without_an_objective_the_loss_is_trls(tmp_path: Path) -> None:
    config, stock = tiny_config(tmp_path, objective=None), GRPOConfig(str(tmp_path), use_cpu=True)
    for name in (
        "loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta",
        "mask_truncated_completions",
    ):  # fmt: skip
        assert getattr(config, name) == getattr(stock, name), name


def test_everything_else_is_as_in_trl(tmp_path: Path) -> None:
    """Ours and TRL's configuration with the same arguments differ in what is documented."""
    ours = BasisConfig(str(tmp_path), use_cpu=True, num_generations=2, objective=None)
    stock = GRPOConfig(str(tmp_path), use_cpu=True, num_generations=2)
    changed = {
        name
        for name, value in stock.to_dict().items()
        if ours.to_dict()[name] != value and name not in ("logging_dir", "run_name")
    }
    assert changed == {"scale_rewards"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"generation_batch_size": 12}, (12, 3)),
        ({"steps_per_generation": 5}, (20, 5)),
        ({"gradient_accumulation_steps": 3}, (12, 3)),
        ({"per_device_train_batch_size": 1}, (1, 1)),
    ],
)
def test_one_rollout_keeps_the_batch_sizes(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[int, int]
) -> None:
    config = tiny_config(tmp_path, **changes)
    assert config.num_generations == 1
    assert (config.generation_batch_size, config.steps_per_generation) == expected
    assert config.per_device_train_batch_size == changes.get("per_device_train_batch_size", 4)


def test_evaluation_has_one_rollout_unless_told_otherwise(tmp_path: Path) -> None:
    assert tiny_config(tmp_path).num_generations_eval == 1
    assert tiny_config(tmp_path, num_generations_eval=4).num_generations_eval == 4
    assert tiny_config(tmp_path, num_generations=2).num_generations_eval is None  # TRL: as training


def test_options_may_be_json_text(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, estimator_options='{"preset": "paper"}')
    assert config.estimator_options == {"preset": "paper"}


def test_the_command_line_parser_reads_it(tmp_path: Path) -> None:
    arguments = ["--output_dir", str(tmp_path), "--use_cpu", "--objective", "gspo"]
    arguments += ["--estimator_options", '{"preset": "paper"}', "--allow_mismatch", "model"]
    (config,) = TrlParser(BasisConfig).parse_args_and_config(arguments)
    assert config.estimator_options == {"preset": "paper"}
    assert config.allow_mismatch == ["model"]
    assert (config.num_generations, config.epsilon) == (1, 3e-4)


def test_table_and_estimator_may_be_objects_or_names(tmp_path: Path) -> None:
    data = sums(8)
    table = table_for(data)
    path = tmp_path / "pass_rates.parquet"
    table.save(path)

    def make(config: BasisConfig, **kwargs: Any) -> BasisTrainer:
        model, tokenizer = tiny_model(), tiny_tokenizer()
        return BasisTrainer(model, len, config, data, processing_class=tokenizer, **kwargs)

    by_path = make(tiny_config(tmp_path, pass_rates=str(path)))
    assert by_path.pass_rates.keys == table.keys
    assert make(tiny_config(tmp_path), pass_rates=table).pass_rates is table
    own = Basis(table, "paper")
    trainer = make(tiny_config(tmp_path), estimator=own)
    assert (trainer.estimator, trainer.pass_rates) == (own, table)
    assert make(tiny_config(tmp_path), estimator=BatchMean()).pass_rates is None

    twice = [
        (tiny_config(tmp_path, pass_rates=str(path)), {"pass_rates": table}, "twice"),
        (tiny_config(tmp_path), {"pass_rates": table, "estimator": own}, "pass_rates"),
        (tiny_config(tmp_path, estimator="zero"), {"estimator": own}, "estimator"),
        (tiny_config(tmp_path, estimator_options={}), {"estimator": own}, "estimator_options"),
        (tiny_config(tmp_path), {}, "needs pass rates"),
        (tiny_config(tmp_path, estimator_options={"pre": 1}), {"pass_rates": table}, "preset"),
    ]  # fmt: skip
    twice += [
        (tiny_config(tmp_path), {"estimator": "zero"}, r"'zero'.* BasisConfig\(estimator="),
        (tiny_config(tmp_path), {"estimator": BatchMean}, r"an estimator object here"),
    ]
    for config, kwargs, word in twice:
        with pytest.raises(ConfigError, match=word):
            make(config, **kwargs)
    with pytest.warns(UserWarning, match="'zero' uses no pass rates"):
        make(tiny_config(tmp_path, estimator="zero"), pass_rates=table)


def test_a_stock_config_is_refused(tmp_path: Path) -> None:
    stock = GRPOConfig(str(tmp_path), use_cpu=True)
    with pytest.raises(ConfigError, match="needs a BasisConfig"):
        BasisTrainer(tiny_model(), len, stock, sums(8), processing_class=tiny_tokenizer())


KEYS = ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    ("scale", "rollouts", "rewards", "expected"),
    [
        # Group means: b is all equal, so 2 of 6 rollouts have no gradient.
        ("paper", 2, [0, 1, 1, 1, 1, 0], 6 / 4),
        ("paper", 2, [0, 1, 1, 0, 1, 0], 1.0),
        ("paper", 2, [1, 1, 0, 0, 1, 1], 1.0),  # nobody has one
        ("paper", 2, [np.nan, 1, 1, 1, 1, 0], 5 / 2),  # of 5 verified, a's 1 and b's 2 have none
        ("paper", 1, [0, 1, 1, 1, 1, 0], 1.0),
        ("none", 2, [0, 1, 1, 1, 1, 0], 1.0),
        ("verl-nonzero", 2, [0, 1, 1, 1, 1, 0], 6 / 4),
        ("verl-nonzero", 1, [0, 0, 0, 0, 0, 1], 6.0),
        ("verl-nonzero", 1, [0, 0, 0, 0, 0, 0], 6.0),
    ],
)
def test_gpg_factor(scale: str, rollouts: int, rewards: list[float], expected: float) -> None:
    values = np.array(rewards, dtype=float)
    means = np.repeat(np.nanmean(values.reshape(3, 2), axis=1), 2)
    advantages = np.nan_to_num(values - means)
    assert gpg_factor(scale, KEYS, values, advantages, rollouts) == pytest.approx(expected)
