from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from basis_rl import verifiers
from basis_rl.errors import BasisError, ConfigError
from basis_rl.verifiers import NamedVerifier, completion_text, trl_reward

FUNCTIONS = """
def contains(completion, answer): return answer in completion
def everything(completion, **columns): return float(sorted(columns) == ["answer", "level"])
def none(completion): return None
def text(completion): return "yes"
def infinite(completion): return float("inf")
def divides(completion, answer): return 1 / 0
def mostly(completion): return 1 / int(completion)
def stops(completion): raise KeyboardInterrupt
def batch(completions, **columns): return [0.0] * len(completions)
def no_arguments(): return 0.0
def only_keywords(*, completion): return 0.0
class Judge:
    @staticmethod
    def score(completion, level=3): return float(level)
value = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"verifier_functions_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    (tmp_path / f"{name}_broken.py").write_text("import no_such_module_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(
    ("completion", "answer", "reward"),
    [
        ("42", "42", 1.0),
        (" 42\n", "42 ", 1.0),
        ("42", 42, 1.0),
        ("42", 42.0, 1.0),
        ("4.5", 4.5, 1.0),
        ("42.", "42", 0.0),
        ("Yes", "yes", 0.0),
        ("", "", 1.0),
        ("inf", math.inf, 1.0),
    ],
)
def test_exact(completion: str, answer: Any, reward: float) -> None:
    assert verifiers.create("exact")(completion, {"answer": answer}) == reward


def test_exact_with_nested_answers_and_without_one() -> None:
    verifier = verifiers.create("exact", answer_column="reward_model.ground_truth")
    assert verifier("7", {"reward_model": {"ground_truth": "7"}}) == 1.0
    assert math.isnan(verifier("7", {"reward_model": {"ground_truth": None}}))
    assert verifier.answer_column == "reward_model.ground_truth"
    with pytest.raises(ConfigError, match="did you mean 'anwser'"):
        verifiers.create("exact")("7", {"anwser": "7"})


@pytest.mark.parametrize("name", ["exact", "math"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"target": "7", "all": {"x": 1}}, "(answer.target, answer.all, answer.all.x)"),
        (["7"], "is ['7'] (list): name another column"),
        (True, "is True (bool)"),
    ],
)
def test_answers_that_are_no_text_or_number(name: str, answer: Any, words: str) -> None:
    verifier = verifiers.create(name)
    assert verifier.answer_column == "answer"
    for ask in (verifier.check, lambda row: verifier("7", row)):
        with pytest.raises(ConfigError) as caught:
            ask({"answer": answer})
        assert words in str(caught.value)


@pytest.fixture(scope="module")
def math_verifier() -> Iterator[NamedVerifier]:
    verifier = verifiers.create("math", processes=1, limit_s=0.5)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("completion", "answer", "reward"),
    [
        (r"so $x = \frac{2}{4}$", r"\frac12", 1.0),
        (r"\boxed{0.5}", r"$\frac{1}{2}$", 1.0),
        ("$3$, no, $4$", "4", 1.0),
        ("The answer is 1,000.", "1000", 1.0),
        ("#### 18", "She sells 9 + 9 eggs. #### 18", 1.0),
        ("It is 17.", "She sells 9 + 9 eggs. #### 18", 0.0),
        (r"$(3, \frac{\pi}{2})$", r"\left( 3, \frac{\pi}{2} \right)", 1.0),
        (r"\boxed{5}", 5.0, 1.0),
        ("I do not know", "5", 0.0),
        ("", "5", 0.0),
        ("lone surrogate \ud800 $3$", "3", 1.0),
    ],
)
def test_math(math_verifier: NamedVerifier, completion: str, answer: Any, reward: float) -> None:
    assert math_verifier(completion, {"answer": answer}) == reward


@pytest.mark.parametrize("answer", [None, "", "#### "])
def test_math_without_a_readable_answer_gives_no_verdict(
    math_verifier: NamedVerifier, answer: Any
) -> None:
    assert math.isnan(math_verifier(r"\boxed{5}", {"answer": answer}))


def test_math_time_out_is_reward_0_and_counted(math_verifier: NamedVerifier) -> None:
    math_verifier.failures.clear()
    assert math_verifier(r"\boxed{10^{10^{10}}}", {"answer": "7"}) == 0.0
    assert math_verifier.failures == {"time-out": 1}
    math_verifier.failures.clear()
    assert math_verifier(r"\boxed{7}", {"answer": "7"}) == 1.0


def test_math_from_several_threads(math_verifier: NamedVerifier) -> None:
    rewards: dict[int, float] = {}

    def ask(number: int) -> None:
        rewards[number] = math_verifier(rf"\boxed{{{number}}}", {"answer": "3"})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == {i: float(i == 3) for i in range(6)}


def test_math_can_be_pickled(math_verifier: NamedVerifier) -> None:
    copy = pickle.loads(pickle.dumps(math_verifier))
    assert copy("$3$", {"answer": "3"}) == 1.0
    copy.close()


def test_reasoning_gym() -> None:
    import reasoning_gym

    verifier = verifiers.create("reasoning-gym", answer_column="answer")
    assert verifier.answer_column == "answer"
    entry = reasoning_gym.create_dataset("letter_counting", size=1, seed=1)[0]
    assert entry["answer"] == "3"
    assert verifier(" 3\n", entry) == 1.0
    assert verifier("I count. <answer> 3 </answer>", entry) == 1.0
    assert verifier("4", entry) == 0.0
    assert verifier("3 or so", entry) == pytest.approx(1 / 7)
    assert not verifier.failures


def test_reasoning_gym_rows_of_something_else() -> None:
    verifier = verifiers.create("reasoning-gym")
    with pytest.raises(ConfigError, match=r"needs column 'metadata.source_dataset'"):
        verifier("3", {"answer": "3"})
    with pytest.raises(ConfigError, match="did you mean 'letter_counting'"):
        verifier("3", {"answer": "3", "metadata": {"source_dataset": "letter_countin"}})


def test_function(module: str) -> None:
    verifier = verifiers.create(f"{module}:contains")
    assert verifier("the 42", {"answer": "42", "level": 1}) == 1.0
    assert verifier("the 41", {"answer": "42", "level": 1}) == 0.0
    assert verifier.version.startswith("sha256:")
    everything = verifiers.create(f"{module}:everything")
    assert everything("x", {"answer": "", "level": 1, "completion": "of the data"}) == 1.0
    assert verifiers.create(f"{module}:Judge.score")("x", {"answer": ""}) == 3.0


def test_function_without_a_verdict(module: str) -> None:
    assert math.isnan(verifiers.create(f"{module}:none")("x", {}))


def test_exceptions_are_reward_0_and_counted(module: str) -> None:
    verifier = verifiers.create(f"{module}:divides")
    assert verifier("x", {"answer": "1"}) == 0.0
    assert verifier("x", {"answer": "1"}) == 0.0
    assert verifier.failures == {"ZeroDivisionError": 2}
    with pytest.raises(KeyboardInterrupt):
        verifiers.create(f"{module}:stops", processes=0)("x", {})


def test_a_verifier_that_mostly_fails_is_an_error(module: str) -> None:
    verifier = verifiers.create(f"{module}:contains")
    for _ in range(63):
        assert verifier("4", {"answer": 4}) == 0.0
    with pytest.raises(BasisError) as caught:
        verifier("4", {"answer": 4})
    message = str(caught.value)
    assert "failed on 64 of 64 completions (first: TypeError: 'in <string>' requires" in message
    assert f"in {module}.py, line 2)" in message
    assert "\n" not in message


def test_a_verifier_that_fails_on_half_is_accepted(module: str) -> None:
    verifier = verifiers.create(f"{module}:mostly")
    for _ in range(40):
        assert verifier("2", {}) == 0.5
        assert verifier("0", {}) == 0.0
    assert verifier.failures == {"ZeroDivisionError": 40}
    with pytest.raises(BasisError, match="41 of 81"):
        verifier("0", {})


@pytest.mark.parametrize(
    ("function", "columns", "words"),
    [
        ("contains", {"anser": "1"}, "needs column 'answer'"),
        ("text", {}, "returned 'yes'"),
        ("infinite", {}, "returned inf"),
    ],
)
def test_faults_of_the_set_up_are_errors(
    module: str, function: str, columns: Any, words: str
) -> None:
    verifier = verifiers.create(f"{module}:{function}")
    with pytest.raises(ConfigError) as caught:
        verifier("x", columns)
    assert words in str(caught.value)
    if function == "contains":
        with pytest.raises(ConfigError, match=words):
            verifier.check(columns)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exakt", "did you mean 'exact'?"),
        ("maths", "did you mean 'math'?"),
        ("{module}:contain", "did you mean 'contains'?"),
        ("{module}:value", "is a int: name a function"),
        ("{module}:batch", "takes a list of completions"),
        ("{module}:no_arguments", "takes no completion"),
        ("{module}:only_keywords", "takes no completion"),
        ("{module}_broken:f", "ModuleNotFoundError"),
        ("no_such_module_anywhere:f", "cannot import module"),
        ("{module}:", "write module:function"),
        (":f", "write module:function"),
    ],
)
def test_names_that_make_no_verifier(module: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        verifiers.create(name.format(module=module))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_trl_reward() -> None:
    reward = trl_reward(verifiers.create("exact"))
    assert reward.__name__ == "exact"
    completions = ["1", [{"role": "assistant", "content": "2"}], "3"]
    rewards = reward(
        completions=completions, prompts=["a", "b", "c"], answer=["1", "3", None], trainer_state=9
    )
    assert rewards == [1.0, 0.0, None]


def test_trl_arguments_of_other_lengths_are_no_columns() -> None:
    seen: list[Any] = []
    verifier = NamedVerifier("see", "1", lambda _, columns: seen.append(dict(columns)) or 1.0)
    trl_reward(verifier)(["1", "2"], answer=["a", "b"], short=["x"], long=[1, 2, 3], text="ab")
    assert seen == [{"answer": "a"}, {"answer": "b"}]


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("text", "text"),
        ([{"role": "assistant", "content": "a"}], "a"),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": []},
                {"role": "tool", "content": "t"},
                {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
            ],
            "b",
        ),
        ([{"role": "assistant", "content": None}], ""),
        ([], ""),
    ],
)
def test_completion_text(completion: Any, text: str) -> None:
    assert completion_text(completion) == text


def test_a_completion_that_is_none() -> None:
    with pytest.raises(ConfigError, match="give a text or a list of messages"):
        completion_text(3)
