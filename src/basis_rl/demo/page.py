"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from basis_rl.html_page import document, figure, number_table, plain_table

Report = Mapping[str, Any]
CAPTIONS = {
    "learning-curve": "Mean reward of each training step (points, {batch} rollouts each) and its "
    "moving average (line).",
    "accuracy": "Accuracy on test prompts that were never trained on, before and after, and the "
    "paired difference with its 95% interval.",
    "shift": "BASIS moves the logit of every reference pass rate by one number per step (and a "
    "little more or less for each task). It rises as the policy gets better than the reference.",
    "advantages": "Standard deviation in each step (points) and its moving average (line). A good "
    "baseline makes advantages spread less than rewards; what is left it could not foresee.",
}
GRPO_NOTE = " GRPO is not shown: it divides its advantages by each group's deviation."


def page(report: Report, images: Mapping[str, bytes]) -> str:
    """HTML text of a report.

    Parameters
    ----------
    report : mapping
        What `report.json` holds.
    images : mapping
        PNG bytes by the figure's name.
    """
    title = f"One rollout per prompt: {report['model']['name']}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="verdict">{html.escape(verdict(report))}</p>',
        "<h2>Before and after</h2>",
        *(_accuracy_table(run) for run in report["runs"].values()),
        '<p class="note">' + html.escape(_how_evaluated(report)) + "</p>",
        *(_figure(name, images[name], report) for name in images),
        "<h2>Tasks</h2>",
        *(_task(name, task) for name, task in report["tasks"].items()),
        "<h2>Settings and time</h2>",
        plain_table(report["settings"], "setting"),
        plain_table(
            {name: f"{seconds:.0f} s" for name, seconds in report["seconds"].items()}, "stage"
        ),
        plain_table(report["machine"], "machine"),
    ]
    return document(title, parts)


def verdict(report: Report) -> str:
    """One sentence: on which tasks BASIS raised test accuracy for certain."""
    results = report["runs"]["basis"]["evaluation"]
    better = [task for task, result in results.items() if result["improved"]]
    rest = [task for task in results if task not in better]
    settings = report["settings"]
    trained = f"{settings['steps']} steps of {settings['batch_size']} prompts, one rollout each: "
    if not rest:
        return trained + (
            "test accuracy rose on every task (the 95% interval of the paired difference is above "
            "0 on each)."
        )
    return trained + (
        f"test accuracy rose for certain on {', '.join(better) or 'no task'}; on "
        f"{', '.join(rest)} the 95% interval of the paired difference includes 0 or lies below."
    )


def _how_evaluated(report: Report) -> str:
    settings, rates = report["settings"], report["pass_rates"]
    return (
        f"{settings['test_prompts_per_task']} test prompts of each task, "
        f"{settings['samples_per_test_prompt']} sampled completions each (temperature 1), the same "
        "prompts and random numbers before and after; none of them is a training prompt. "
        f"Interval: mean of the prompts' differences ± 1.96 standard errors. Pass rates: "
        f"{rates['prompts']} training prompts, {rates['rollouts_per_prompt']} rollouts each."
    )


def _accuracy_table(run: Mapping[str, Any]) -> str:
    rows = [
        (
            task,
            f"{r['before']:.3f}",
            f"{r['after']:.3f}",
            f"{r['difference']:+.3f}",
            f"{r['low']:+.3f} to {r['high']:+.3f}",
        )
        for task, r in run["evaluation"].items()
    ]
    group = run["rollouts_per_prompt"]
    label = f"{run['label']}, {group} rollout{'s' if group > 1 else ''} per prompt"
    head = ("task", "before", "after", "change", "95% interval")
    return number_table(head, rows, caption=label)


def _figure(name: str, image: bytes, report: Report) -> str:
    text = CAPTIONS[name].format(batch=report["settings"]["batch_size"])
    if name == "advantages" and "grpo" in report["runs"]:
        text += GRPO_NOTE
    return figure(image, text)


def _task(name: str, task: Mapping[str, Any]) -> str:
    text = f"{task['example_prompt']}{task['example_answer']}"
    return (
        f"<p><b>{html.escape(name)}</b>: {html.escape(task['description'])}; pass rate of the "
        f"reference policy on the training prompts {task['reference_pass_rate']:.2f}. A prompt with"
        f" its answer:</p><pre>{html.escape(text)}</pre>"
    )
