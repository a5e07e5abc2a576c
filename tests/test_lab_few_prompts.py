"""Records with too few prompts for a figure: no verdict, and what would help."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from lab_records import checkpoints, stage_of

from basis_rl.drawing import picture
from basis_rl.lab.figures.cautions import LEAST_PROMPTS, cautions
from basis_rl.lab.figures.compared import compared, named
from basis_rl.lab.figures.difficulty import EDGES, difficulty
from basis_rl.lab.figures.draw.all import pictures
from basis_rl.lab.figures.draws import draw, half_of
from basis_rl.lab.figures.heterogeneity import heterogeneity
from basis_rl.lab.figures.page import page
from basis_rl.lab.figures.paper import Results, Settings, paper_figures
from basis_rl.lab.figures.statements import statements
from basis_rl.lab.stages import stages_of

BY_BINS = ("flat across prompt", "best on prompts", "worst on prompts", "often returns")
BY_BATCHES = ("heterogeneity of batches", "nearly doubles")


def results_of(per_bin: list[int], batch_size: int) -> Results:
    """A stage with so many prompts in each bin of values."""
    values = np.repeat([0.1, 0.3, 0.5, 0.7, 0.9], per_bin)
    stage = stage_of(values, oracle=4000)
    settings = Settings(repeats=20, batches=40, batch_size=batch_size)
    return paper_figures([stage], figures=["3b", "3c", "3d"], settings=settings)


def found(results: Results, parts: tuple[str, ...]) -> list:
    return [s for s in statements(results) if any(part in s.claim for part in parts)]


def page_of(results: Results) -> str:
    images = {name: picture(drawn, "svg") for name, drawn in pictures(results).items()}
    return page(results, statements(results), images, name="x", command="x", seconds=1)


def test_a_bin_tells_how_many_prompts_it_has():
    stage = stage_of(np.linspace(0.02, 0.98, 30))
    rows = difficulty(draw(stage, compared(stage)[:1], batches=40, batch_size=10))
    # With 400 draws of 30 prompts each prompt is drawn.
    expected = np.histogram(stage.oracle, EDGES)[0].tolist()
    assert [row.prompts for row in rows] == expected
    assert all(row.rows > row.prompts for row in rows)


@pytest.mark.parametrize("few", [0, 1, LEAST_PROMPTS - 1, LEAST_PROMPTS])
def test_bins_of_few_prompts_make_no_verdict(few):
    results = results_of([20, 20, few, 20, 20], 16)
    judged = found(results, BY_BINS)
    assert len(judged) == 4
    if few == LEAST_PROMPTS:
        assert all(statement.holds is not None for statement in judged)
        assert cautions(results) == []
        return
    for statement in judged:
        assert statement.holds is None
        assert f"fewer than 10 prompts have values in some of the five bins (0.4-0.6: {few})" in (
            statement.because
        )
    assert f"(0.4-0.6: {few})" in page_of(results)
    assert f"0.4 to 0.6</td><td>{few}</td>" in page_of(results)


def test_batches_of_all_prompts_make_no_verdict_and_no_order_of_draws_makes_bins():
    results = results_of([13, 13, 13, 13, 12], 64)
    for statement in found(results, BY_BATCHES):
        assert statement.holds is None
        assert "every batch holds all 64 prompts" in statement.because
        assert "--batch-size 32" in statement.because
        assert "draw more" not in statement.because
    assert "Every batch holds all 64 prompts" in page_of(results)
    # Sums in another order differ in the last bits, which are no heterogeneity.
    assert (
        sum(row.batches > 0 for row in results.heterogeneity if row.estimator == "batch-mean") == 1
    )


def test_batches_of_most_prompts_are_said_to_be_alike():
    (text,) = cautions(results_of([20] * 5, 64))
    assert "64 of the 100 prompts" in text
    assert "--batch-size 32" in text
    assert cautions(results_of([20] * 5, 50)) == []


def test_half_of_the_prompts_is_a_power_of_two_that_can_be_drawn():
    assert [half_of(n) for n in (2, 3, 4, 5, 24, 63, 64, 128, 605)] == [
        *(2, 2, 2, 2, 8, 16, 32, 64, 256)
    ]


def test_with_batches_enough_the_remedy_for_batches_is_batches():
    records, table = checkpoints()
    results = paper_figures(stages_of(records, table), figures=["3b"], settings=Settings(2, 20, 10))
    assert all("draw more (--batches)" in s.because for s in found(results, BY_BATCHES))


def test_the_page_has_figures_before_statements_and_links_to_both():
    text = page_of(results_of([20] * 5, 16))
    assert text.index("<figure>") < text.index('class="statement')
    links = re.findall(r'href="#([^"]+)"', text)
    assert links == [
        *("what-was-measured", "figure-3-b", "figure-3-c", "figure-3-d"),
        *("the-paper-s-statements", "settings"),
    ]
    places = [text.index(f'id="{link}"') for link in links]
    assert places == sorted(places)
    assert text.index("contents") < places[0]


def test_heterogeneity_still_tells_batches_apart():
    stage = stage_of(np.linspace(0.02, 0.98, 40))
    draws = draw(stage, named(compared(stage), "batch-mean"), batches=100, batch_size=8)
    assert sum(row.batches > 0 for row in heterogeneity(draws)) == 5
    shuffled = dataclasses.replace(draws, rows=draws.rows[:, ::-1])
    assert [r.batches for r in heterogeneity(shuffled)] == [r.batches for r in heterogeneity(draws)]
