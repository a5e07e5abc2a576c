from __future__ import annotations

import math
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_rl import verifiers
from basis_rl.errors import ConfigError
from basis_rl.train.config import RewardItem, RewardSection
from basis_rl.train.rewards import ColumnReward, make_verifiers
from basis_rl.verifiers import NamedVerifier, Verdict, trl_reward
from basis_rl.verifiers.compose import format_reward, length_penalty, overlong, weighted_sum
from basis_rl.verifiers.verl_reward import (
    choice_score,
    exact_score,
    math_score,
    number_score,
    verl_reward,
)


def failing(completion: str, columns: Any) -> float | None:
    if completion == "fail":
        raise ZeroDivisionError
    return None if completion == "none" else 1.0


def test_a_weighted_sum() -> None:
    verifier = weighted_sum(
        [(verifiers.create("exact"), 1), (format_reward(r"\d"), 0.1), (format_reward("x"), -2)]
    )
    assert verifier.name == r"exact + 0.1*format(\d) - 2*format(x)"
    assert verifier.version == "1 + 1 + 1"
    assert verifier.answer_column == "answer"
    assert verifier("7", {"answer": "7"}) == pytest.approx(1.1)
    assert verifier("8", {"answer": "7"}) == pytest.approx(0.1)
    assert verifier("x8", {"answer": "7"}) == pytest.approx(-1.9)
    assert verifier.submit(["7", "y"], {"answer": "7"}).result() == [Verdict(1.1), Verdict(0.0)]
    assert verifier.calls == 5
    with pytest.raises(ConfigError, match="needs column 'answer'"):
        verifier.check({})
    with pytest.raises(ConfigError, match="needs column 'answer'"):
        verifier("7", {})


def test_parts_that_fail_or_give_no_verdict() -> None:
    part = NamedVerifier("part", "3", failing)
    verifier = weighted_sum([(part, 0.5), (format_reward("^a"), 1)])
    assert verifier.submit(["fail", "none", "a", "b"], {}).result() == [
        Verdict(0.0, "ZeroDivisionError"),
        Verdict(None),
        Verdict(1.5),
        Verdict(0.5),
    ]
    assert verifier.failures == {"ZeroDivisionError": 1}
    assert weighted_sum([(part, 0.5), (format_reward("fail"), 1)])("fail", {}) == 1.0


def test_a_sum_with_parts_in_worker_processes(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "composed_functions.py").write_text(
        "import os\ndef pid(completion): return os.getpid()"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    part = verifiers.create("composed_functions:pid", processes=1)
    verifier = weighted_sum([(part, 1), (format_reward("a"), 1)])
    first, second = verifier.submit(["a", "b"], {}).result(timeout=20)
    assert first.reward == second.reward + 1
    copy = pickle.loads(pickle.dumps(verifier))
    assert copy("b", {}) not in (second.reward, 0.0)
    copy.close()
    verifier.close()


@pytest.mark.parametrize("parts", [[], [(format_reward("a"), math.inf)]])
def test_sums_that_make_no_sense(parts: Any) -> None:
    with pytest.raises(ConfigError, match="give one or more, and finite weights"):
        weighted_sum(parts)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        ("\n<think>a\nb</think> so <answer></answer> c", 1.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a<answer></think>b</answer>", 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.0),
        ("<think>a</think>", 0.0),
        ("</think><think><answer></answer>", 0.0),
        ("", 0.0),
    ],
)
def test_format_with_tags(text: str, reward: float) -> None:
    verifier = format_reward(tags=["think", "answer"])
    assert verifier.name == "format(<think><answer>)"
    assert verifier(text, {}) == reward
    assert pickle.loads(pickle.dumps(verifier))(text, {}) == reward


def test_format_with_a_pattern() -> None:
    verifier = format_reward(r"<think>.*</think>.*\\boxed\{")
    assert verifier("<think>a\nb</think>\nso \\boxed{1}", {}) == 1.0
    assert verifier("<think>a\nb</think>\nso 1", {}) == 0.0


@pytest.mark.parametrize("options", [{}, {"pattern": "a", "tags": ["b"]}, {"pattern": "("}])
def test_formats_that_make_no_sense(options: Any) -> None:
    with pytest.raises(ConfigError, match="format_reward"):
        format_reward(**options)


