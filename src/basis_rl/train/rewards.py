"""Reward functions as TRL calls them, fed with the columns of the prompts' own rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.prompts import Prompt
from basis_rl.prompts.columns import required_value
from basis_rl.train.config import RewardItem, RewardSection
from basis_rl.verifiers import NamedVerifier, completion_text, create
from basis_rl.verifiers.compose import TOKENS_COLUMN
from basis_rl.verifiers.rewards import batch_rewards

KEY_COLUMN = "prompt_key"
SOURCE_COLUMN = "prompt_source"
_MAX_WITHOUT_ANSWER = 0.1
# Verifiers of the package that read a column of their own too.
_NEEDED_COLUMNS = {"reasoning-gym": ["metadata.source_dataset"]}


class ColumnReward:
    """A verifier as a TRL reward function.

    The training set that TRL sees holds prompts and keys only: nested columns of mixed types (the
    metadata of reasoning-gym, say) do not survive Arrow. The columns come from here, by key.

    Parameters
    ----------
    verifier : NamedVerifier
    columns : dict
        Prompt key to the row's columns.
    """

    def __init__(self, verifier: NamedVerifier, columns: Mapping[str, Mapping[str, Any]]) -> None:
        self.verifier = verifier
        self.name = verifier.name  # the pass rates' provenance is compared with it
        self.__name__ = verifier.name  # TRL logs under it
        self._columns = columns

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        prompt_key: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Rewards of completions, one per row; None without a verdict.

        The verifier finds the length of a completion in its column ``completion_tokens``.
        """
        texts = [completion_text(completion) for completion in completions]
        rows = [self._columns[key] for key in prompt_key]
        if completion_ids is not None:
            lengths = map(len, completion_ids)
            rows = [
                {TOKENS_COLUMN: length, **row} for length, row in zip(lengths, rows, strict=True)
            ]
        return batch_rewards(self.verifier, texts, rows)


def make_verifiers(section: RewardSection) -> list[NamedVerifier]:
    """Verifiers of the configuration, in order.

    Raises
    ------
    ConfigError
        If two have the same name.
    """
    items = section.items()
    names = [item.name for item in items]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"reward.functions has {name!r} twice: give it once, with a weight")
    return [create(item.name, answer_column=str(item.answer_column)) for item in items]


def with_answers(
    items: Sequence[RewardItem], prompts: Sequence[Prompt], *, data: str
) -> list[Prompt]:
    """Prompts whose row has what the verifiers of this package need.

    A row with an empty answer has no verdict (MATH has four such rows): it is left out, and
    counted in a warning.

    Raises
    ------
    PromptsError
        If a column is missing, naming those that there are.
    ConfigError
        If more than a tenth of the answers are empty.
    """
    kept = list(prompts)
    for item in items:
        if ":" in item.name:  # the user's own function knows what it reads
            continue
        for column in [str(item.answer_column), *_NEEDED_COLUMNS.get(item.name, [])]:
            where = f"{data}, for reward {item.name!r}: the prompt {{}}"
            values = [
                required_value(p.columns, column, where=where.format(f"{p.prompt!r:.60}"))
                for p in kept
            ]
            empty = [i for i, value in enumerate(values) if value is None or value == ""]
            if not empty:
                continue
            what = (
                f"{data}: column {column!r} is empty for {len(empty)} of {len(kept)} prompts "
                f"(first: {kept[empty[0]].prompt!r:.60})"
            )
            if len(empty) > _MAX_WITHOUT_ANSWER * len(kept):
                raise ConfigError(f"{what}: name the column with the right answers")
            warnings.warn(f"{what}; they are left out", stacklevel=3)
            without = set(empty)
            kept = [prompt for i, prompt in enumerate(kept) if i not in without]
    return kept
