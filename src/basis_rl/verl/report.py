"""What `basis-rl verl check` looks at, and what it prints."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from basis_rl.estimators.base import Estimator
from basis_rl.passrates import PassRates
from basis_rl.passrates.inspect.expected_error import expected_error
from basis_rl.verl.binary import check_scores
from basis_rl.verl.data import TrainingPrompts, read_prompts, unreadable_here
from basis_rl.verl.options import Config, Options, is_ours, section
from basis_rl.verl.reward import check_rows, reward_of
from basis_rl.verl.settings import check_settings, verl_version
from basis_rl.verl.setup import check_prompts, open_estimator
from basis_rl.verl.sizes import check_enough, rollouts, rows_seen, trainer_mode

# Rows whose reward columns are looked at; of more, the first ones.
MOST_ROWS = 50_000
_REWARD_COLUMNS = ("data_source", "reward_model", "extra_info")


@dataclass
class Report:
    """What was found.

    Attributes
    ----------
    lines : list of (str, str)
        Names and what there is to say of them.
    """

    lines: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Add one line."""
        self.lines.append((name, text))

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.lines)


def check_run(config: Config) -> Report:
    """Check a run as the job does before it generates, without Ray.

    Parameters
    ----------
    config : mapping
        verl's configuration, resolved.

    Raises
    ------
    BasisError
        One line that names what to change.
    """
    report = Report()
    options = check_settings(config)
    _describe(report, config, options)
    if not is_ours(section(config, "algorithm")):
        return report
    estimator, pass_rates = open_estimator(config, options)
    prompts = _prompts(report, config, options)
    if prompts is not None:
        check_prompts(options, estimator, pass_rates, prompts.keys, prompts.show, prompts.prompt)
        rows = list(itertools.islice(prompts.rows(_REWARD_COLUMNS), MOST_ROWS))
        check_rows(config, rows)
        check_scores(config, options, pass_rates, rows)
        check_enough(config, len(prompts.keys))
    if pass_rates is not None:
        _describe_table(report, options, estimator, pass_rates, prompts)
    return report


def _describe(report: Report, config: Config, options: Options) -> None:
    given = ", ".join(f"{key}={value}" for key, value in options.estimator_options.items())
    ours = is_ours(section(config, "algorithm"))
    whose = f" ({given})" * bool(given) if ours else " (not basis-rl's)"
    report.add("estimator", options.estimator + whose)
    batch = section(config, "data").get("train_batch_size")
    report.add("rollouts", f"{rollouts(config)} a prompt, {batch} prompts a step")
    if ours:
        report.add("an estimate sees", f"{rows_seen(config)} rollouts ({trainer_mode(config)})")
    rollout = section(config, "actor_rollout_ref", "rollout")
    model = section(config, "actor_rollout_ref", "model").get("path")
    report.add("model", f"{model}, temperature {rollout.get('temperature')}")
    if ours:
        rewards = reward_of(config)
        report.add("reward", " + ".join(map(str, rewards)) if rewards else "not known here")
    report.add("verl", verl_version() or "version unknown")
    engine = rollout.get("name")
    if engine in (None, "???"):
        warnings.warn(
            "actor_rollout_ref.rollout.name is not given, and verl asks for it: add "
            "actor_rollout_ref.rollout.name=vllm (or sglang)",
            UserWarning,
            stacklevel=3,
        )
    elif engine == "vllm" and importlib.util.find_spec("vllm") is None:
        report.add("engine", "vllm, which is not installed here")


def _prompts(report: Report, config: Config, options: Options) -> TrainingPrompts | None:
    why = unreadable_here(config)
    if why is not None:
        warnings.warn(
            f"{why}: the prompts are checked at the start of the job only",
            UserWarning,
            stacklevel=3,
        )
        return None
    prompts = read_prompts(config, options)
    key = options.prompt_key_column or "hash of the content"
    distinct = len(set(prompts.keys))
    repeated = f" in {len(prompts.keys)} rows" if distinct < len(prompts.keys) else ""
    report.add("prompts", f"{distinct}{repeated} of {', '.join(prompts.files)}; key: {key}")
    if section(config, "data").get("filter_overlong_prompts"):
        longest = section(config, "data").get("max_prompt_length")
        report.add("", f"those over {longest} tokens, which the job leaves out, are still in it")
    return prompts


def _describe_table(
    report: Report,
    options: Options,
    estimator: Estimator,
    table: PassRates,
    prompts: TrainingPrompts | None,
) -> None:
    made = table.provenance
    fewest, most = int(table.n.min()), int(table.n.max())
    n = "n unknown" if table.kind == "rates" else f"n = {fewest}"
    n += f" to {most}" if most > fewest else ""
    report.add("pass rates", f"{len(table)} prompts, {n}, {table.kind}: {options.pass_rates}")
    known = {
        "model": made.model,
        "temperature": made.temperature,
        "verifier": made.verifier,
    }
    told = [f"{name} {value}" for name, value in known.items() if value is not None]
    untold = [name for name, value in known.items() if value is None]
    report.add("made with", ", ".join(told) or "nothing of it is known")
    if untold:
        warnings.warn(
            f"the pass rates do not tell their {', '.join(untold)}, which cannot be compared with "
            "the run's",
            UserWarning,
            stacklevel=3,
        )
    if prompts is not None:
        report.add("coverage", f"{table.coverage(prompts.keys):.1%} of the prompts")
    smoothing = getattr(getattr(estimator, "options", None), "smoothing", None)
    if smoothing is None or (table.kind == "rates" and smoothing != "none"):
        return
    expected = expected_error(table, smoothing, at=())
    if expected is not None:
        report.add(
            "expected error",
            f"{expected.error:.3f} of a pass rate against the true one, which adds "
            f"{expected.excess:.1%} to the advantages' variance",
        )


def words(given: Sequence[str]) -> list[str]:
    """Overrides among the words of a command line that starts the trainer, or all words."""
    starts = [i for i, word in enumerate(given) if word.startswith("verl.") and "=" not in word]
    return list(given[starts[0] + 1 :] if starts else given)
