"""A state as a file: it comes back as it was, or is refused."""

from __future__ import annotations

import numpy as np
import pytest

from basis_rl import RewardBatch, StateError
from basis_rl.estimators import Kae
from basis_rl.state_files import has_arrays, read_state, write_state


def kae(steps: int) -> Kae:
    estimator = Kae(clock="steps", window=3)
    for step in range(steps):
        estimator.estimate(RewardBatch(["a", "é", "c"], [step % 2, 1.0, 0.0], step=step))
    return estimator


def same(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one == other


@pytest.mark.parametrize(
    "state",
    [
        {"a": [1, 2.5, None, "é\ud800"], "b": {"c": float("inf")}},
        {"a": [np.arange(3), {"b": np.zeros((2, 0))}], "name": "x"},
        {"by_source": {"\0array": [1.0, 2.0]}, "also": {"\0array": 1, "b": 2}},
        {"by_source": {"\0array": [1.0, 2.0]}, "numbers": np.arange(2, dtype=np.uint16)},
    ],
)
def test_a_state_comes_back_as_it_was(state, tmp_path):
    write_state(state, tmp_path / "state")
    loaded = read_state(tmp_path / "state")
    assert loaded.keys() == state.keys()
    np.testing.assert_equal(loaded, state)
    is_archive = (tmp_path / "state").read_bytes()[:2] == b"PK"
    assert is_archive == has_arrays(state)


def test_a_changed_byte_is_found_or_does_not_matter(tmp_path):
    estimator = kae(3)
    good = estimator.state_dict()
    path = tmp_path / "state.npz"
    write_state(good, path)
    content = path.read_bytes()
    messages = []
    for place in range(0, len(content), 5):
        changed = bytearray(content)
        changed[place] ^= 0x81
        path.write_bytes(changed)
        try:
            estimator.load_state_dict(read_state(path))
        except StateError as error:
            messages.append(str(error))
        assert same(estimator.state_dict(), good), place
    assert len(messages) > len(content) / 10
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(share, tmp_path):
    for state in (kae(3).state_dict(), {"estimator": "zero", "numbers": [1, 2]}):
        path = tmp_path / "state"
        write_state(state, path)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(StateError, match="resume from an earlier checkpoint"):
            read_state(path)


@pytest.mark.parametrize("content", [b"[1, 2]", b"3", b"\xff\xfe", b"PK", b"PK\3\4" + b"\0" * 40])
def test_a_file_of_something_else_is_refused(content, tmp_path):
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(StateError, match="resume from an earlier checkpoint") as caught:
        read_state(tmp_path / "state")
    assert "\n" not in str(caught.value)
    with pytest.raises(StateError):
        read_state(tmp_path / "missing")
