"""What `algorithm.adv_estimator` and `algorithm.basis` may say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from basis_rl.errors import ConfigError
from basis_rl.estimators import Zero, names, registry
from basis_rl.verl.options import OWN, STOCK, Options, is_ours, read_options


def read(adv_estimator: str = "basis", **basis: Any) -> Options:
    return read_options({"adv_estimator": adv_estimator, "basis": basis or None})


def test_every_key_arrives() -> None:
    keys = {
        "pass_rates": "table.parquet",
        "prompt_key_column": "extra_info.index",
        "prompt_source_column": "data_source",
        "min_coverage": 0.9,
        "normalize_advantages": "batch",
        "max_zero_batches": 7,
        "record_rewards": False,
    }
    options = read(**keys, allow_mismatch=["model", "temperature"], preset="paper", betas=[1, 2])
    assert {key: getattr(options, key) for key in keys} == keys
    assert options.allow_mismatch == ("model", "temperature")
    assert options.estimator_options == {"preset": "paper", "betas": [1, 2]}


def test_without_keys_the_defaults_hold() -> None:
    assert read() == Options("basis")
    assert read(pass_rates=None, min_coverage=None, record_rewards=None) == Options("basis")


@pytest.mark.parametrize("name", names())
def test_every_option_of_every_estimator_is_a_key(name: str) -> None:
    options = registry.keywords(name)
    assert options
    assert not set(options) & set(OWN)
    given = dict.fromkeys(options, 1)
    assert read(estimator=name, **given).estimator_options == given


def test_every_estimator_is_chosen_by_its_name() -> None:
    for name in names():
        ours = is_ours({"adv_estimator": name})
        assert ours == (name not in ("opo", "remax"))  # verl has these too
        assert read(estimator=name).estimator == name
        if ours:
            assert read(name).estimator == name
            assert read(name, estimator=name).estimator == name


def test_a_name_of_verl_means_verl_s_own() -> None:
    for name in STOCK:
        assert read(name) == Options(name)
        assert not is_ours({"adv_estimator": name})


def test_keywords_of_a_factory_that_takes_any_are_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def factory(**options: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setitem(registry._FACTORIES, "mine", (factory, "none"))
    assert read("mine", anything=3).estimator_options == {"anything": 3}


def test_an_installed_package_s_estimator_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> None:
            monkeypatch.setitem(registry._FACTORIES, "theirs", (Zero, "none"))

    entries = {"theirs": [Entry()]}
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group, name: entries.get(name, [])
    )
    assert not is_ours({"adv_estimator": "nobody-s"})
    assert is_ours({"adv_estimator": "theirs"})
    assert read("theirs").estimator == "theirs"


@pytest.mark.parametrize(
    ("adv_estimator", "basis", "text"),
    [
        ("basis", {"pass_rate": "x"}, "algorithm.basis.pass_rate .* did you mean 'pass_rates'"),
        ("basis", {"smoothin": "none"}, "of estimator 'basis' .* did you mean 'smoothing'"),
        ("basis-online", {"preset": "paper"}, "preset is neither .* 'basis-online'.*known are"),
        ("basis", {"min_coverage": 1.5}, "algorithm.basis.min_coverage is 1.5: use a share"),
        ("basis", {"min_coverage": "0.5"}, "min_coverage is '0.5'"),
        ("basis", {"min_coverage": float("nan")}, "min_coverage is nan"),
        ("basis", {"min_coverage": True}, "min_coverage is True"),
        ("basis", {"max_zero_batches": -1}, "max_zero_batches is -1: use a whole number"),
        ("basis", {"max_zero_batches": True}, "max_zero_batches is True"),
        ("basis", {"record_rewards": "yes"}, "record_rewards is 'yes': use true or false"),
        ("basis", {"pass_rates": ""}, "pass_rates is '': use the path"),
        ("basis", {"prompt_key_column": 3}, "prompt_key_column is 3: use the name of a column"),
        ("basis", {"prompt_source_column": ["a"]}, "prompt_source_column is"),
        ("basis", {"normalize_advantages": "group"}, "use none, batch or tokens"),
        ("basis", {"allow_mismatch": 1}, "allow_mismatch is 1: use a list"),
        ("basis", {"allow_mismatch": ["modle"]}, "names 'modle': did you mean 'model'"),
        ("basis", {"allow_mismatch": "top_p"}, "names 'top_p': known are"),
        ("basiss", {}, "algorithm.adv_estimator is 'basiss': did you mean 'basis'"),
        ("basis_online", {"missing": "prior"}, "did you mean 'basis-online'"),
        ("None", {}, "algorithm.adv_estimator is 'None'"),
        ("grpo", {"pass_rates": "x"}, "algorithm.basis.pass_rates.*grpo is verl's own"),
        ("opo", {"estimator": "opo"}, "opo is verl's own.*algorithm.basis.estimator=opo"),
        ("opo", {"record_rewards": True}, "adv_estimator=basis with .*basis.estimator=opo, or"),
        ("GRPO", {}, "adv_estimator is 'GRPO': did you mean 'grpo', verl's own"),
        ("GRPO", {"record_rewards": True}, "did you mean 'group-mean'"),
        ("spo", {"estimator": "kae"}, "adv_estimator=spo and algorithm.basis.estimator=kae differ"),
        ("basis", {"estimator": "grpo"}, "estimator is 'grpo': did you mean 'group-mean'"),
    ],
)
def test_what_is_refused(adv_estimator: str, basis: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        read(adv_estimator, **basis)
    assert "\n" not in str(caught.value)


def test_a_mismatch_may_stand_alone() -> None:
    assert read(allow_mismatch="model").allow_mismatch == ("model",)


def test_basis_must_hold_keys() -> None:
    with pytest.raises(ConfigError, match=re.escape("algorithm.basis is 'x.parquet': it holds")):
        read_options({"adv_estimator": "basis", "basis": "x.parquet"})
