"""The prompt sampler as a sampler of torch's data loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trl.trainer.utils import RepeatSampler

from basis_rl.adapters.rows import RowNames
from basis_rl.errors import ConfigError
from basis_rl.estimators.base import Estimator
from basis_rl.sampling import PromptSampler

if TYPE_CHECKING:
    from basis_rl.trl.config import BasisConfig


class SpreadSampler(RepeatSampler):  # type: ignore[misc]
    """TRL's sampler with the prompts of each generation batch drawn by a `PromptSampler`.

    The rows come as TRL lays them out: each prompt ``num_generations`` times, each batch once for
    every step that it is used for. All processes draw alike, as their estimators know the same.

    Parameters
    ----------
    sampler : RepeatSampler
        Taken over but for the order.
    prompts : PromptSampler
    epoch : callable
        Returns the epoch that begins or goes on; None before the first.
    """

    def __init__(
        self, sampler: RepeatSampler, prompts: PromptSampler, epoch: Callable[[], float | None]
    ) -> None:
        self.__dict__.update(vars(sampler))
        self._prompts, self._epoch = prompts, epoch

    def __iter__(self) -> Iterator[int]:
        batches = self.num_samples // self.batch_size
        # The trainer counts epochs in floating point.
        first = int((self._epoch() or 0.0) + 1e-6) * batches
        for number in range(first, first + batches):
            draw = self._prompts.draw(number, self.batch_size)
            # What a resumed run skips may be anything.
            rows = range(self.batch_size) if draw is None else draw.rows.tolist()
            for _ in range(self.repeat_count):
                for row in rows:
                    yield from [row] * self.mini_repeat_count


def make_prompt_sampler(
    config: BasisConfig, estimator: Estimator, names: RowNames, train_dataset: Any
) -> PromptSampler | None:
    """Prompt sampler of a run; None unless the configuration asks for one.

    Raises
    ------
    ConfigError
        If the estimator follows no prompts, or the data are a stream.
    """
    if config.prompt_sampler is None:
        return None
    spread = getattr(estimator, "expected_spread", None)
    if spread is None:
        raise ConfigError(
            f"prompt_sampler={config.prompt_sampler!r} asks the estimator how much a prompt's "
            f"rewards will spread, and {estimator.name!r} does not know: use "
            "estimator='basis-online', or leave prompt_sampler out"
        )
    if not (hasattr(train_dataset, "select_columns") and hasattr(train_dataset, "__len__")):
        raise ConfigError(
            f"prompt_sampler={config.prompt_sampler!r} chooses among all prompts, and the training "
            f"data are a {type(train_dataset).__name__}: load them as a Dataset, or leave "
            "prompt_sampler out"
        )
    wanted = [names.key_column or "prompt", *filter(None, [names.source_column])]
    named = [names.name(row) for row in train_dataset.select_columns(sorted({*wanted}))]
    options = config.prompt_sampler_options or {}
    assert isinstance(options, dict)
    return PromptSampler(
        [key for key, _ in named],
        spread,
        sources=None if names.source_column is None else [str(source) for _, source in named],
        seed=config.seed,
        **options,
    )