def test_the_overlong_penalty_of_dapo() -> None:
    # The paper's figures: 20,480 tokens at most, the last 4,096 of them with a growing penalty.
    lengths = [0, 16384, 17408, 18432, 20480, 20481, 10**9]
    assert [overlong(length, 20480, 4096) for length in lengths] == [0, 0, -0.25, -0.5, -1, -1, -1]


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, 300))
def test_the_penalty_falls_and_is_continuous(buffer: int, more: int, length: int) -> None:
    before, after = (overlong(n, buffer + more, buffer) for n in (length, length + 1))
    assert -1 <= after <= before <= 0
    assert before - after <= 1 / buffer + 1e-12


def test_length_penalty() -> None:
    exact = verifiers.create("exact")
    verifier = length_penalty(exact, max_tokens=10, buffer=4, weight=0.5)
    assert verifier.name == "exact + 0.5*overlong(10, 4)"
    row = {"answer": "7"}
    assert verifier("7", row | {"completion_tokens": 8}) == 0.75
    assert verifier("7", row | {"completion_ids": [1] * 9}) == 0.625
    assert verifier("7", row) == 1.0
    assert verifier("x" * 32, row) == -0.25
    both = verifier.submit(["7", "8"], row | {"completion_tokens": [6, 99]}).result()
    assert both == [Verdict(1.0), Verdict(-0.5)]
    assert trl_reward(verifier)(["7", "7"], answer=["7", "7"], completion_ids=[[1], [1] * 99]) == [
        1.0,
        0.5,
    ]
    with pytest.raises(ConfigError, match="has 3 lengths for 2 completions"):
        verifier.submit(["7", "8"], row | {"completion_tokens": [1, 2, 3]}).result()
    with pytest.raises(ConfigError, match="the buffer is above 0"):
        length_penalty(exact, max_tokens=10, buffer=0)


def test_verl_signature() -> None:
    seen: list[Any] = []
    verifier = NamedVerifier("see", "1", lambda _, columns: seen.append(columns) or 0.5)
    score = verl_reward(verifier)(
        data_source="gsm8k", solution_str="x", ground_truth="7", extra_info={"index": 3}
    )
    assert score == 0.5
    wanted = {"index": 3, "data_source": "gsm8k", "ground_truth": "7", "answer": "7"}
    assert seen == [{**wanted, "extra_info": {"index": 3}}]
    assert math.isnan(verl_reward(NamedVerifier("n", "1", failing))("", "none", "", None))


def test_verl_reward_functions() -> None:
    pytest.importorskip("math_verify")
    assert exact_score("d", "7 ", "7") == 1.0
    assert choice_score("d", "The answer is (B)", "B", {"index": 0}) == 1.0
    assert number_score("d", "so 1,000", "1000", None) == 1.0
    assert math_score("d", r"\boxed{\frac{2}{4}}", "0.5", {}) == 1.0
    assert math_score(data_source="d", solution_str="6", ground_truth="7", extra_info=None) == 0.0


def test_verl_can_load_the_file_by_its_path() -> None:
    import importlib.util

    from basis_rl.verifiers import verl_reward as module

    spec = importlib.util.spec_from_file_location("custom_module", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.number_score("d", "7", "7") == 1.0


def test_the_documented_configuration(tmp_path: Path, monkeypatch: Any) -> None:
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("math_verify")
    docs = (Path(__file__).parents[1] / "docs" / "verifiers.md").read_text()
    source, rest = docs.split("```python\n# my_rewards.py\n")[1].split("```", 1)
    (tmp_path / "my_rewards.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    reward = yaml.safe_load(rest.split("```yaml\n")[1].split("```")[0])["reward"]
    section = RewardSection(
        [f if isinstance(f, str) else RewardItem(**f) for f in reward["functions"]]
    )
    texts = ["<think>a</think><answer>$7$</answer>", "x $7$", "$8$"]
    ids = [[0] * length for length in (9, 2000, 3)]
    made = make_verifiers(section)
    functions = [ColumnReward(verifier, {"k": {"answer": "7"}}) for verifier in made]
    rewards = [give(texts, prompt_key=["k"] * 3, completion_ids=ids) for give in functions]
    for verifier in made:
        verifier.close()
    assert rewards[:2] == [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert rewards[2] == [0.0, -464 / 512, 0.0]
    assert [item.weight for item in section.items()] == [1.0, 0.1, 0.5]
