"""What a finished cache says of the build that made it, for commands that repeat one."""

from __future__ import annotations

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

    Raises
    ------
    PassRatesError
        If the file cannot be read, or its build cannot be repeated from what it says.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.table = PassRates.load(path)
        entries = self.table.provenance.extra.get("build")
        options = entries.get("options") if isinstance(entries, dict) else None
        if not isinstance(entries, dict) or not options or not options.get("data"):
            raise PassRatesError(
                f"{path} does not say how it was built: name one that `basis-rl cache build` "
                "wrote, or call build_cache"
            )
        self.entries: dict[str, Any] = entries
        self.data: list[dict[str, Any]] = options["data"]
        self.engine_options: dict[str, Any] = options.get("engine_options", {})

    @property
    def settings(self) -> SamplingSettings:
        """How its completions were sampled."""
        names = ("temperature", "top_p", "top_k", "max_tokens")
        values = {name: self.entries[name] for name in names}
        return SamplingSettings(**values, stop=tuple(self.entries["stop"]))

    @property
    def shard(self) -> Shard | None:
        """Part of the data sets that it covers."""
        from basis_rl.passrates.build.shards import as_shard

        text = self.entries["shard"]
        return None if text is None else as_shard(text)

    def prompts(self) -> list[Prompt]:
        """Prompts of its data sets, read again.

        Raises
        ------
        PassRatesError
            If they are not those of the build.
        """
        from basis_rl.passrates.build.shards import of_shard

        found = joined([prompts_of(options) for options in self.data])
        kept = of_shard(found, self.shard)
        names = ", ".join(options["data"] for options in self.data)
        there = {prompt.key for prompt in kept}
        lost = [key for key in self.table.keys if key not in there]
        if lost:
            raise PassRatesError(
                f"{len(lost)} prompts of {self.path} are not in {names} any more (first: "
                f"{lost[0]!r}): restore the data set, or build into another output"
            )
        if len(kept) != self.entries["prompts"]:
            raise PassRatesError(
                f"{names} has {len(kept)} prompts, and {self.path} was built of "
                f"{self.entries['prompts']}: restore the data set, or build into another output"
            )
        return found


def joined(sets: Sequence[Sequence[Prompt]]) -> list[Prompt]:
    """Prompts of several data sets, each once.

    Raises
    ------
    PromptsError
        If a key names different prompts.
    """
    found: dict[str, Prompt] = {}
    for prompt in (prompt for prompts in sets for prompt in prompts):
        before = found.setdefault(prompt.key, prompt)
        if before.prompt != prompt.prompt:
            raise PromptsError(
                f"key {prompt.key!r} names two different prompts: give them different keys"
            )
    return list(found.values())


def engine_dtype(entries: Mapping[str, Any]) -> str:
    """Number type to ask an engine for, so that it is that of the build."""
    from basis_rl.rollouts.loading import DTYPES

    return entries["dtype"] if entries.get("dtype") in DTYPES else "auto"
