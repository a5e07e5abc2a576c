"""One training run: its estimator, its checks at start, advantages, checkpoints and metrics."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl.adapters.record import RewardRecord
from basis_rl.adapters.rows import RowNames, shorten
from basis_rl.adapters.state import load_state, save_state
from basis_rl.adapters.watch import ZeroAdvantageWatch
from basis_rl.batch import FloatArray, RewardBatch
from basis_rl.errors import BatchError
from basis_rl.estimators.base import Estimator
from basis_rl.normalize import normalize_advantages
from basis_rl.passrates import PassRates
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.verl.binary import check_scores
from basis_rl.verl.option_names import VERL
from basis_rl.verl.options import Config, Options, section
from basis_rl.verl.reward import check_rows, reward_of
from basis_rl.verl.rows import check_media, column_names, training_keys, whole_columns, with_columns
from basis_rl.verl.settings import check_settings, rows_seen
from basis_rl.verl.setup import check_prompts, open_estimator, run_provenance
from basis_rl.verl.sizes import check_enough

# verl's loss divides by the number of rows in these, and by that of tokens elsewhere: beginning of
# loss_agg_mode, and values of policy_loss.loss_mode that do so whatever the former is.
ROW_NORMALISED = "seq-mean"
ROW_NORMALISED_LOSSES = ("geo_mean", "sapo")
RAW_PROMPT = "raw_prompt"
_ONE_TURN = "single_turn_agent"


class BasisRun:
    """What the trainer's hooks call.

    Attributes
    ----------
    config : mapping
        verl's, resolved.
    options : Options
    estimator : Estimator
    pass_rates : PassRates or None
    names : RowNames
        Where a row of a batch has its key and source.
    columns : list of str
        What is read of a row for them.
    multi_turn : bool
        Whether completions may hold a tool's tokens.
    """

    def __init__(
        self,
        config: Config,
        options: Options,
        estimator: Estimator,
        pass_rates: PassRates | None,
    ) -> None:
        self.config = config
        self.options, self.estimator, self.pass_rates = options, estimator, pass_rates
        self.names = row_names(options, RAW_PROMPT)
        self.columns = whole_columns(self.names.needed, ())
        self._watch = ZeroAdvantageWatch(options.max_zero_batches, VERL)
        self._record = _record(config) if options.record_rewards else None
        self._row_normalised = divides_by_rows(config)
        rollout = section(config, "actor_rollout_ref", "rollout")
        loop = section(rollout, "agent").get("default_agent_loop") or _ONE_TURN
        self.multi_turn = bool(section(rollout, "multi_turn").get("enable")) or loop != _ONE_TURN
        self._rows_seen = rows_seen(config)
        self._training_keys: frozenset[str] = frozenset()
        self._told_of_strangers = False

    @classmethod
    def start(
        cls, config: Config, rows: Sequence[Mapping[str, Any]], prompt_column: str | None = None
    ) -> BasisRun:
        """Check all that can be known before a rollout is sampled.

        Parameters
        ----------
        config : mapping
            verl's configuration, resolved.
        rows : sequence of mappings
            The training data; a `datasets.Dataset` is one.
        prompt_column : str, optional
            By default ``data.prompt_key``.

        Raises
        ------
        ConfigError
            If a setting is wrong or a column is missing.
        PassRatesError
            If the pass rates cannot be read, or are not this run's.
        BatchError
            If a row has no key.
        """
        options = check_settings(config)
        estimator, pass_rates = open_estimator(config, options)
        run = cls(config, options, estimator, pass_rates)
        prompt_column = prompt_column or section(config, "data").get("prompt_key") or "prompt"
        names = row_names(options, prompt_column)
        check_media(config, names, rows)
        keys = training_keys(names, rows)
        check_prompts(
            options,
            estimator,
            pass_rates,
            keys,
            lambda row: shorten(rows[row][prompt_column]),
            lambda row: rows[row][prompt_column],
        )
        check_rows(config, with_columns(rows, ["data_source", "extra_info", "reward_model"]))
        check_scores(config, options, pass_rates, with_columns(rows, ["data_source"]))
        check_enough(config, len(keys))
        run.columns = whole_columns(run.names.needed, column_names(rows))
        run.multi_turn |= "agent_name" in column_names(rows)
        run._training_keys = frozenset(keys)
        return run

    def __str__(self) -> str:
        known = "" if self.pass_rates is None else f", {len(self.pass_rates)} pass rates"
        return (
            f"estimator {self.options.estimator!r}{known}, {len(self._training_keys)} training "
            f"prompts; an estimate sees {self._rows_seen} rollouts"
        )

    def advantages(self, batch: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        """Advantages of a batch's rows, shape (B,), and metrics with the names they are logged by.

        In this order: the rewards are written down, the estimator, ``normalize_advantages``, and
        the share of rows without a verdict in a loss that divides by rows.

        Raises
        ------
        BatchError
            If none of the prompts is of the training data, or the estimator refuses the batch.
        BasisError
            If the record cannot be written, or nothing is trained for too long.

        Warns
        -----
        UserWarning
            If some of the prompts are not of the training data, once.
        """
        self._check_known(batch.keys)
        if self._record is not None:
            self._record.write(batch)
        estimate = self.estimator.estimate(batch)
        self._watch.see(batch, estimate.advantages, self.estimator.name)
        # Of the estimator alone: normalised advantages have one spread, whatever the baseline.
        metrics = {name: float(value) for name, value in estimate.metrics.items()}
        verified = int(np.isfinite(batch.rewards).sum())
        if verified > 1:  # one alone has no spread
            estimate = normalize_advantages(estimate, batch, self.options.normalize_advantages)
        advantages = estimate.advantages
        if self._row_normalised:
            advantages = advantages * (len(batch) / max(verified, 1))
        if self.pass_rates is not None:
            metrics.setdefault("coverage", self.pass_rates.coverage(batch.keys))
        metrics["rows"] = float(len(batch))
        return advantages, {f"basis/{name}": value for name, value in metrics.items()}

    def _check_known(self, keys: Sequence[str]) -> None:
        """Notice prompts that changed on their way from the training data into a batch."""
        strangers = [key for key in keys if key not in self._training_keys]
        if not strangers or not self._training_keys:
            return
        column = self.names.key_column or self.names.prompt_column
        text = (
            f"{len(strangers)} of a batch's {len(keys)} rows have prompts that are not of the "
            f"training data (the first has key {strangers[0]!r}): something, such as an agent "
            f"loop, changes the column {column!r} of the rows; let it change a copy, or name a "
            f"column with keys that stays as it is ({VERL.key_column})"
        )
        if len(strangers) == len(keys):
            raise BatchError(text)
        if not self._told_of_strangers:
            self._told_of_strangers = True
            warnings.warn(text, UserWarning, stacklevel=3)

    def save(self, folder: str | Path) -> None:
        """Write the estimator's state into a checkpoint folder."""
        save_state(self.estimator, folder)

    def load(self, folder: str | Path) -> None:
        """Read the estimator's state in a checkpoint folder.

        Raises
        ------
        StateError
            If it is not there and the estimator goes on from one, or is another estimator's.
        """
        load_state(self.estimator, folder, names=VERL)


def divides_by_rows(config: Config) -> bool:
    """Whether verl's loss divides by a number of rows that knows of none without a verdict."""
    actor = section(config, "actor_rollout_ref", "actor")
    if section(actor, "policy_loss").get("loss_mode") in ROW_NORMALISED_LOSSES:
        return True
    return str(actor.get("loss_agg_mode") or "token-mean").startswith(ROW_NORMALISED)


def row_names(options: Options, prompt_column: str) -> RowNames:
    """Where rows have their keys and sources, by the options."""
    return RowNames(
        options.prompt_key_column, options.prompt_source_column, prompt_column, words=VERL
    )


def _record(config: Config) -> RewardRecord | None:
    folder = section(config, "trainer").get("default_local_dir")
    if folder is None:
        return None
    rewards = reward_of(config) or [Reward(None)]
    return RewardRecord(folder, run_provenance(config), rewards, names=VERL)
