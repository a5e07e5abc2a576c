"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from typing import Any

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
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 48rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2rem; }
figure { margin: 1.2rem 0; break-inside: avoid; } img { width: 100%; height: auto; }
figcaption, .note { color: #444; font-size: .9rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
caption { text-align: left; font-weight: 600; padding: .8rem 0 .2rem; }
th, td { text-align: right; padding: .3rem .5rem; border-bottom: 1px solid #ccc;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
td:first-child, th:first-child { padding-left: 0; } .text td { white-space: normal; }
h1 { overflow-wrap: anywhere; }
@media (max-width: 30rem) { table { font-size: .78rem; } th, td { padding: .25rem; }
  th:last-child, td:last-child { white-space: normal; } }
th:first-child, td:first-child, .text td { text-align: left; }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; font-size: .85rem; }
.verdict { border-left: 4px solid #0072B2; padding: .4rem .8rem; background: #f4f8fb; }
@media print { body { max-width: none; font-size: 11pt; } tr { break-inside: avoid; } }
"""


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
        _plain_table(report["settings"], "setting"),
        _plain_table(
            {name: f"{seconds:.0f} s" for name, seconds in report["seconds"].items()}, "stage"
        ),
        _plain_table(report["machine"], "machine"),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


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
    rows = "".join(
        f"<tr><td>{html.escape(task)}</td><td>{r['before']:.3f}</td><td>{r['after']:.3f}</td>"
        f"<td>{r['difference']:+.3f}</td><td>{r['low']:+.3f} to {r['high']:+.3f}</td></tr>"
        for task, r in run["evaluation"].items()
    )
    head = "<th>task</th><th>before</th><th>after</th><th>change</th><th>95% interval</th>"
    group = run["rollouts_per_prompt"]
    label = f"{run['label']}, {group} rollout{'s' if group > 1 else ''} per prompt"
    return (
        f'<div class="scroll"><table><caption>{html.escape(label)}</caption><tr>{head}</tr>{rows}'
        "</table></div>"
    )


def _figure(name: str, image: bytes, report: Report) -> str:
    text = CAPTIONS[name].format(batch=report["settings"]["batch_size"])
    if name == "advantages" and "grpo" in report["runs"]:
        text += GRPO_NOTE
    caption = html.escape(text)
    data = base64.b64encode(image).decode("ascii")
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _task(name: str, task: Mapping[str, Any]) -> str:
    text = f"{task['example_prompt']}{task['example_answer']}"
    return (
        f"<p><b>{html.escape(name)}</b>: {html.escape(task['description'])}; pass rate of the "
        f"reference policy on the training prompts {task['reference_pass_rate']:.2f}. A prompt with"
        f" its answer:</p><pre>{html.escape(text)}</pre>"
    )


def _plain_table(entries: Mapping[str, Any], title: str) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{html.escape(_shown(value))}</td>"
        "</tr>"
        for name, value in entries.items()
    )
    return (
        f'<div class="scroll"><table class="text"><tr><th>{title}</th><td></td></tr>{rows}'
        "</table></div>"
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "default" if value is None else str(value)
