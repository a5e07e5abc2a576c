"""What stops or warns a run of verl before it generates."""

from __future__ import annotations

import importlib.metadata
import warnings
from pathlib import Path
from typing import Any

import pytest
from verl_config import MADE, verl_config

from basis_rl import PassRates
from basis_rl.errors import ConfigError, PassRatesError
from basis_rl.estimators import names
from basis_rl.passrates.keys import prompt_key
from basis_rl.verl.binary import check_scores
from basis_rl.verl.options import Options
from basis_rl.verl.settings import _ALONE, check_version, rows_seen, trainer_mode
from basis_rl.verl.setup import check_prompts, check_settings, open_estimator, uses_basis

KL = {"algorithm.use_kl_in_reward": True}
PENALTY = {"reward.reward_kwargs.overlong_buffer_cfg.enable": True}
REWARD_MODEL = {"reward.reward_model.enable": True, "reward.reward_model.model_path": "org/rm"}


@pytest.fixture(autouse=True)
def _verl(monkeypatch: pytest.MonkeyPatch) -> None:
    has_version(monkeypatch, "0.9.1")


def has_version(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    real = importlib.metadata.version

    def answer(name: str) -> str:
        if name == "verl" and version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return str(version) if name == "verl" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", answer)


def save(path: Path, kind: str = "counts", **provenance: Any) -> str:
    made = MADE.replace(**provenance)
    keys = ["a", "b", "c", "d"]
    if kind == "counts":
        table = PassRates.from_counts(keys, [1, 2, 3, 4], 8, provenance=made)
    elif kind == "rewards":
        table = PassRates.from_rewards(keys, [[0.0, 0.5, 1.0]] * 4, provenance=made)
    else:
        table = PassRates.from_rates(keys, [0.1, 0.2, 0.3, 0.4], provenance=made)
    table.save(path)
    return str(path)


def silent(changes: dict[str, Any] | None = None, **basis: Any) -> Options:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return check_settings(verl_config(changes, **basis))


def refused(text: str, changes: dict[str, Any] | None = None, **basis: Any) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        silent(changes, **basis)
    assert "\n" not in str(caught.value)


def test_a_right_run_is_silent() -> None:
    assert silent(pass_rates="x") == Options("basis", pass_rates="x")
    assert silent({"actor_rollout_ref.model.external_lib": ["other", "basis_rl.verl"]})
    for name in names():
        if name not in ("critic", "remax"):
            assert silent({"actor_rollout_ref.rollout.n": 8}, estimator=name)


def test_which_runs_are_meant_to_use_the_plug_in() -> None:
    stock = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.model.external_lib": None}
    assert not uses_basis(verl_config(stock))
    assert not uses_basis({})
    assert uses_basis(verl_config(stock, pass_rates="x"))
    assert uses_basis(verl_config(stock | {"algorithm.adv_estimator": "spo"}))
    assert uses_basis(
        verl_config(stock | {"actor_rollout_ref.model.external_lib": "basis_rl.verl"})
    )
    libs = {"actor_rollout_ref.model.external_lib": ["other", "basis_rl.verl"]}
    assert uses_basis(verl_config(stock | libs))


@pytest.mark.parametrize("libs", [None, "other", ["other", "third"], "basis_rl"])
def test_a_plug_in_that_is_not_imported_is_refused(libs: Any) -> None:
    lib = {"actor_rollout_ref.model.external_lib": libs}
    refused("add actor_rollout_ref.model.external_lib=.*basis_rl.verl", lib, pass_rates="x")


def test_the_override_keeps_the_modules_that_are_there() -> None:
    lib = {"actor_rollout_ref.model.external_lib": ["other"]}
    refused(r"external_lib='\[other,basis_rl.verl\]'", lib, pass_rates="x")


@pytest.mark.parametrize(
    "name",
    sorted(_ALONE),
)
def test_a_group_estimator_of_verl_with_one_rollout_is_refused(name: str) -> None:
    stock = {"algorithm.adv_estimator": name}
    refused(f"adv_estimator={name} compares .*rollout.n is 1.*adv_estimator=basis", stock)
    assert silent(stock | {"actor_rollout_ref.rollout.n": 8}) == Options(name)


@pytest.mark.parametrize("name", ["gdpo", "reinforce_plus_plus_baseline"])
def test_one_that_then_only_whitens_warns(name: str) -> None:
    with pytest.warns(UserWarning, match="only the batch is whitened"):
        check_settings(verl_config({"algorithm.adv_estimator": name}))


def test_verl_s_own_without_groups_run_with_one_rollout() -> None:
    for name in ("gae", "reinforce_plus_plus", "remax"):
        assert silent({"algorithm.adv_estimator": name}) == Options(name)


def test_another_plug_in_may_bring_its_own_estimator() -> None:
    own = {"algorithm.adv_estimator": "mine"}
    refused("adv_estimator is 'mine'", own)
    both = own | {"actor_rollout_ref.model.external_lib": ["my.plugin", "basis_rl.verl"]}
    assert silent(both) == Options("mine")
    refused("adv_estimator is 'mine'", both, pass_rates="x")


@pytest.mark.parametrize("version", ["0.8.0", "0.7.1.dev0", "0.8.0rc1"])
def test_an_old_verl_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    has_version(monkeypatch, version)
    refused(f"verl {version} is installed.*pip install 'verl>=0.9,<0.10'", pass_rates="x")


@pytest.mark.parametrize("version", ["0.10.0", "1.0.0.dev3"])
def test_a_newer_verl_warns(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    has_version(monkeypatch, version)
    with pytest.warns(UserWarning, match=f"verl {version} is newer"):
        check_settings(verl_config(pass_rates="x"))


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1", "0.9.2.dev0", None])
def test_the_versions_that_it_works_with(
    monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    has_version(monkeypatch, version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version()


def test_rollouts_and_columns_that_an_estimator_needs() -> None:
    refused("'group-mean' compares .*rollout.n of 2", {"algorithm.adv_estimator": "group-mean"})
    refused("'opo' compares", estimator="opo")
    refused("rollout.n of 2", estimator="reinforce-plus-plus", group_baseline=True)
    refused("'critic' needs values.*adv_estimator=gae", {"algorithm.adv_estimator": "critic"})
    refused("'remax' needs greedy_rewards.*adv_estimator=remax", estimator="remax")


def test_values_of_options_are_looked_at_without_the_table() -> None:
    refused("preset is 'papr'", pass_rates="x", preset="papr")
    refused("max_unverified is 'x'", pass_rates="x", max_unverified="x")
    refused("rho", estimator="spo", rho=[1])
    assert silent(pass_rates="x", preset="paper", variance_floor=0.1)  # goes with real rewards
    assert silent(pass_rates="x", preset="paper", betas=[0.5, 1.0])


def test_advantages_are_scaled_once() -> None:
    twice: dict[str, Any] = {"estimator": "group-mean", "normalize_advantages": "batch"}
    eight = {"actor_rollout_ref.rollout.n": 8}
    refused("normalize_advantages=batch would again", eight, **twice)
    assert silent(eight, **twice, std=False)


@pytest.mark.parametrize("changes", [KL, PENALTY])
def test_rewards_that_are_not_binary(changes: dict[str, Any], tmp_path: Path) -> None:
    for path, value in changes.items():
        assert value, path
    refused("takes rewards of 0 and 1 here", changes, estimator="basis-online", rewards="binary")
    refused("spo", changes, estimator="spo")
    assert silent(changes, estimator="basis-online")
    assert silent(changes, estimator="batch-mean")
    # BASIS has a form for either kind: the table tells.
    for kind in ("counts", "rates", "rewards"):
        options = silent(changes, pass_rates=save(tmp_path / kind, kind), preset="paper")
        config = verl_config(changes)
        if kind == "rewards":
            open_estimator(config, options)
            continue
        with pytest.raises(ConfigError, match="takes rewards of 0 and 1 here"):
            open_estimator(config, options)


def test_a_reward_model_warns_a_binary_form() -> None:
    with pytest.warns(UserWarning, match="reward_model.enable=true.*0 and 1"):
        check_settings(verl_config(REWARD_MODEL, estimator="basis-online", rewards="binary"))
    assert silent(REWARD_MODEL, estimator="batch-mean")


def test_scores_of_verl_s_own_that_are_not_binary(tmp_path: Path) -> None:
    dapo, code = [{"data_source": "math_dapo"}], [{"data_source": "apps"}]
    options = Options("basis", pass_rates="x")
    for kind in ("counts", "rewards"):
        table = PassRates.load(save(tmp_path / kind, kind))
        if kind == "rewards":
            check_scores(verl_config(), options, table, [*dapo, *code])
            continue
        with pytest.raises(ConfigError, match=r"gives data_source 'math_dapo' -1 or 1.*math_score"):
            check_scores(verl_config(), options, table, [{"data_source": "openai/gsm8k"}, *dapo])
        with pytest.raises(ConfigError, match="'apps' the share of tests"):
            check_scores(verl_config(), options, table, code)
        own = verl_config({"reward.custom_reward_function.path": "pkg://mine"})
        check_scores(own, options, table, dapo)
        check_scores(verl_config(REWARD_MODEL), options, table, dapo)
    check_scores(verl_config(), Options("batch-mean"), None, dapo)


def test_rows_that_an_estimate_sees() -> None:
    assert rows_seen(verl_config()) == 512
    assert rows_seen(verl_config({"actor_rollout_ref.rollout.n": 8})) == 4096
    separate = {"trainer.v1.trainer_mode": "separate_async"}
    assert rows_seen(verl_config(separate)) == 128
    assert rows_seen(verl_config({"trainer.v1.trainer_mode": "colocate_async"})) == 512
    fully = {"async_training.require_batches": 3}
    assert rows_seen(verl_config(fully)) == 192
    assert trainer_mode(verl_config(fully)) == "fully_async"
    assert trainer_mode(verl_config({"trainer.use_v1": False})) == "legacy"
    with pytest.warns(UserWarning, match="parameter_sync_step=4.* 128 rollouts at a time"):
        check_settings(verl_config(separate))
    with pytest.warns(UserWarning, match="fully asynchronous.* 192 rollouts at a time"):
        check_settings(verl_config(fully))
    with pytest.warns(UserWarning, match="sees 4 rollouts.*raise data.train_batch_size"):
        check_settings(verl_config({"data.train_batch_size": 4}))


@pytest.mark.parametrize("value", [None, 0, "eight", 1.5, True])
@pytest.mark.parametrize("path", ["data.train_batch_size", "actor_rollout_ref.rollout.n"])
def test_numbers_that_are_none_are_refused(path: str, value: Any) -> None:
    refused(f"{path} is {value!r}: give a whole number", {path: value}, pass_rates="x")


def test_filtering_of_groups_warns() -> None:
    filtered = {"algorithm.filter_groups.enable": True}
    with pytest.warns(UserWarning, match="drops no prompt with actor_rollout_ref.rollout.n=1"):
        check_settings(verl_config(filtered))
    with pytest.warns(UserWarning, match="baselines are drawn to the middle"):
        check_settings(verl_config(filtered | {"actor_rollout_ref.rollout.n": 2}))


def test_a_table_is_opened(tmp_path: Path) -> None:
    path = save(tmp_path / "t.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator, table = open_estimator(verl_config(), Options("basis", pass_rates=path))
        assert estimator.name == "basis"
        assert table is not None
        assert len(table) == 4
        estimator, none = open_estimator(verl_config(), Options("basis-online"))
        assert estimator.name == "basis-online"
        assert none is None


def test_a_table_that_is_missing_cut_short_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = Path(save(tmp_path / "t.parquet")).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-100])
    (tmp_path / "text.parquet").write_text("prompt,rate\n")
    for name, text in {
        "none.parquet": f"pass_rates: no file none.parquet.*looked for in {tmp_path}",
        "cut.parquet": "pass_rates: .*cut short.*build",
        "text.parquet": "pass_rates: .*not a Parquet file.*cache build",
        str(tmp_path / "none.parquet"): "no file .*none.parquet: check the path.*cache build`$",
    }.items():
        with pytest.raises(PassRatesError, match=text):
            open_estimator(verl_config(), Options("basis", pass_rates=name))
    with pytest.raises(ConfigError, match=r"needs pass rates: add \+algorithm.basis.pass_rates"):
        open_estimator(verl_config(), Options("basis"))


def test_a_table_that_nobody_reads_warns(tmp_path: Path) -> None:
    options = Options("batch-mean", pass_rates=save(tmp_path / "t.parquet", model="org/other"))
    with pytest.warns(UserWarning, match="'batch-mean' uses no pass rates"):
        open_estimator(verl_config(), options)


@pytest.mark.parametrize(
    ("made", "text", "name"),
    [
        ({"model": "org/other"}, "model is 'org/other' .* and 'org/model' in this run", "model"),
        ({"verifier": "math"}, "verifier is 'math' in the pass rates", "verifier"),
        (
            {"temperature": 0.6},
            "temperature is 0.6 in the pass rates and 1.0 .*rollout.temperature=0.6",
            "temperature",
        ),
    ],
)
def test_another_origin_is_refused_unless_it_is_named(
    tmp_path: Path, made: dict[str, Any], text: str, name: str
) -> None:
    path = save(tmp_path / "t.parquet", **made)
    with pytest.raises(PassRatesError, match=text) as caught:
        open_estimator(verl_config(), Options("basis", pass_rates=path))
    assert f"+algorithm.basis.allow_mismatch=[{name}]" in str(caught.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_estimator(verl_config(), Options("basis", pass_rates=path, allow_mismatch=(name,)))


def test_a_user_s_function_with_keywords_is_told_what_fits(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text("def score(data_source, solution_str, ground_truth, k=1): ...\n")
    place = "reward.custom_reward_function"
    plain = {f"{place}.path": str(file), f"{place}.name": "score"}
    run = plain | {f"{place}.reward_kwargs": {"k": 2}}
    table = save(tmp_path / "t.parquet", verifier="rewards:score")
    with pytest.raises(PassRatesError, match=r"'score' gets k=2 .*cache build` cannot give: write"):
        open_estimator(verl_config(run), Options("basis", pass_rates=table))
    for changes, more in ((plain, {}), (run, {"allow_mismatch": ("verifier",)})):
        open_estimator(verl_config(changes), Options("basis", pass_rates=table, **more))
    told = save(tmp_path / "told.parquet", verifier="rewards:score(k=2)")
    open_estimator(verl_config(run), Options("basis", pass_rates=told))


def test_a_value_that_an_estimator_refuses_has_its_place() -> None:
    for name, options in (("basis", {"epsilon": -1}), ("basis-online", {"rewards": "x"})):
        with pytest.raises(ConfigError, match=r"^algorithm\.basis: "):
            check_settings(verl_config(estimator=name, **options))


@pytest.mark.parametrize(
    "made", [{"top_p": 0.9}, {"top_k": 50}, {"max_tokens": 4096}, {"stop": ["\n"]}]
)
def test_other_sampling_settings_warn(tmp_path: Path, made: dict[str, Any]) -> None:
    options = Options("basis", pass_rates=save(tmp_path / "t.parquet", **made))
    with pytest.warns(UserWarning, match=f"other settings: {next(iter(made))} is"):
        open_estimator(verl_config(), options)


def test_what_the_table_does_not_tell_is_not_compared(tmp_path: Path) -> None:
    path = save(tmp_path / "t.parquet", **dict.fromkeys(MADE.to_dict()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_estimator(verl_config(), Options("basis", pass_rates=path))


def test_coverage(tmp_path: Path) -> None:
    def check(keys: list[str], name: str = "basis", **given: Any) -> None:
        options = Options(name, pass_rates=path, **given)
        check_prompts(options, *open_estimator(verl_config(), options), keys, lambda row: "text")

    path = save(tmp_path / "t.parquet")
    check(["a", "b", "b"])
    check(["a"] * 6 + ["z"], "basis-online")  # half is enough where a prompt can start unknown
    with pytest.raises(PassRatesError, match=r"know 10.0% of the training prompts, and 100.0%"):
        check(["a", *"ijklmnopq"])
    with pytest.raises(PassRatesError, match=r"know 10.0% .* and 50.0%"):
        check(["a", *"ijklmnopq"], "basis-online")
    check(["a", *"ijklmnopq"], "basis-online", min_coverage=0.1)
    check(["z"], "basis-online", min_coverage=0)
    with pytest.raises(ConfigError, match="contradicts the estimator's missing='error'"):
        check(["a"], min_coverage=0.5)
    check(["a", "z"], min_coverage=0.5, estimator_options={"missing": "prior"})
    with pytest.raises(PassRatesError, match=r"of other prompts.*'y'.*text.*own first key is 'a'"):
        check(["y", "z"])


def test_a_table_that_knows_the_prompts_in_another_form_says_so() -> None:
    table = PassRates.from_counts([prompt_key("2+2=")], [1], 2)
    chat = [{"role": "user", "content": "2+2="}]
    options = Options("basis", pass_rates="x")
    with pytest.raises(PassRatesError, match="known as a text, not a chat, and their own"):
        check_prompts(
            options, _basis(table), table, [prompt_key(chat)], lambda row: "2+2=", lambda row: chat
        )


def _basis(table: PassRates) -> Any:
    from basis_rl import Basis

    return Basis(table)
