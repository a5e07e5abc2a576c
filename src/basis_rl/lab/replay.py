"""Replaying a record of rewards: how far each baseline is from the true value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from basis_rl.errors import ConfigError
from basis_rl.lab.contenders import Contender
from basis_rl.lab.contenders import contenders as all_contenders
from basis_rl.lab.record import RewardRecord
from basis_rl.lab.replaying.draw import Draw
from basis_rl.lab.replaying.plan import make_plan
from basis_rl.lab.replaying.result import Replay
from basis_rl.lab.replaying.run import Run, paired_variance, run
from basis_rl.lab.replaying.run import batches as batches_of

__all__ = ["Replay", "replay"]

Progress = Callable[[int, int], None]
BATCHES = ("shuffled", "recorded")


def replay(
    record: RewardRecord,
    contenders: Sequence[Contender] | None = None,
    *,
    batch_size: int = 64,
    rollouts: int = 1,
    cache_rollouts: int = 32,
    start: int | None = None,
    seeds: int = 5,
    batches: str = "shuffled",
    first_seed: int = 0,
    progress: Progress | None = None,
) -> Replay:
    """Show each estimator a few rollouts of every visit and compare with the mean of the others.

    The first rollouts of each prompt make the cache. After that every visit is a row (or
    ``rollouts`` rows) of a batch; the squared error is taken against the mean of the visit's other
    rollouts, which no estimator sees at any time, less that mean's own sampling variance.

    Parameters
    ----------
    record : RewardRecord
        With pass rates of its own, all visits are replayed.
    contenders : sequence of Contender, optional
        All by default.
    batch_size : int
        Prompts of a batch.
    rollouts : int
        Shown of each visit; contenders with groups are given their own number.
    cache_rollouts : int
        Rollouts of each prompt for the cache; 0 gives estimators None where they can do without.
    start : int, optional
        First step that is replayed, whatever the cache: that is a random part of each prompt's
        rollouts before this step, and of the others nobody sees anything. So caches of several
        sizes are compared on the same visits.
    seeds : int
        Repetitions with other batches and other shown rollouts.
    batches : {"shuffled", "recorded"}
        A step's visits in random order, cut into batches; or a step's visits are one batch, in
        the recorded order.
    first_seed : int
        Number of the first random stream; an even one keeps the pairs of `Replay.bias_variance`.
    progress : callable, optional
        Called with the batches done and their number in all.

    Returns
    -------
    Replay

    Raises
    ------
    ConfigError
        If a number is out of range.
    RecordError
        If the record leaves nothing to replay.
    """
    for what, value, least in (
        ("batch_size", batch_size, 2),
        ("rollouts", rollouts, 1),
        ("cache_rollouts", cache_rollouts, 0),
        ("seeds", seeds, 1),
        ("first_seed", first_seed, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{what} is {value!r}: use a whole number from {least} on")
    if batches not in BATCHES:
        raise ConfigError(f"batches is {batches!r}: use {' or '.join(BATCHES)}")
    if contenders is None:
        contenders = all_contenders(continuous=not record.is_binary)
    plan = make_plan(
        record, contenders, rollouts=rollouts, cache_rollouts=cache_rollouts, start=start
    )
    runs: list[Run] = []
    variances = []
    for number in range(seeds):
        seed = first_seed + number
        rows = list(batches_of(plan, seed, batch_size, batches))

        def tell(done: int, before: int = number * len(rows), of: int = seeds * len(rows)) -> None:
            if progress is not None:
                progress(before + done, of)

        runs.append(run(plan, Draw.of(plan, seed), rows, rollouts, tell))
        if seed % 2 and number:
            variances.append(paired_variance(runs[-2], runs[-1]))
        for each in runs[:-1]:
            each.forget()
    return Replay.of(
        plan, runs, variances, rollouts=rollouts, batch_size=batch_size, batches=batches
    )
