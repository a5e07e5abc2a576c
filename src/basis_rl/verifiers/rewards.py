"""Verifiers in the signatures that trainers want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.verifiers.base import NamedVerifier


class TrlReward:
    """A verifier as a reward function of TRL: ``(completions, **columns) -> list``.

    Attributes
    ----------
    verifier : NamedVerifier
    """

    def __init__(self, verifier: NamedVerifier) -> None:
        self.verifier = verifier
        self.__name__ = verifier.name  # TRL logs under this name

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Reward of each completion, None where there is no verdict.

        Parameters
        ----------
        completions : list of str or of lists of messages, length B
        **columns
            Lists of length B go to the verifier row by row; TRL's other arguments are left out.
        """
        rows = {name: values for name, values in columns.items() if _is_column(values, completions)}
        texts = [completion_text(completion) for completion in completions]
        by_row = [{name: rows[name][i] for name in rows} for i in range(len(texts))]
        return batch_rewards(self.verifier, texts, by_row)


def batch_rewards(
    verifier: NamedVerifier, texts: Sequence[str], columns: Sequence[Mapping[str, Any]]
) -> list[float | None]:
    """Rewards of completions of different prompts, judged at the same time.

    Parameters
    ----------
    verifier : NamedVerifier
    texts : sequence of str, length B
    columns : sequence of mappings, length B
        Row of each completion's prompt.

    Returns
    -------
    list of float or None, length B
        None where there is no verdict.
    """
    futures = [verifier.submit([text], row) for text, row in zip(texts, columns, strict=True)]
    return [future.result()[0].reward for future in futures]


def trl_reward(verifier: NamedVerifier) -> TrlReward:
    """Make a TRL reward function of a verifier."""
    return TrlReward(verifier)


def completion_text(completion: Any) -> str:
    """Text of a completion: itself, or the last assistant message of a chat.

    Raises
    ------
    ConfigError
        If it is neither.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and all(isinstance(m, Mapping) for m in completion):
        spoken = [m for m in completion if m.get("role", "assistant") == "assistant"]
        content = spoken[-1].get("content") if spoken else None
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        return "".join(part.get("text") or "" for part in content)
    raise ConfigError(
        f"a completion is {completion!r:.80} ({type(completion).__name__}): give a text or a "
        "list of messages"
    )


def _is_column(values: Any, completions: Sequence[Any]) -> bool:
    return (
        isinstance(values, Sequence)
        and not isinstance(values, str)
        and len(values) == len(completions)
    )
