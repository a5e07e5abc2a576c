"""What a finished cache says of the build that made it, for commands that repeat one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from basis_rl.cli.data_options import prompts_of
from basis_rl.errors import PassRatesError, PromptsError
from basis_rl.passrates import PassRates
from basis_rl.rollouts.settings import SamplingSettings

if TYPE_CHECKING:
    from basis_rl.passrates.build.shards import Shard
    from basis_rl.prompts import Prompt


class Built:
    """A cache and the options of its build.

    Parameters
    ----------
    path : str

    Attributes
    ----------
    table : PassRates
    entries : dict
        The provenance's entry ``build``.
    verifier : str
        As it was asked for; one that a module holds has a name of its own besides.

    Raises
    ------
    PassRatesError
        If the file cannot be read, or its build cannot be repeated from what it says.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.table = PassRates.load(path)
        extra = self.table.provenance.extra
        entries = extra.get("build")
        if "import" in extra and not entries:
            raise PassRatesError(
                f"{path} was imported, not built: only tables that `basis-rl cache build` wrote "
                "can be extended or refreshed; build one, or import the new rollouts"
            )
        options = entries.get("options") if isinstance(entries, dict) else None
        if not isinstance(entries, dict) or not options or not options.get("data"):
            raise PassRatesError(
                f"{path} does not say how it was built: name one that `basis-rl cache build` "
                "wrote, or call build_cache"
            )
        self.entries: dict[str, Any] = entries
        self.data: list[dict[str, Any]] = options["data"]
        self.verifier: str = options.get("verifier") or entries["verifier"]
        self.engine_options: dict[str, Any] = options.get("engine_options", {})

    @property
    def settings(self) -> SamplingSettings:
        """How its completions were sampled."""
        names = ("temperature", "top_p", "top_k", "max_tokens")
        values = {name: self.entries[name] for name in names}
        return SamplingSettings(**values, stop=tuple(self.entries["stop"]))

    @property
    def shard(self) -> Shard | None:
        """Part of the data sets that it covers.

        Raises
        ------
        PassRatesError
            If it covers several shards, but not all.
        """
        from basis_rl.passrates.build.shards import as_shard

        text = self.entries["shard"]
        if text is not None and "," in text:
            raise PassRatesError(
                f"{self.path} has shards {text} only: merge it with the others first, or name one "
                "shard"
            )
        return None if text is None else as_shard(text)

    def prompts(self, *, may_grow: bool = False) -> list[Prompt]:
        """Prompts of its data sets, read again.

        Parameters
        ----------
        may_grow : bool
            Accept prompts that are new in them.

        Raises
        ------
        PassRatesError
            If they are not those of the build.
        """
        from basis_rl.passrates.build.shards import of_shard

        shard = self.shard
        found = joined(self.data, [prompts_of(options) for options in self.data])
        kept = of_shard(found, shard)
        names = data_names(self.data)
        there = {prompt.key for prompt in kept}
        lost = [key for key in self.table.keys if key not in there]
        if lost:
            raise PassRatesError(
                f"{len(lost)} prompts of {self.path} are not in {names} any more (first: "
                f"{lost[0]!r}): restore the data set, or build into another output"
            )
        before = self.entries["prompts"]
        if len(kept) < before or (len(kept) > before and not may_grow):
            grown = f"add them with `basis-rl cache extend {self.path} --data {names}`, "
            raise PassRatesError(
                f"{names} has {len(kept)} prompts, and {self.path} was built of {before}: "
                f"{grown if len(kept) > before and len(self.data) == 1 else ''}"
                "restore the data set, or build into another output"
            )
        return found


def data_names(data: Sequence[Mapping[str, Any]]) -> str:
    """Names of data sets, each once."""
    return ", ".join(dict.fromkeys(options["data"] for options in data))


def joined(data: Sequence[Mapping[str, Any]], sets: Sequence[Sequence[Prompt]]) -> list[Prompt]:
    """Prompts of several data sets, each once: the first one with its answer.

    Warns where a prompt has another answer in a later set.

    Parameters
    ----------
    data : sequence of mapping
        Options of each set.
    sets : sequence of sequences of Prompt

    Raises
    ------
    PromptsError
        If a key names different prompts.
    """
    found: dict[str, tuple[Prompt, Any]] = {}
    for options, prompts in zip(data, sets, strict=True):
        conflicts = []
        for prompt in prompts:
            answer = _answer(prompt, options["answer_column"])
            before, kept = found.setdefault(prompt.key, (prompt, answer))
            if before.prompt != prompt.prompt:
                raise PromptsError(
                    f"key {prompt.key!r} names two different prompts: give them different keys"
                )
            if kept != answer:
                conflicts.append(f"{prompt.key!r} has {answer!r:.80}, kept was {kept!r:.80}")
        if conflicts:
            warnings.warn(
                f"{options['data']}: {len(conflicts)} prompts have another answer than in an "
                f"earlier data set, which was kept (first: {conflicts[0]})",
                stacklevel=3,
            )
    return [prompt for prompt, _ in found.values()]


def _answer(prompt: Prompt, column: str) -> Any:
    from basis_rl.prompts.columns import column_value

    try:
        return column_value(prompt.columns, column)
    except KeyError:  # a verifier may need none
        return None


def engine_dtype(entries: Mapping[str, Any]) -> str:
    """Number type to ask an engine for, so that it is that of the build."""
    from basis_rl.rollouts.loading import DTYPES

    return entries["dtype"] if entries.get("dtype") in DTYPES else "auto"
