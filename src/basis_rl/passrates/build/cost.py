"""What a cache cost against the training that it serves."""

from __future__ import annotations

from basis_rl.passrates.build.progress import BuildProgress


def cost_lines(end: BuildProgress, tokens: int, training_rollouts: int | None = None) -> list[str]:
    """Cost of a build, and of training with so many rollouts of the same length and speed.

    Parameters
    ----------
    end : BuildProgress
        The last one of the build.
    tokens : int
        Sampled tokens of the table.
    training_rollouts : int, optional
    """
    rollouts, hours = end.completions, end.build_seconds / 3600
    lines = [f"cost: {rollouts:,} rollouts, {tokens:,} tokens, {_hours(hours)} in all sessions"]
    if training_rollouts and rollouts:
        share = training_rollouts / rollouts
        lines.append(
            f"training with {training_rollouts:,} rollouts of the same length and speed: "
            f"{tokens * share:,.0f} tokens, {_hours(hours * share)} of sampling; the cache has "
            f"{1 / share:.3g} times as many rollouts"
        )
    return lines


def _hours(hours: float) -> str:
    return f"{hours:.2f} hours" if hours >= 0.1 else f"{hours * 3600:.0f} seconds"
