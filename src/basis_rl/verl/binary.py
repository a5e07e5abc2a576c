"""Settings that make rewards other than 0 and 1, for estimators that take no others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.estimators import registry
from basis_rl.passrates import PassRates
from basis_rl.verifiers.verl_names import overrides
from basis_rl.verl.options import Config, Options, section
from basis_rl.verl.reward import custom_function
from basis_rl.verl.stand_in import make, table, takes_any_reward

# What verl's own scoring gives to some data sources (`default_compute_score` of verl 0.9).
_MINUS_ONE = ("math_dapo", "math", "math_dapo_reasoning")
_SHARES = ("codecontests", "apps", "codeforces", "taco")


def is_binary(options: Options, pass_rates: PassRates | None) -> bool:
    """Whether a run's estimator, with its table, takes rewards of 0 and 1 alone."""
    name = options.estimator
    if registry.pass_rates_use(name) == "none":
        pass_rates = None
    stand_in = None if pass_rates is None else table(pass_rates.kind)
    return not takes_any_reward(make(name, stand_in, options.estimator_options))


def check_rewards(config: Config, estimator: str) -> None:
    """Refuse what makes rewards other than 0 and 1, for an estimator that takes no others.

    Raises
    ------
    ConfigError

    Warns
    -----
    UserWarning
        Of a reward model.
    """
    remedy = (
        "or use pass rates made of the rewards themselves (PassRates.from_rewards), or another "
        "estimator, such as basis-online with +algorithm.basis.rewards=continuous"
    )
    if section(config, "algorithm").get("use_kl_in_reward"):
        raise ConfigError(
            f"algorithm.use_kl_in_reward=true takes a penalty off every reward, and estimator "
            f"{estimator!r} takes rewards of 0 and 1 here: give algorithm.use_kl_in_reward=false "
            f"(with actor_rollout_ref.actor.use_kl_loss=true for a penalty in the loss), {remedy}"
        )
    penalty = section(config, "reward", "reward_kwargs", "overlong_buffer_cfg")
    if penalty.get("enable"):
        raise ConfigError(
            "reward.reward_kwargs.overlong_buffer_cfg.enable=true takes a penalty off long "
            f"completions' rewards, and estimator {estimator!r} takes rewards of 0 and 1 here: "
            f"leave the penalty out, {remedy}"
        )
    if section(config, "reward", "reward_model").get("enable"):
        warnings.warn(
            f"reward.reward_model.enable=true: estimator {estimator!r} takes rewards of 0 and 1 "
            "here, and stops at the first other one; make the score one of them in a "
            f"custom_reward_function, {remedy}",
            UserWarning,
            stacklevel=5,
        )


def check_scores(
    config: Config,
    options: Options,
    pass_rates: PassRates | None,
    rows: Iterable[Mapping[str, Any]],
) -> None:
    """Refuse data whose scores by verl's own scoring are not 0 and 1, where those are wanted.

    Parameters
    ----------
    config : mapping
    options : Options
    pass_rates : PassRates, optional
        What `open_estimator` gave.
    rows : iterable of mappings
        The training data: data_source.

    Raises
    ------
    ConfigError
    """
    judged = section(config, "reward", "reward_model").get("enable")
    if judged or custom_function(config) is not None or not is_binary(options, pass_rates):
        return
    for source in dict.fromkeys(str(row.get("data_source")) for row in rows):
        if source in _MINUS_ONE or source.startswith("aime"):
            scores = "-1 or 1"
        elif source in _SHARES:
            scores = "the share of tests that passed"
        else:
            continue
        raise ConfigError(
            f"verl's own scoring gives data_source {source!r} {scores}, and estimator "
            f"{options.estimator!r} takes rewards of 0 and 1 here: choose a reward function, as "
            f"with {' '.join(overrides('math'))}"
        )
