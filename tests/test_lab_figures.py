from __future__ import annotations

import csv
import dataclasses
import io
from itertools import pairwise

import numpy as np
import pytest
from lab_records import checkpoints, stage_of, trace
from shared_data import shared_data

from basis_rl import Basis, RewardBatch
from basis_rl.estimators import registry
from basis_rl.lab.figures.accuracy import accuracy, error_parts
from basis_rl.lab.figures.beta_curves import beta_curves
from basis_rl.lab.figures.beta_steps import beta_steps
from basis_rl.lab.figures.compared import compared, named
from basis_rl.lab.figures.difficulty import EDGES, difficulty
from basis_rl.lab.figures.draws import draw
from basis_rl.lab.figures.heterogeneity import heterogeneity
from basis_rl.lab.figures.history import Held, batches_in_time, with_history
from basis_rl.lab.figures.numbers import pick, to_csv
from basis_rl.lab.figures.paper import FIGURES, Results, Settings, paper_figures
from basis_rl.lab.figures.sensitivity import sensitivity, thin, thinned_grid
from basis_rl.lab.figures.statements import statements
from basis_rl.lab.read import of_visits, read_record
from basis_rl.lab.record import RecordError, Stage
from basis_rl.lab.stages import first_visits, stages_of
from basis_rl.passrates import PassRates
from basis_rl.values import beta_grid

VALUES = np.array([0.02, 0.1, 0.25, 0.3, 0.45, 0.5, 0.62, 0.7, 0.85, 0.9, 0.97, 0.99])
SMALL = Settings(repeats=2, batches=20, batch_size=10)


def naive_baselines(stage: Stage, rows: np.ndarray, rewards: np.ndarray) -> dict[str, list]:
    """Every prompt's baselines, from the formulas of Appendix A."""
    found = {"batch-mean": [[rewards[:, 0].mean()] for _ in rows]}
    for g in (1, 2, 4, 8):
        found[f"group-mean-{g}"] = [[r[:g].mean()] * g for r in rewards]
    for g in (2, 4, 8):
        found[f"leave-one-out-{g}"] = [
            [(r[:g].sum() - r[i]) / (g - 1) for i in range(g)] for r in rewards
        ]
    batch = RewardBatch([stage.keys[i] for i in rows], rewards[:, 0])
    paper = Basis(stage.pass_rates, preset="paper").estimate(batch).baselines
    found["basis-paper"] = [[b] for b in paper]
    return found


