"""verifiers v1: ``traces.jsonl``, one episode a line.

The reward of a trace is the weighted sum of its named rewards; without any it was not scored and is
missing. Traces of agents that are not trained (judges, users) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import Columns, Format, Rows
from basis_rl.passrates.importers.record import Notes, Options, Prompt, Record
from basis_rl.passrates.importers.values import number, optional, value_of, whole


def _detect(columns: Columns) -> bool:
    return isinstance(columns.get("traces"), list) and isinstance(columns.get("task"), dict)


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    for row in rows:
        columns = row.columns
        traces = value_of(columns, "traces", row.place)
        if not traces:
            notes.dropped["episodes without a trace"] += 1
        for number_, trace in enumerate(traces):
            place = f"{row.place}, trace {number_}"
            agent = trace.get("agent", {})
            if agent.get("trainable") is False:
                notes.dropped["of agents that are not trained"] += 1
                continue
            sampling = optional(agent, "config.sampling") or {}
            notes.know(
                place,
                model=optional(agent, "config.model"),
                temperature=number(sampling.get("temperature"), place, "temperature"),
                top_p=number(sampling.get("top_p"), place, "top_p"),
                max_tokens=whole(sampling.get("max_tokens"), place, "max_tokens"),
            )
            first, last = _steps(columns, place)
            key, prompt = _task(value_of(trace, "task", place), place)
            yield Record(
                place,
                key=key,
                prompt=prompt,
                rewards=[_reward(trace, options.reward_column, place)],
                first_step=first,
                step=last,
                source=optional(columns, "env.id") or None,
                rollout=trace.get("id"),
            )


def _steps(columns: Columns, place: str) -> tuple[int | None, int | None]:
    """First and last training step of an episode: its policy's versions, or when it was sent."""
    sent = optional(columns, "run.work.step")
    first, last = (optional(columns, f"run.work.policy.{end}") for end in ("start", "end"))
    return (
        whole(sent if first is None else first, place, "step"),
        whole(sent if last is None else last, place, "step"),
    )


def _task(task: Any, place: str) -> tuple[str | None, Prompt | None]:
    """Key (only where there is no prompt) and prompt of a trace."""
    data = value_of(task, "data", place)
    prompt, system = data.get("prompt"), data.get("system_prompt")
    if prompt is None:
        name = task.get("key") or task.get("hash") or data.get("name") or data.get("idx")
        if name is None:
            raise PassRatesError(f"{place}: its task has neither a prompt nor a key")
        return str(name), None
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return None, [{"role": "system", "content": system}, *messages] if system else messages


def _reward(trace: Columns, name: str | None, place: str) -> float | None:
    rewards = trace.get("rewards") or {}
    if name is not None:
        return number(optional(rewards, f"{name}.score"), place, f"reward {name}")
    given = [reward for reward in rewards.values() if reward is not None]
    values = [
        (number(reward.get("score"), place, "score"), reward.get("weight", 1.0)) for reward in given
    ]
    if not values or any(score is None for score, _ in values):
        return None
    return float(sum(score * weight for score, weight in values))


FORMAT = Format("verifiers", _detect, _rows, takes=frozenset({"reward_column"}))
