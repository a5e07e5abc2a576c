"""Numbers by prompt key: look-up, growth, and what is saved of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from basis_rl import StateError
from basis_rl.estimators.prompt_states import PromptStates

# Any code point, also halves of surrogate pairs, of one to four bytes.
texts = st.text(st.characters(exclude_categories=()), max_size=6)


def filled(keys, **columns):
    states = PromptStates({"a": 0.5, "b": -1.0})
    states.rows(keys)
    for name, values in columns.items():
        states[name][:] = values
    return states


@settings(deadline=None)
@given(st.lists(texts, unique=True, max_size=12))
@example(["\ud835", "\udefd", "\ud835\udefd", "𝛽", "", "é\0", "\0"])
def test_keys_come_back_as_they_were(keys):
    states = filled(keys, a=np.arange(len(keys)))
    loaded = PromptStates({"a": 0.0, "b": 0.0})
    loaded.load(states.to_dict())
    assert len(loaded) == len(keys)
    assert loaded.known(keys).tolist() == list(range(len(keys)))
    np.testing.assert_array_equal(loaded["a"], np.arange(len(keys)))
    np.testing.assert_array_equal(loaded["b"], -1.0)


def test_saved_sizes_are_those_of_the_encoded_keys():
    saved = filled(["aé", "", "𝛽", "\ud800"]).to_dict()
    assert saved["key_sizes"].tolist() == [3, 0, 4, 3]
    assert bytes(saved["keys"]) == "aé𝛽\ud800".encode("utf-8", "surrogatepass")


def test_loaded_states_grow_and_share_nothing_with_what_was_saved():
    saved = filled(["x", "y"]).to_dict()
    loaded = PromptStates({"a": 0.5, "b": -1.0})
    loaded.load(saved)
    more = [f"more {i}" for i in range(200)]
    assert loaded.rows(["y", *more])[:2].tolist() == [1, 2]
    loaded["a"][:] = 9.0
    assert loaded["b"].tolist() == [-1.0] * 202
    assert saved["columns"]["a"].tolist() == [0.5, 0.5]
    assert PromptStates({"a": 0.5}).rows(["x", "x"]).tolist() == [0, 0]


def damaged(what):
    saved = filled(["aé", "b"]).to_dict()
    a = saved["columns"]["a"]
    return {
        "cut within a character": {**saved, "key_sizes": np.array([2, 2], np.int32)},
        "a negative size": {**saved, "key_sizes": np.array([5, -1], np.int32)},
        "sizes of another text": {**saved, "key_sizes": np.array([3, 2], np.int32)},
        "sizes that are no whole numbers": {**saved, "key_sizes": np.array([3.0, 1.0])},
        "keys of another type": {**saved, "keys": saved["keys"].astype(float)},
        "keys in a matrix": {**saved, "keys": saved["keys"][None]},
        "a repeated key": {
            **saved,
            "keys": np.frombuffer(b"bb", np.uint8),
            "key_sizes": np.array([1, 1], np.int32),
        },
        "no column": {**saved, "columns": {"b": a}},
        "a short column": {**saved, "columns": {"a": a[:1], "b": a}},
        "a column that is not finite": {**saved, "columns": {"a": a, "b": [0.0, np.nan]}},
    }[what]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("cut within a character", "ends within a character"),
        ("a negative size", "do not belong together"),
        ("sizes of another text", "do not belong together"),
        ("sizes that are no whole numbers", "do not belong together"),
        ("keys of another type", "do not belong together"),
        ("keys in a matrix", "do not belong together"),
        ("a repeated key", "repeat a key"),
        ("no column", "have no 'a'"),
        ("a short column", r"'a' has shape \(1,\) for 2 prompts"),
        ("a column that is not finite", "'b' of prompt 1 is nan"),
    ],
)
def test_damage_is_named_and_leaves_what_was_there(what, message):
    states = filled(["kept"], a=3.0)
    with pytest.raises(StateError, match=message) as caught:
        states.load(damaged(what))
    assert "\n" not in str(caught.value)
    assert states.known(["kept", "b"]).tolist() == [0, -1]
    assert states["a"].tolist() == [3.0]
