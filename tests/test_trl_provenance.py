from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from tiny_model import (
    RecordingTrainer,
    parity,
    sums,
    table_for,
    tiny_config,
    tiny_model,
    tiny_trainer,
)

from basis_rl import BasisError, PassRatesError
from basis_rl.adapters.checks import check_provenance, named_rewards
from basis_rl.passrates import Provenance
from basis_rl.passrates.inspect.compare import Reward, same_model
from basis_rl.trl.option_names import TRL
from basis_rl.trl.setup import run_provenance


def one_line(error: pytest.ExceptionInfo[BasisError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def known(**changes: Any) -> Provenance:
    entries = {
        "model": "org/model", "revision": "main", "verifier": "math", "temperature": 1.0,
        "top_p": 1.0, "top_k": 0, "max_tokens": 512,
    }  # fmt: skip
    return Provenance(**(entries | changes))


MATH, DIGIT = Reward("math"), Reward("mine:digit", 0.5)


@pytest.mark.parametrize(
    ("cached", "rewards", "name"),
    [
        ({"model": "org/other"}, [MATH], "model"),
        ({"model": "me/model"}, [MATH], "model"),
        ({"revision": "v2"}, [MATH], "revision"),
        ({"verifier": "exact"}, [MATH], "verifier"),
        ({"verifier": "mine:reward"}, [Reward("other")], "verifier"),
        ({"verifier": "mine:reward"}, [Reward("other:reward")], "verifier"),
    ],
)
def test_another_model_or_verifier_is_an_error_unless_allowed(
    cached: dict[str, Any], rewards: list[Reward], name: str
) -> None:
    current = known(verifier=None)
    with pytest.raises(PassRatesError) as caught:
        check_provenance(known(**cached), current, rewards, [], TRL)
    one_line(caught, f"{name} is", f"allow_mismatch=['{name}']", "basis-rl cache build")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_provenance(known(**cached), current, rewards, [name], TRL)


@pytest.mark.parametrize(
    ("verifier", "rewards", "shown"),
    [
        ("math", [MATH, DIGIT], "'math + 0.5 x mine:digit'"),
        ("math", [Reward("math", 2.0)], "'2 x math'"),
        ("math", [MATH, Reward(None)], "'math + an unnamed function'"),
        ("math + mine:digit", [MATH, DIGIT], "'math + 0.5 x mine:digit'"),
        ("math + math", [MATH, DIGIT], "'math + 0.5 x mine:digit'"),
    ],
)
def test_a_sum_of_rewards_needs_a_table_of_that_sum(
    verifier: str, rewards: list[Reward], shown: str
) -> None:
    with pytest.raises(PassRatesError) as caught:
        check_provenance(known(verifier=verifier), known(verifier=None), rewards, [], TRL)
    one_line(caught, shown, "PassRates.from_rewards", "allow_mismatch=['verifier']")
    assert "cache build" not in str(caught.value)


@pytest.mark.parametrize(
    ("cached", "rewards"),
    [
        ({}, [MATH]),
        ({"verifier": "mine:reward"}, [Reward("reward")]),  # of a script
        ({"verifier": "mine:reward"}, [Reward("mine:reward")]),
        ({"verifier": "reward"}, [Reward("mine:reward")]),
        ({"verifier": "exact"}, [Reward(None)]),  # a lambda: nobody knows
        ({"verifier": "0.5 x mine:digit + math"}, [MATH, DIGIT]),
        ({"model": None, "verifier": None, "temperature": None}, [MATH, DIGIT]),
    ],
)
def test_what_agrees_or_is_unknown_passes(cached: dict[str, Any], rewards: list[Reward]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_provenance(known(**cached), known(verifier=None), rewards, [], TRL)


def test_reward_functions_are_named_with_their_module_and_weight() -> None:
    functions = [parity, lambda completions, **_: [0.0], one_line]
    assert named_rewards(functions, None)[:2] == [Reward("tiny_model:parity"), Reward(None)]
    assert named_rewards(functions, [0.5, 0.0, 2.0]) == [
        Reward("tiny_model:parity", 0.5),
        Reward("test_trl_provenance:one_line", 2.0),
    ]


def test_a_run_is_described_by_its_model_verifier_and_sampling(tmp_path: Path) -> None:
    from basis_rl.verifiers import create, trl_reward

    config = tiny_config(
        tmp_path, temperature=0.7, top_p=0.9, top_k=5, model_init_kwargs={"revision": "v2"}
    )
    reward = trl_reward(create("exact"))
    assert run_provenance(config, "org/model", [reward]) == Provenance(
        model="org/model",
        revision="v2",
        temperature=0.7,
        top_p=0.9,
        top_k=5,
        max_tokens=6,
        stop=[],
        verifier_version=create("exact").version,
    )
    stopping = tiny_config(tmp_path, generation_kwargs={"stop_strings": "\n"})
    assert run_provenance(stopping, "org/model", [reward]).stop == ["\n"]
    assert run_provenance(config, "org/model", [reward, parity]).verifier_version is None
    own = trl_reward(create("tiny_model:sums"))
    assert named_rewards([reward, own], None) == [Reward("exact"), Reward("tiny_model:sums")]


def test_other_sampling_settings_are_one_warning() -> None:
    with pytest.warns(UserWarning, match="temperature is 0.6") as caught:
        check_provenance(known(temperature=0.6, max_tokens=99), known(), [MATH], [], TRL)
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
        ("/runs/a/final", "/runs/b/final", False),
        ("/runs/a/final", "/copy/a/final", True),
        ("/runs/x/checkpoint-100", "/runs/y/checkpoint-100", False),
        (f"/hub/one/snapshots/{'a' * 40}", f"/hub/one/snapshots/{'b' * 40}", False),
        (f"/one/snapshots/{'a' * 40}", f"/two/snapshots/{'a' * 40}", True),
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
    make([], model="org/model", verifier="tiny_model:parity")
    with pytest.raises(PassRatesError, match="'tiny_model:parity' in this run"):
        make([], verifier="mine:parity")
    with pytest.raises(PassRatesError, match="model is 'org/base'"):
        make([], model="org/base")
    with pytest.raises(PassRatesError, match="verifier is 'exact'"):
        make(["model"], model="org/base", verifier="exact")
    make(["model", "verifier"], model="org/base", verifier="exact")
    with pytest.warns(UserWarning, match="top_k is 20"):
        make([], top_k=20)
