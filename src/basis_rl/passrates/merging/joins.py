"""One table of pass rates and more rollouts of the same kind in a new table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from basis_rl.batch import IntArray
from basis_rl.errors import PassRatesError

if TYPE_CHECKING:
    from basis_rl.passrates.contents import Kind
    from basis_rl.passrates.table import PassRates


class Joint(NamedTuple):
    """Prompts of two tables together.

    Attributes
    ----------
    rows : int array
        Row of each prompt of the second table in the joint one.
    keys : list of str
    sources, prompt_hashes : list of str or None
    """

    rows: IntArray
    keys: list[str]
    sources: list[str] | None
    prompt_hashes: list[str] | None


def check_kind(table: PassRates, wanted: Kind) -> None:
    """Refuse to add counts to rewards, rewards to counts, and anything to rates.

    Raises
    ------
    PassRatesError
    """
    if table.kind == "rates":
        raise PassRatesError(
            "this table holds rates whose number of rollouts is unknown, so none can be added: "
            "import it again with the number, `basis-rl cache import --n N`, if you know it"
        )
    if table.kind != wanted:
        raise PassRatesError(
            f"this table holds {table.kind}, not {wanted}: add with with_{table.kind}"
        )


def counts(table: PassRates, more: PassRates) -> PassRates:
    """Tables of counts, summed where they share a prompt."""
    assert table.successes is not None
    assert more.successes is not None
    joint = _join(table, more)
    n = np.zeros(len(joint.keys), dtype=np.int64)
    successes = np.zeros(len(joint.keys), dtype=np.int64)
    n[: len(table)], successes[: len(table)] = table.n, table.successes
    n[joint.rows] += more.n
    successes[joint.rows] += more.successes
    return type(table).from_counts(
        joint.keys,
        successes,
        n,
        sources=joint.sources,
        prompt_hashes=joint.prompt_hashes,
        provenance=table.provenance.extended(),
    )


def rewards(table: PassRates, more: PassRates) -> PassRates:
    """Tables of rewards; a shared prompt has the first table's rewards, then the second's."""
    assert table.reward_values is not None
    assert more.reward_values is not None
    joint = _join(table, more)
    own = np.repeat(np.arange(len(table)), table.n)
    owner = np.concatenate([own, np.repeat(joint.rows, more.n)])
    values = np.concatenate([table.reward_values, more.reward_values])
    return type(table)(
        joint.keys,
        np.bincount(owner, minlength=len(joint.keys)),
        reward_values=values[np.argsort(owner, kind="stable")],
        sources=joint.sources,
        prompt_hashes=joint.prompt_hashes,
        provenance=table.provenance.extended(),
    )


def _join(table: PassRates, more: PassRates) -> Joint:
    rows = table.rows(more.keys)
    new = rows < 0
    _check_sources(table, more, rows)
    fresh = np.flatnonzero(new).tolist()
    sources = table.sources
    if sources is not None:
        sources = sources + [(more.sources or [])[i] for i in fresh]
    rows[new] = len(table) + np.arange(len(fresh))
    keys = [*table.keys, *(more.keys[i] for i in fresh)]
    return Joint(rows, keys, sources, _hashes(table, more, rows, len(keys)))


def _check_sources(table: PassRates, more: PassRates, rows: IntArray) -> None:
    if more.sources is not None and table.sources is None:
        raise PassRatesError("this table has no sources: add without sources=")
    if table.sources is None:
        return
    if more.sources is None:
        if (rows < 0).any():
            key = more.keys[int((rows < 0).argmax())]
            raise PassRatesError(f"prompt {key!r} is new and this table has sources: pass sources=")
        return
    for key, row, source in zip(more.keys, rows.tolist(), more.sources, strict=True):
        if row >= 0 and table.sources[row] != source:
            raise PassRatesError(
                f"prompt {key!r} has source {table.sources[row]!r} here and {source!r} in "
                "what is added: use one name, or other keys"
            )


def _hashes(table: PassRates, more: PassRates, rows: IntArray, prompts: int) -> list[str] | None:
    """Hashes of the joint table; one that only one side knows is kept."""
    if table.prompt_hashes is None and more.prompt_hashes is None:
        return None
    before: Sequence[str] = table.prompt_hashes or [""] * len(table)
    joint = [*before, *[""] * (prompts - len(before))]
    for key, row, value in zip(more.keys, rows.tolist(), more.prompt_hashes or (), strict=False):
        if joint[row] and value and joint[row] != value:
            raise PassRatesError(
                f"prompt {key!r} has hash {joint[row]} here and {value} in what is added, so its "
                "text is another one: give a changed prompt a key of its own"
            )
        joint[row] = joint[row] or value
    return joint