def naive_errors(stage: Stage, batches: int, size: int, seed: int) -> dict[str, list]:
    """(prompt, baselines, batch) of every estimator, drawn as `draw` draws."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, list] = {}
    for batch in range(batches):
        rows = rng.choice(len(stage.keys), size, replace=False)
        order = rng.random((size, 8)).argsort(axis=1)
        rewards = np.array([stage.shown[p][o] for p, o in zip(rows, order, strict=True)])
        for name, baselines in naive_baselines(stage, rows, rewards).items():
            drawn.setdefault(name, []).extend(
                (p, b, batch) for p, b in zip(rows, baselines, strict=True)
            )
    return drawn


def columns(rows: list) -> dict[tuple[str, str], dict[str, str]]:
    """CSV rows by estimator and bin."""
    text = to_csv(rows).decode()
    return {(r["estimator"], r.get("bin", "")): r for r in csv.DictReader(io.StringIO(text))}


def test_the_csv_of_figure_3_is_what_a_naive_computation_gives():
    stage = stage_of(VALUES)
    everyone = [c for c in compared(stage) if c.name != "basis-robust"]
    draws = draw(stage, everyone, batches=7, batch_size=6, seed=3, warm_up=0)
    naive = naive_errors(stage, 7, 6, 3)
    assert set(naive) == {c.name for c in everyone}
    overall, by_value = columns(accuracy(draws)), columns(difficulty(draws))
    for name, drawn in naive.items():
        raw = [np.mean([(b - stage.oracle[p]) ** 2 for b in bs]) for p, bs, _ in drawn]
        less = [stage.oracle_variance[p] for p, _, _ in drawn]
        row = overall[name, ""]
        assert float(row["mse_uncorrected"]) == pytest.approx(np.mean(raw), rel=1e-5)
        assert float(row["mse"]) == pytest.approx(np.mean(raw) - np.mean(less), rel=1e-5)
        assert float(row["low"]) < float(row["mse"]) < float(row["high"])
        for number, (low, high) in enumerate(pairwise(EDGES), start=1):
            inside = [
                (p, bs)
                for p, bs, _ in drawn
                if low <= stage.oracle[p] < high or stage.oracle[p] == high == 1.0
            ]
            row = by_value[name, str(number)]
            assert int(row["rows"]) == len(inside)
            errors = [np.mean([(b - stage.oracle[p]) ** 2 for b in bs]) for p, bs in inside]
            extreme = [np.mean([b in (0.0, 1.0) for b in bs]) for _, bs in inside]
            assert float(row["mse_uncorrected"]) == pytest.approx(np.mean(errors), rel=1e-5)
            assert float(row["frequency"]) == pytest.approx(np.mean(extreme), rel=1e-5)


def test_the_csv_of_figure_3b_is_what_a_naive_computation_gives():
    stage = stage_of(VALUES)
    some = named(compared(stage), "batch-mean", "basis-paper")
    draws = draw(stage, some, batches=30, batch_size=6, seed=1, warm_up=0)
    rows = columns(heterogeneity(draws))
    drawn = naive_errors(stage, 30, 6, 1)["batch-mean"]
    by_batch = [[(p, bs[0]) for p, bs, b in drawn if b == n] for n in range(30)]
    spread = [np.std([stage.oracle[p] for p, _ in rows_]) for rows_ in by_batch]
    mse = [
        np.mean([(b - stage.oracle[p]) ** 2 - stage.oracle_variance[p] for p, b in rows_])
        for rows_ in by_batch
    ]
    edges = np.linspace(min(spread), max(spread), 6)
    for number in range(1, 6):
        low, high = edges[number - 1], edges[number]
        inside = [
            m
            for m, s in zip(mse, spread, strict=True)
            if low <= s < high or (number == 5 and s == high)
        ]
        row = rows["batch-mean", str(number)]
        assert int(row["batches"]) == len(inside)
        assert float(row["bin_low"]) == pytest.approx(low, rel=1e-5)
        if inside:
            assert float(row["mse"]) == pytest.approx(np.mean(inside), rel=1e-5)
    assert sum(int(rows["basis-paper", str(b)]["batches"]) for b in range(1, 6)) == 30


def test_the_oracles_noise_is_taken_off():
    # Known values, an oracle of 12 rollouts: uncorrected errors are too large by V(1 - V) / 12.
    values = np.linspace(0.05, 0.95, 400)
    stage = stage_of(values, oracle=12)
    draws = draw(stage, named(compared(stage), "group-mean-8"), batches=40, batch_size=64)
    (row,) = accuracy(draws)
    true = float((values * (1 - values)).mean() / 8)
    assert row.low < true < row.high
    assert row.mse_uncorrected == pytest.approx(true * (1 + 8 / 12), rel=0.1)


def test_prompts_are_not_sorted_by_the_noise_that_they_are_measured_with():
    # All prompts have value 1/2. Sorted by the whole oracle, those in the lower bin have an oracle
    # below 1/2, so that the right baseline, 1/2, seems wrong there.
    stage = stage_of(np.full(600, 0.5), oracle=16, n=4000)
    draws = draw(stage, named(compared(stage), "basis-robust"), batches=60, batch_size=64)
    low_bin = next(row for row in difficulty(draws) if row.bin == 2)
    assert low_bin.mse == pytest.approx(0.0, abs=0.004)
    assert low_bin.mse_uncorrected > 0.02


def test_the_parts_of_the_error_add_up():
    stage = stage_of(VALUES, n=8)
    draws = draw(stage, compared(stage), batches=20, batch_size=8)
    for c in draws.compared:
        parts = pick(error_parts(draws), estimator=c.name)
        assert sum(part.prompts for part in parts) == pytest.approx(1.0)
        assert sum(part.error for part in parts) == pytest.approx(1.0)
        total = sum(part.prompts * part.mse for part in parts if part.prompts)
        assert total == pytest.approx(draws.errors()[draws.compared.index(c)].mean())
    # A pass rate of 0 or 1 is never active: the zero baseline.
    paper = pick(error_parts(draws), estimator="basis-paper")
    assert {part.frequency_0 for part in paper if part.pass_rate != "between"} == {1.0}


def test_figure_2_holds_beta():
    stage = stage_of(VALUES)
    betas = [0.5, 2.0]
    rows = beta_curves(stage, batches=5, batch_size=6, betas=betas, seed=2)
    assert [(row.value, row.beta) for row in rows] == [
        ("initial", 0.5),
        ("initial", 2.0),
        ("refined", 0.5),
        ("refined", 2.0),
    ]
    rng = np.random.default_rng(2)
    drawn = []
    for _ in range(5):
        drawn.append(rng.choice(12, 6, replace=False))
        rng.random((6, 8))
    prompts = np.concatenate(drawn)
    rates = stage.pass_rates.means
    with np.errstate(divide="ignore"):
        tilted = 1 / (1 + np.exp(-(np.log(rates / (1 - rates)) + 1 / 0.5)))
    errors = (tilted - stage.oracle)[prompts] ** 2
    assert rows[0].mse_uncorrected == pytest.approx(errors.mean())


def test_figure_5_changes_one_setting_at_a_time():
    stage = stage_of(np.linspace(0.02, 0.98, 70))
    rows = sensitivity(stage, repeats=3, batch_size=32)
    by_panel = {p: pick(rows, panel=p, estimator="basis-paper") for p in ("epsilon", "n", "grid")}
    assert [row.setting for row in by_panel["n"]] == [4, 8, 16, 32, 64]
    # The default of every panel is the same estimator in the same batches.
    defaults = {
        next(row.mse for row in by_panel["epsilon"] if row.setting == 1e-6),
        next(row.mse for row in by_panel["n"] if row.setting == 64),
        next(row.mse for row in by_panel["grid"] if row.setting == 230),
        next(r.mse for r in pick(rows, panel="B", estimator="basis-paper") if r.setting == 32),
    }
    assert len(defaults) == 1
    sizes = [row.setting for row in pick(rows, panel="B", estimator="batch-mean")]
    assert sizes == [8, 16, 32, 64]
    assert by_panel["n"][0].mse > by_panel["n"][-1].mse


def test_a_thinned_cache_is_drawn_without_replacement():
    table = PassRates.from_counts([f"p{i}" for i in range(3000)], np.full(3000, 3), 10)
    thinned = thin(table, 4)
    assert thinned.n.tolist() == [4] * 3000
    assert thinned.successes.max() <= 3
    # Hypergeometric: mean 4 * 3/10, variance 4 * .3 * .7 * 6/9.
    assert thinned.successes.mean() == pytest.approx(1.2, abs=0.06)
    assert thinned.successes.var() == pytest.approx(0.56, abs=0.06)
    assert (thin(table, 10).successes == 3).all()
    with pytest.raises(RecordError, match="has not 11 rollouts"):
        thin(table, 11)


def test_a_thinned_grid_keeps_both_ends():
    assert thinned_grid(230) == beta_grid().tolist()
    for size in (2, 8, 64):
        grid = thinned_grid(size)
        assert (grid[0], grid[-1], len(set(grid))) == (0.01, 5.0, size)


def test_figure_8_follows_the_run_batch_by_batch():
    record = trace(prompts=24, visits=20)
    rows = beta_steps(record, batch_size=10, cache_rollouts=32)
    # 16 steps after the cache; 24 prompts are 10, 10 and a rest of 4, under half a batch.
    assert len(rows) == 32
    assert [row.batch for row in rows] == list(range(1, 33))
    assert [row.step for row in rows] == sorted(row.step for row in rows)
    assert (rows[0].step, rows[-1].step) == (5, 20)
    assert {row.rows for row in rows} == {10}
    assert set(beta_grid()) >= {row.beta for row in rows}
    # The policy gets better: the shift rises.
    assert np.mean([row.tau for row in rows[-8:]]) > np.mean([row.tau for row in rows[:8]])


def test_batches_in_time_keep_a_small_step_whole():
    record = trace(prompts=7, visits=3)
    rng = np.random.default_rng(0)
    batches = list(batches_in_time(record, np.arange(len(record)), 64, rng))
    assert [sorted(batch.tolist()) for batch in batches] == [
        list(range(7)),
        list(range(7, 14)),
        list(range(14, 21)),
    ]


def test_an_estimator_with_a_memory_sees_the_history_and_not_the_stage():
    record = trace(prompts=24, visits=24)
    early, _, late = stages_of(record)
    contender = with_history(record, "spo", "SPO", batch_size=12)
    estimator = contender.make(late)
    assert isinstance(estimator, Held)
    batch = RewardBatch(late.keys, late.shown[:, 0])
    first = estimator.estimate(batch).baselines
    assert (estimator.estimate(batch).baselines == first).all()
    # By hand: the same tracker, shown the same rollouts.
    table, rest = first_visits(record, 32)
    tracker = registry.create("spo", table)
    rng = np.random.default_rng(0)
    history = np.intersect1d(late.history, rest)
    for visits in batches_in_time(record, history, 12, rng):
        shown = record.starts[visits] + rng.integers(0, record.counts[visits])
        keys = [record.keys[i] for i in record.prompt[visits]]
        tracker.estimate(RewardBatch(keys, record.rewards[shown]))
    assert tracker.estimate(batch).baselines == pytest.approx(first)
    # Before the early stage there is no history: the tracker as it is made.
    fresh = registry.create("spo", early.pass_rates).estimate(batch).baselines
    assert contender.make(early).estimate(batch).baselines == pytest.approx(fresh)


def test_three_checkpoints_give_every_figure():
    records, table = checkpoints()
    stages = stages_of(records, table)
    told: list[tuple[int, int]] = []
    results = paper_figures(stages, settings=SMALL, report=lambda *a: told.append(a))
    assert results.main_stage == "middle"
    assert set(results.tables()) == {f"figure-{name}" for name in FIGURES} | {"figure-3a-parts"}
    assert {row.stage for row in results.beta_stages} == {"early", "middle", "late"}
    # Every statement is listed; those that need a run, or more batches, say so.
    found = statements(results)
    assert len(found) == 19
    assert [s.because for s in found if "settles" in s.claim] == [
        "checkpoints are no run: beta has no course"
    ]
    assert all("fewer than two" in s.because for s in found if s.place.endswith("Fig. 3 b"))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]
    for table_rows in results.tables().values():
        assert to_csv(table_rows).count(b"\n") == len(table_rows) + 1
    again = paper_figures(stages, figures=FIGURES[1:], settings=SMALL)
    for name, table_rows in again.tables().items():
        assert to_csv(table_rows) == to_csv(results.tables()[name])


def test_bare_rates_and_unknown_prompts_do_not_stop_the_figures():
    record = trace(prompts=24, visits=16)
    table = PassRates.from_rates(record.keys[:20], np.linspace(0.1, 0.9, 20))
    known = np.flatnonzero(record.prompt < 20)
    stages = stages_of(of_visits(record, known), table)
    given = dataclasses.replace(record, pass_rates=table)
    results = paper_figures(stages, given, figures=["3a", "5", "8"], settings=SMALL)
    assert "basis-robust" not in {row.estimator for row in results.accuracy}
    assert "n" not in {row.panel for row in results.sensitivity}
    (statement,) = [s for s in statements(results) if "n = 64" in s.claim]
    assert statement.holds is None
    assert len(results.beta_steps) == 16 * 2


def test_a_single_figure_computes_nothing_else():
    records, table = checkpoints()
    results = paper_figures(stages_of(records, table), figures=["3b"], settings=SMALL)
    assert set(results.tables()) == {"figure-3b"}
    with pytest.raises(RecordError, match="no figure is called '3e'"):
        paper_figures(results.stages, figures=["3e"])


def test_what_cannot_be_drawn_is_refused():
    stage = stage_of(VALUES)
    with pytest.raises(
        RecordError, match=r"has 12 prompts.*a batch of 64: choose --batch-size 4, or 12 at most"
    ):
        draw(stage, compared(stage), batches=1)
    few = stage_of(VALUES, shown=2)
    assert max(c.rollouts for c in compared(few)) == 2
    with pytest.raises(RecordError, match=r"2 rollouts are shown.*needs 8"):
        draw(few, compared(stage), batches=1, batch_size=4)
    real = dataclasses.replace(stage, shown=stage.shown + 0.5)
    with pytest.raises(RecordError, match="other than 0 and 1"):
        draw(real, compared(stage), batches=1, batch_size=4)


@pytest.fixture(scope="module")
def run() -> Results:
    record = trace(prompts=80, visits=24)
    return paper_figures(stages_of(record), record, settings=Settings(4, 60, 32))


def verdict(results: Results, words: str) -> bool | None:
    (statement,) = [s for s in statements(results) if words in s.claim]
    assert statement.numbers
    assert bool(statement.because) == (statement.holds is not True)
    return statement.holds


def scaled(results: Results, name: str, factors: dict, **where: object) -> Results:
    """Results in which the MSE of some rows is multiplied."""
    rows = getattr(results, name)
    chosen = set(map(id, pick(rows, **where)))
    field, factor = next(iter(factors.items()))
    changed = [
        dataclasses.replace(row, **{field: getattr(row, field) * factor})
        if id(row) in chosen
        else row
        for row in rows
    ]
    return dataclasses.replace(results, **{name: changed})


FLIPS = [
    ("by 69%", "accuracy", {"estimator": "basis-paper"}),
    ("GRPO and RLOO with 8", "accuracy", {"estimator": "basis-paper"}),
    ("leaves one rollout out", "accuracy", {"estimator": "group-mean-4"}),
    ("heterogeneity of batches", "heterogeneity", {"estimator": "basis-paper", "bin": 3}),
    ("across prompt difficulty", "difficulty", {"estimator": "basis-paper", "bin": 3}),
    ("best on prompts of medium", "difficulty", {"estimator": "batch-mean", "bin": 5}),
    ("worst on prompts of medium", "difficulty", {"estimator": "group-mean-2", "bin": 1}),
    ("considerably lower MSE", "beta_curves", {"value": "refined"}),
    ("less sensitive", "beta_curves", {"value": "refined"}),
    ("for epsilon", "sensitivity", {"panel": "epsilon", "setting": 1e-4}),
    ("8 and 64 candidates", "sensitivity", {"panel": "grid", "setting": 16.0}),
]
# Statements that two things are alike: the numbers are made so first.
FROM_LEVEL = ("heterogeneity of batches", "across prompt difficulty", "for epsilon")


@pytest.mark.parametrize(("words", "name", "where"), FLIPS, ids=lambda x: str(x)[:24])
def test_a_statement_flips_when_the_numbers_do(run, words, name, where):
    level = [dataclasses.replace(row, mse=0.05) for row in getattr(run, name)]
    if words in FROM_LEVEL:
        run = dataclasses.replace(run, **{name: level})
    found = {
        verdict(scaled(run, name, {"mse": factor}, **where), words)
        for factor in (1e-3, 0.02, 0.1, 0.3, 1.0, 3.0, 30.0, 1e3)
    }
    assert found == {True, False}


def test_a_statement_about_all_stages_needs_every_stage(run):
    words = "8 and 64 candidates"
    level = [dataclasses.replace(row, mse=0.05) for row in run.sensitivity]
    level_run = dataclasses.replace(run, sensitivity=level)
    assert verdict(level_run, words) is True
    where = {"panel": "grid", "setting": 16.0, "stage": "late"}
    assert verdict(scaled(level_run, "sensitivity", {"mse": 2.0}, **where), words) is False


def test_a_statement_about_one_checkpoint_is_judged_at_the_middle_stage(run):
    words = "by 69%"
    for stage, holds in (("late", True), ("middle", False)):
        good = scaled(run, "accuracy", {"mse": 1e-3}, estimator="basis-paper")
        worse = scaled(good, "accuracy", {"mse": 1e6}, estimator="basis-paper", stage=stage)
        assert verdict(worse, words) is holds


def test_lower_than_grpo_alone_is_not_lower_than_both(run):
    where = {"stage": "middle", "estimator": "basis-paper"}
    mse = {row.estimator: row.mse for row in pick(run.accuracy, stage="middle")}
    low, high = sorted((mse["group-mean-8"], mse["leave-one-out-8"]))
    factor = (low + high) / 2 / mse["basis-paper"]
    between = scaled(run, "accuracy", {"mse": factor}, **where)
    assert verdict(between, "GRPO and RLOO with 8") is False


def test_two_statements_on_the_real_trace():
    record = read_record(shared_data("traces/qwen25math15b_grpo_trace.jsonl"))
    settings = Settings(repeats=30)
    results = paper_figures(stages_of(record), record, figures=["3a", "3d"], settings=settings)
    assert verdict(results, "by 69%") is True
    assert verdict(results, "GRPO and RLOO with 8") is False
    assert verdict(results, "never returns a baseline") is False


def test_never_extreme_needs_every_baseline(run):
    words = "never returns a baseline"
    assert verdict(scaled(run, "difficulty", {"frequency": 0.0}), words) is True
    raised = [dataclasses.replace(row, frequency=1e-3) for row in run.difficulty]
    assert verdict(dataclasses.replace(run, difficulty=raised), words) is False


def test_the_reason_has_the_share_of_pass_rates_at_the_ends(run):
    parts = pick(run.parts, stage="middle", estimator="basis-paper")
    share = sum(part.prompts for part in parts if part.pass_rate != "between")
    worse = scaled(run, "accuracy", {"mse": 30.0}, estimator="basis-paper")
    (statement,) = [s for s in statements(worse) if "GRPO and RLOO with 8" in s.claim]
    assert f"{share:.1%} of the drawn prompts" in statement.because
    none = [
        dataclasses.replace(part, prompts=1.0 if part.pass_rate == "between" else 0.0)
        for part in worse.parts
    ]
    (statement,) = [
        s
        for s in statements(dataclasses.replace(worse, parts=none))
        if "GRPO and RLOO with 8" in s.claim
    ]
    assert "the active set is not the cause" in statement.because


def test_a_cache_too_small_for_the_statement_on_n_says_so(run):
    assert verdict(run, "n = 64 instead of 8") is None
    points = [
        dataclasses.replace(row, setting=64.0, mse=0.43 * first.mse)
        for stage in run.stages
        for first in pick(run.sensitivity, panel="n", stage=stage.name, setting=8.0)
        for row in pick(run.sensitivity, panel="n", stage=stage.name, setting=32.0)
    ]
    more = dataclasses.replace(run, sensitivity=[*run.sensitivity, *points])
    assert verdict(more, "n = 64 instead of 8") is True


def test_the_statements_on_beta_follow_its_course(run):
    steps = run.beta_steps
    course = np.concatenate([np.full(len(steps) // 3, 5.0), np.full(len(steps), 0.4)])
    fallen = [dataclasses.replace(s, beta=float(b)) for s, b in zip(steps, course, strict=False)]
    settled = dataclasses.replace(run, beta_steps=fallen)
    assert verdict(settled, "starts near the upper end") is True
    assert verdict(settled, "settles into a narrow band") is True
    flat = dataclasses.replace(run, beta_steps=[dataclasses.replace(s, beta=1.0) for s in steps])
    assert verdict(flat, "generally decreases") is False
    assert verdict(flat, "starts near the upper end") is False
    assert verdict(flat, "settles into a narrow band") is False
