"""Figures, numbers and statements of a record as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from basis_rl.html_page import document, figure, number_table, plain_table
from basis_rl.lab.figures.cautions import cautions
from basis_rl.lab.figures.page_tables import numbers_of
from basis_rl.lab.figures.paper import Results
from basis_rl.lab.figures.statements import VERDICTS, Statement

STYLE = """
.statement { border-left: 4px solid #888; padding: .1rem .8rem; margin: .9rem 0;
  break-inside: avoid; }
.statement p, .statement ul { margin: .3rem 0; }
.statement ul { padding-left: 1.2rem; } .statement b { margin-right: .4rem; }
.caution { border-left: 4px dashed #D55E00; padding: .4rem .8rem; }
.contents { font-size: .9rem; padding-left: 1.2rem; }
.yes { border-color: #007F5C; } .no { border-color: #D55E00; border-left-style: double;
  border-left-width: 6px; } .unknown { border-left-style: dashed; }
details { margin: .4rem 0 1rem; } summary { cursor: pointer; color: #0072B2; }
"""
_MARKS = {
    True: ("yes", "Holds here."),
    False: ("no", "Does not hold here."),
    None: ("unknown", "Cannot be told here."),
}
_TITLES = {
    "2": "Figure 2: initial and refined value over β",
    "3a": "Figure 3 a: error over all prompts",
    "3b": "Figure 3 b: error by heterogeneity of the batch",
    "3c": "Figure 3 c: error by difficulty of the prompt",
    "3d": "Figure 3 d: baselines of exactly 0 or 1",
    "4": "Figure 4: leave-one-out group baselines",
    "5": "Figure 5: sensitivity of BASIS",
    "8": "Figure 8: calibrated β",
}
_CAPTIONS = {
    "2": "MSE of the unrefined value V(β) and of the refined one at every β of the paper's grid, "
    "by stage. Bands: 95% intervals.",
    "3a": "MSE of the value estimate by the number of rollouts per prompt. The thin lines carry "
    "the single-rollout estimators across. Bars: 95% intervals. GRPO with one rollout is the "
    "reward itself.",
    "3b": "MSE in {batches} batches, in five equal bins of the standard deviation of their "
    "prompts' values.",
    "3c": "MSE by the prompt's value. A prompt is put in its bin by one half of the oracle's "
    "rollouts and measured against the other half. A bar that reaches the bottom includes 0.",
    "3d": "How often the baseline is exactly 0 or 1, by the prompt's value.",
    "4": "Left: MSE of RLOO by the prompt's value. Right: how often its baseline is exactly 0 or "
    "1. BASIS and REINFORCE++ for comparison.",
    "5": "MSE of BASIS (preset paper) with one setting changed at a time, in the same batches; "
    "the others are ε = 1e-6, n = all cached rollouts, B = {batch_size} and 230 candidates. "
    "Bands: 95% intervals.",
    "8": "β that the paper's preset chooses, and its running median; dashed, what Eq. 5 as "
    "printed would choose.",
}
_MEASURED, _STATEMENTS, _SETTINGS = "What was measured", "The paper's statements", "Settings"
_SEVERAL_PANELS = ("2", "4", "5")
_STAGE_CAPTION = "β that the paper's preset chooses in the batches of each stage."


def page(
    results: Results,
    found: Sequence[Statement],
    images: Mapping[str, bytes],
    *,
    name: str,
    command: str,
    seconds: float,
) -> str:
    """HTML text of a report.

    Parameters
    ----------
    results : Results
    found : sequence of Statement
    images : mapping
        SVG bytes by figure: "2", "3a", ….
    name : str
        How the title calls the record.
    command : str
        What made the page.
    seconds : float
        How long the numbers took.
    """
    title = f"Value estimation: {name}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="verdict">{html.escape(verdict(found))}</p>',
        *(f'<p class="caution">{html.escape(text)}</p>' for text in cautions(results)),
        _contents(images, found),
        _heading(_MEASURED),
        f"<p>{html.escape(_measured(results))}</p>",
        _stage_table(results),
        *(_figure(results, figure_name, image) for figure_name, image in images.items()),
        _heading(_STATEMENTS) if found else "",
        *(_statement(statement) for statement in found),
        _heading(_SETTINGS),
        f"<pre>{html.escape(command)}</pre>",
        plain_table(_settings(results, seconds), "setting"),
    ]
    return document(title, parts, style=STYLE)


def _contents(images: Mapping[str, bytes], found: Sequence[Statement]) -> str:
    """Links to the parts of the page, in their order."""
    parts = [_MEASURED, *(_TITLES[name] for name in images)]
    parts += [_STATEMENTS] if found else []
    links = (f'<li><a href="#{_anchor(p)}">{html.escape(p)}</a></li>' for p in (*parts, _SETTINGS))
    return f'<ul class="contents">{"".join(links)}</ul>'


def _heading(title: str) -> str:
    return f'<h2 id="{_anchor(title)}">{html.escape(title)}</h2>'


def _anchor(title: str) -> str:
    """Title up to a colon, in letters that need no escape: "figure-3-a"."""
    return "-".join(re.findall("[a-z0-9]+", title.partition(":")[0].lower()))


def verdict(found: Sequence[Statement]) -> str:
    """One sentence: how many of the paper's statements hold here."""
    if not found:
        return "The figures that were asked for test no statement of the paper."
    counts = {holds: sum(statement.holds is holds for statement in found) for holds in VERDICTS}
    text = (
        f"Of {len(found)} statements of the paper on value estimation, {counts[True]} hold on "
        f"this record and {counts[False]} do not"
    )
    return text + (f"; {counts[None]} cannot be told." if counts[None] else ".")


def _measured(results: Results) -> str:
    first, settings = results.stages[0], results.settings
    table = first.pass_rates
    n = table.n[table.rows(first.keys)]
    cached = f"{n.min()} to {n.max()}" if n.min() < n.max() else f"{n.max()}"
    if table.kind == "rates":
        cached = "an unknown number of"
    text = (
        f"Batches of {settings.batch_size} of {len(first.keys)} prompts, drawn without "
        f"replacement; {settings.repeats} batches a stage ({settings.batches} in figure 3 b), the "
        f"first G of the same {first.shown.shape[1]} rollouts of a prompt shown to each estimator "
        f"(Appendix A). Reference pass rates are of {cached} rollouts a prompt. "
        "The value of a prompt is the mean of its other rollouts, which no estimator has seen. The "
        "paper ignores that mean's own sampling variance, having 256 rollouts; here it is taken "
        "off every squared error (the column mse; mse_uncorrected has it left in). Intervals are "
        "95%, clustered by prompt and by batch. Statements on figures 3 and 4 are judged at the "
        f"{results.main_stage} stage, the others at all stages together."
    )
    if first.visits > 1:
        text += (
            f" A stage pools {first.visits} neighbouring visits of each prompt: the policy moves "
            "between them, and the value is their mean. The last column tells how much the value "
            "varies between the pooled visits (variance, sampling noise taken off)."
        )
    return text


def _stage_table(results: Results) -> str:
    head = ("stage", "mean value", "spread", "oracle variance", "between visits")
    rows = [
        (
            stage.name,
            f"{stage.oracle.mean():.3f}",
            f"{stage.oracle.std():.3f}",
            f"{stage.oracle_variance.mean():.4f}",
            f"{stage.drift:+.4f}" if stage.visits > 1 else "one visit",
        )
        for stage in results.stages
    ]
    return number_table(head, rows)


def _statement(statement: Statement) -> str:
    style, mark = _MARKS[statement.holds]
    because = f"<p>Because {html.escape(statement.because)}.</p>" if statement.because else ""
    numbers = "".join(f"<li>{html.escape(line)}</li>" for line in statement.numbers)
    return (
        f'<div class="statement {style}"><p><b>{mark}</b>{html.escape(statement.claim)}</p>'
        f'{because}<ul class="note">{numbers}</ul>'
        f'<p class="note">{html.escape(statement.place)}. Rule: {html.escape(statement.rule)}.</p>'
        "</div>"
    )


def _figure(results: Results, name: str, image: bytes) -> str:
    settings = results.settings
    caption = _CAPTIONS[name].format(batches=settings.batches, batch_size=settings.batch_size)
    if name == "8" and not results.beta_steps:
        caption = _STAGE_CAPTION
    if name[0] in "34":
        caption = f"{results.main_stage.capitalize()} stage. {caption}"
    shown = figure(image, caption, kind="svg", wide=name in _SEVERAL_PANELS)
    return f"{_heading(_TITLES[name])}{shown}{_numbers(results, name)}"


def _numbers(results: Results, name: str) -> str:
    """Numbers of a figure, folded; a long list is left to its CSV file."""
    head, rows = numbers_of(results, name)
    return (
        f"<details><summary>Numbers (figure-{name}.csv has all columns)</summary>"
        f"{number_table(head, rows)}</details>"
    )


def _settings(results: Results, seconds: float) -> dict[str, Any]:
    settings = results.settings
    return {
        "batches, figure 3 b": settings.batches,
        "batches, other figures": settings.repeats,
        "prompts in a batch": settings.batch_size,
        "seed": settings.seed,
        "seconds": f"{seconds:.0f}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("basis-rl", "numpy", "matplotlib")},
    }
