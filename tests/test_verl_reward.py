"""A run's reward by name, verifiers as verl's reward functions, and functions of verl's."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from basis_rl import PassRates, verifiers
from basis_rl.cli.built import Built
from basis_rl.errors import ConfigError
from basis_rl.passrates import Provenance
from basis_rl.passrates.inspect.compare import Reward, differences, is_verifier
from basis_rl.verifiers import verl_names, verl_reward
from basis_rl.verl import default_scoring
from basis_rl.verl.default_scoring import check_sources
from basis_rl.verl.reward import DEFAULT, check_rows, reward_of, reward_version

OURS = verl_names.PATH
FILE = str(Path(verl_reward.__file__))
USERS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str == ground_truth), "more": 1}


def other(data_source, solution_str, ground_truth, extra_info=None):
    return extra_info["level"] * float(ground_truth in solution_str)  # a comment
    # and another


async def later(data_source, solution_str, ground_truth, extra_info=None):
    return 0.5
"""


def config(path: str | None, name: str = "compute_score", **options: Any) -> dict[str, Any]:
    """What verl's configuration says of a reward function."""
    chosen = {"path": path, "name": name, "reward_kwargs": options}
    return {
        "custom_reward_function": {"path": None, "name": None},
        "reward": {
            "custom_reward_function": chosen,
            "reward_manager": {"source": "register", "name": "naive"},
        },
    }


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's file with reward functions of verl's signature."""
    file = tmp_path / "verl_users.py"
    file.write_text(USERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "verl_users", raising=False)
    return file


def fits(verifier: str, run: dict[str, Any]) -> bool:
    """Whether a table with this verifier is taken."""
    return not differences(Provenance(verifier=verifier), Provenance(), reward_of(run))


# Names


@pytest.mark.parametrize("path", [OURS, "pkg://basis_rl/verifiers/verl_reward", FILE])
@pytest.mark.parametrize("name", sorted(verl_names.NAMED))
def test_our_functions_are_their_verifiers(path: str, name: str) -> None:
    run = config(path, name)
    assert reward_of(run) == [Reward(name.removesuffix("_score"))]
    assert reward_version(run) == verifiers.create(name.removesuffix("_score")).version
    # The older place, which verl moves.
    older = {"custom_reward_function": run["reward"]["custom_reward_function"], "reward": {}}
    assert reward_of(older) == reward_of(run)


def test_a_table_of_math_fits_math_and_nothing_else(users: Path) -> None:
    assert fits("math", config(OURS, "math_score"))
    assert fits("math", config(FILE, "math_score"))
    assert fits("math", config(OURS, verifier="math", limit_s=3.0))
    others = [config(OURS, "exact_score"), config(None), config(str(users), "compute_score")]
    assert not any(fits("math", run) for run in others)
    [difference] = differences(Provenance(verifier="math"), Provenance(), reward_of(config(None)))
    assert str(difference) == f"verifier is 'math' in the pass rates and {DEFAULT!r} in this run"


def test_a_users_function_fits_its_own_table(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(users.parent)
    for path in (str(users), users.name, f"file://{users}", "pkg://verl_users"):
        run = config(path)
        assert fits("verl_users:compute_score", run)
        assert not fits("verl_users:other", run)
        assert not fits("elsewhere:compute_score", run)
        assert fits(f"{users.parent.name}.verl_users:compute_score", run)
        assert reward_version(run) == verifiers.create("verl_users:compute_score").version
        other = reward_version(config(path, "other"))
        assert other == verifiers.create("verl_users:other").version != reward_version(run)
    # With keywords it is another function.
    assert not fits("verl_users:compute_score", config(str(users), threshold=0.5))
    [reward] = reward_of(config(str(users), threshold=0.5, name_of="x")) or []
    assert reward.name == "verl_users:compute_score(name_of='x', threshold=0.5)"


def test_a_file_of_a_package_has_its_name(tmp_path: Path) -> None:
    package = tmp_path / "pack" / "age"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "mine.py").write_text(USERS)
    run = config(str(package / "mine.py"))
    assert (reward_of(run) or [])[0].name == "pack.age.mine:compute_score"
    assert fits("mine:compute_score", run)
    assert fits("age.mine:compute_score", run)
    assert not fits("ine:compute_score", run)


def test_no_user_code_is_run_to_find_a_name(tmp_path: Path) -> None:
    file = tmp_path / "boom.py"
    file.write_text("raise SystemExit\n\n\ndef compute_score(): ...\n")
    assert (reward_of(config(str(file))) or [])[0].name == "boom:compute_score"
    assert reward_version(config(str(file))) is not None


def test_a_composed_verifier_fits_its_own_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "composed_rewards.py").write_text(
        "from basis_rl.verifiers import create\n"
        "from basis_rl.verifiers.compose import format_reward, weighted_sum\n"
        "both = weighted_sum([(create('exact'), 1.0), (format_reward(tags=['a']), 0.1)])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = verifiers.create("composed_rewards:both")
    assert made.name == "exact + 0.1*format(<a>)"
    run = config(OURS, verifier="composed_rewards:both")
    assert fits(made.name, run)
    assert not fits("exact", run)
    assert reward_version(run) == made.version
    score = verl_reward.compute_score("d", "<a></a>", "<a></a>", verifier="composed_rewards:both")
    assert score == pytest.approx(1.1)
    assert not is_verifier(made.name, [Reward("exact"), Reward("format(<a>)")])


def test_a_cache_is_extended_with_the_verifier_that_was_asked_for(tmp_path: Path) -> None:
    """A composed verifier cannot be made of the name that the provenance has."""
    for given, name in (("mine:both", "exact + 0.1*format(<a>)"), (None, "math")):
        options = {"data": [{"data": "x"}]} | ({"verifier": given} if given else {})
        build = {"verifier": name, "options": options}
        made = Provenance(verifier=name, extra={"build": build})
        PassRates.from_counts(["k"], [1], 2, provenance=made).save(tmp_path / "t.parquet")
        assert Built(str(tmp_path / "t.parquet")).verifier == (given or name)


def test_more_than_a_function(tmp_path: Path) -> None:
    managed = config(OURS, "math_score")
    managed["reward"]["reward_manager"] = {"source": "importlib", "name": "Mine"}
    assert reward_of(managed) is None
    penalised = config(OURS, "math_score")
    penalised["reward"] |= {
        "reward_manager": {"source": "register", "name": "dapo"},
        "reward_kwargs": {
            "max_resp_len": 2048,
            "overlong_buffer_cfg": {"enable": True, "len": 512, "penalty_factor": 1.0},
        },
    }
    assert reward_of(penalised) == [Reward("math"), Reward("overlong(2048, 512)")]
    assert not fits("math", penalised)
    penalised["reward"]["reward_kwargs"]["overlong_buffer_cfg"]["enable"] = False
    assert fits("math", penalised)
    model = config(None)
    model["reward"]["reward_model"] = {"enable": True, "model_path": "org/judge"}
    assert reward_of(model) == [Reward("reward model org/judge")]
    assert reward_version(model) is None
    assert reward_of({}) == [Reward(DEFAULT)]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (config(OURS, "mth_score"), "no function 'mth_score': did you mean 'math_score'"),
        (
            config(OURS),
            r"without a verifier: add \+reward.custom_reward_function.reward_kw",
        ),
        (config(OURS, verifier="mat"), "no verifier is named 'mat': did you mean 'math'"),
        (config("nowhere/mine.py"), "path=nowhere/mine.py is no file"),
        (config("x.py", name=""), r"names no function: add reward.custom_reward_function.name="),
    ],
)
def test_wrong_set_ups_are_one_line(run: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        reward_of(run)
    assert "\n" not in str(error.value)


def test_rows_that_no_reward_can_be_had_of(users: Path) -> None:
    row = {"data_source": "d", "reward_model": {"ground_truth": "1"}, "extra_info": None}
    check_rows(config(OURS, "math_score"), [row])
    check_rows(config(str(users)), [{}])
    with pytest.raises(ConfigError, match=r"row 1 of the training data has no reward_model.ground"):
        check_rows(config(OURS, "math_score"), [row, {"data_source": "d"}])
    bad = row | {"reward_model": {"ground_truth": {"target": "1"}}}
    with pytest.raises(ConfigError, match=r"row 0 of the training data: verifier 'math' compares"):
        check_rows(config(OURS, "math_score"), [bad])
    with pytest.raises(ConfigError, match=r"row 0 .* needs column 'metadata.source_dataset'"):
        check_rows(config(OURS, verifier="reasoning-gym"), [row])


def test_sources_of_verls_own_scoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scoring = tmp_path / "verl" / "utils" / "reward_score"
    scoring.mkdir(parents=True)
    (tmp_path / "verl" / "__init__.py").write_text("raise ImportError\n")
    (scoring / "__init__.py").write_text(
        "def default_compute_score(data_source, solution_str):\n"
        "    if data_source == 'a':\n        return 1\n"
        "    elif data_source in ['b', 'c'] or data_source.startswith('aime'):\n        return 2\n"
        "    raise NotImplementedError('no')\n"
    )
    spec = importlib_spec("verl", tmp_path / "verl" / "__init__.py")
    monkeypatch.setattr(default_scoring.importlib.util, "find_spec", lambda name: spec)
    check_sources(["a", "b", "c", "aime2025"])
    with pytest.raises(ConfigError, match=r"no data_source 'no': .*name=math_score"):
        check_rows(config(None), [{"data_source": "a"}, {"data_source": "no"}])
    monkeypatch.setattr(default_scoring.importlib.util, "find_spec", lambda name: None)
    check_sources(["no"])


def importlib_spec(name: str, file: Path) -> Any:
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, None, origin=str(file))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("math_score", {"limit_s": "x"}, "reward_kwargs.limit_s is 'x': give seconds above 0"),
        ("math_score", {"limit_s": -1}, "limit_s is -1: "),
        ("math_score", {"processes": 1.5}, "processes is 1.5: give a whole number"),
        ("math_score", {"limits": 3}, "reward_kwargs.limits is no option: did you mean 'limit_s'"),
        ("math_score", {"verifier": "exact"}, "reward_kwargs.verifier is no option"),
        ("compute_score", {"verifier": "math", "limit": 3}, "did you mean 'limit_s'"),
    ],
)
def test_keywords_that_our_functions_would_not_take_are_refused(
    name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        reward_of(config(OURS, name, **options))
    good = {"verifier": "math"} if name == "compute_score" else {}
    assert reward_of(config(OURS, name, limit_s=2, processes=2, **good)) == [Reward("math")]


def test_a_function_that_is_not_in_its_file_is_refused(users: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name=othr is not in .*: did you mean 'other'"):
        reward_of(config(str(users), "othr"))
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text("from verl_users import *\n")
    assert reward_of(config(str(elsewhere), "other"))


# Called as verl calls them


def test_the_functions_have_verls_signature() -> None:
    for name in (*verl_names.NAMED, "compute_score"):
        function = getattr(verl_reward, name)
        assert function.__name__ == name
        assert not inspect.iscoroutinefunction(function)
        # verl's partial adds reward_kwargs, a router and a tokenizer.
        function(
            data_source="d",
            solution_str="B",
            ground_truth="B",
            extra_info={"num_turns": 2, "rollout_reward_scores": {}},
            reward_router_address="x",
            verifier="choice",
        )
    assert verl_reward.number_score("d", "it is 7", "7") == 1.0
    assert verl_reward.compute_score("d", "it is 8", "7", verifier="number") == 0.0


def test_a_fault_of_the_set_up_is_logged_once_and_no_verdict(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl_reward, "_said", set())
    for _ in range(3):
        assert math.isnan(verl_reward.compute_score("d", "x", "x"))
        assert math.isnan(verl_reward.exact_score("d", "x", {"a": 1}))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "without a verifier" in told[0]
    assert "name a column inside it" in told[1]


def test_hostile_answers_have_their_defined_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "hostile_verl.py").write_text(
        "import os, time\n"
        "def score(completion, answer):\n"
        "    if answer == 'hang':\n        time.sleep(100)\n"
        "    if answer == 'spin':\n        while True: pass\n"
        "    if answer == 'die':\n        os._exit(1)\n"
        "    if answer == 'raise':\n        raise SystemExit\n"
        "    return None if answer == 'none' else 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    answers = ["hang", "spin", "die", "raise", "none", "fine"]
    rewards: dict[str, float] = {}

    def judge(answer: str) -> None:
        rewards[answer] = verl_reward.compute_score(
            "d", "x", answer, {"index": 0}, verifier="hostile_verl:score", limit_s=0.3
        )

    threads = [threading.Thread(target=judge, args=[answer]) for answer in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert math.isnan(rewards.pop("none"))
    assert rewards == {"hang": 0.0, "spin": 0.0, "die": 0.0, "raise": 0.0, "fine": 1.0}
    told = [record.getMessage() for record in caplog.records]
    assert 1 <= len(told) <= 3  # of four failures
    assert "verifier 'hostile_verl:score' failed on " in told[0]
    made = [key for key in verl_reward._made if "hostile_verl:score" in key]
    assert len(made) == 1  # however many threads ask first


def test_a_function_of_verls_builds_a_cache(users: Path) -> None:
    row = {
        "data_source": "d",
        "ground_truth": "7",
        "extra_info": {"level": 3.0},
        "reward_model": {"ground_truth": "7"},
    }
    for name, reward in (("compute_score", 1.0), ("other", 3.0), ("later", 0.5)):
        verifier = verifiers.create(f"verl_users:{name}", processes=1)
        assert verifier("7", row) == reward
        assert verifier.name == f"verl_users:{name}"
        verifier.close()
    verifier = verifiers.create("verl_users:compute_score")
    with pytest.raises(ConfigError, match="is called as verl calls it, with data_source: rows in"):
        verifier.check({"answer": "7"})


def test_verl_check_imports_no_torch() -> None:
    code = (
        "import sys, json; from basis_rl.verl.reward import *; "
        f"c = json.loads({json.dumps(json.dumps(config(OURS, 'math_score')))}); "
        "reward_of(c); reward_version(c); check_rows(c, []); "
        "print([m for m in ('torch', 'ray', 'verl', 'transformers') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]", done.stderr
