"""An estimator that follows prompts over time, held at a stage of a run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from basis_rl.batch import Estimate, FloatArray, IntArray, RewardBatch
from basis_rl.estimators import Estimator, registry
from basis_rl.lab.figures.compared import Compared
from basis_rl.lab.record import RewardRecord, Stage


def with_history(
    record: RewardRecord, name: str, label: str, *, batch_size: int = 64, seed: int = 0
) -> Compared:
    """An estimator that has seen one rollout of every visit of the run before a stage.

    A stage's batches show the same few rewards again and again, which an estimator with a memory
    would learn by heart: it is set back after every batch.

    Parameters
    ----------
    record : RewardRecord
        That the stages are windows of.
    name : str
        In the registry.
    label : str
    batch_size : int
        Of the batches in which the history is shown.
    seed : int
    """

    def make(stage: Stage) -> Estimator:
        estimator = registry.create(name, stage.pass_rates)
        visits = np.zeros(0, dtype=np.int64) if stage.history is None else stage.history
        rng = np.random.default_rng(seed)
        for batch in batches_in_time(record, visits, batch_size, rng):
            estimator.estimate(shown_once(record, batch, rng))
        return Held(estimator)

    return Compared(name, label, make)


class Held(Estimator):
    """An estimator whose memory ends where it is now."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._held = estimator.state_dict()

    def estimate(self, batch: RewardBatch) -> Estimate:
        """Estimate, and forget the batch."""
        self._estimator.load_state_dict(self._held)
        return self._estimator.estimate(batch)

    def _baselines(self, rollouts: RewardBatch) -> tuple[FloatArray, dict[str, float]]:
        raise NotImplementedError  # estimate does not come here


def batches_in_time(
    record: RewardRecord, visits: IntArray, batch_size: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Batches of visits in time order.

    The visits of a step are shuffled and cut into batches; a rest of less than half a batch is
    left out, unless it is all that the step has.
    """
    _, starts = np.unique(record.step[visits], return_index=True)
    for of_step in np.split(visits, starts[1:]):
        order = rng.permutation(of_step)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            if len(batch) >= 2 and (start == 0 or 2 * len(batch) >= batch_size):
                yield batch


def shown_once(record: RewardRecord, visits: IntArray, rng: np.random.Generator) -> RewardBatch:
    """One random rollout of each visit."""
    picked = record.starts[visits] + rng.integers(0, record.counts[visits])
    prompts = record.prompt[visits].tolist()
    sources = None if record.sources is None else [record.sources[i] for i in prompts]
    keys = [record.keys[i] for i in prompts]
    return RewardBatch(
        keys, record.rewards[picked], sources=sources, step=int(record.step[visits[0]])
    )
