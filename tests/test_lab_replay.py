"""The replay: what is shown, what the oracle is, and that its numbers are those of the truth."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
from shared_data import shared_data

from basis_rl import BatchMean, ConfigError, GroupMean, PassRates, RewardBatch
from basis_rl.estimators import Estimator, registry
from basis_rl.lab.contenders import Contender, contenders
from basis_rl.lab.intervals import clustered_mean, student_quantile
from basis_rl.lab.read import read_record
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.lab.replay import replay
from basis_rl.lab.replaying.tables import csv_files, note_lines, shown_names
from basis_rl.lab.simulate import simulate

# Quarters of the run, mean of five seeds, as measured by the benchmark that the replay replaced.
MEASURED = {
    "batch-mean": ([0.1298, 0.1399, 0.1439, 0.1459], 0.002),
    "basis-paper-literal": ([0.2435, 0.2581, 0.2397, 0.2522], 0.02),
    "basis-paper": ([0.0312, 0.0341, 0.0368, 0.0399], 0.001),
    "basis-paper-smoothed": ([0.0082, 0.0110, 0.0129, 0.0162], 0.0008),
    "basis-initial": ([0.0072, 0.0104, 0.0123, 0.0160], 0.0008),
    "basis-robust": ([0.0064, 0.0084, 0.0106, 0.0141], 0.0005),
    "group-mean-8": ([0.0133, 0.0128, 0.0128, 0.0127], 0.0008),
    "group-mean-16": ([0.0067, 0.0064, 0.0064, 0.0064], 0.0005),
}


@pytest.fixture(scope="module")
def on_the_trace():
    record = read_record(shared_data("traces/qwen25math15b_grpo_trace.jsonl"), steps=(1, 44))
    return replay(record, contenders(list(MEASURED)))


@pytest.mark.parametrize("name", MEASURED)
def test_errors_are_those_measured_before(on_the_trace, name):
    expected, tolerance = MEASURED[name]
    windows = on_the_trace.by_step(4)
    errors = [on_the_trace.mse(name, rows).value for rows in windows.rows]
    np.testing.assert_allclose(errors, expected, atol=tolerance)
    assert windows.labels == ["5-14", "15-24", "25-34", "35-44"]


class Spy(Estimator):
    """Baseline 0; remembers what it was shown."""

    name: ClassVar[str] = "spy"

    def __init__(self, table: PassRates | None = None) -> None:
        self.table, self.batches = table, []

    def _baselines(self, rollouts: RewardBatch):
        self.batches.append(rollouts)
        return np.zeros(len(rollouts)), {}


def spies(rollouts: int = 1) -> tuple[Contender, list[Spy]]:
    made: list[Spy] = []

    def make(table: PassRates | None) -> Spy:
        made.append(Spy(table))
        return made[-1]

    return Contender("spy", "spy", make, rollouts), made


def numbered(counts: list[list[int]], **more) -> RewardRecord:
    """Visits with these numbers of rollouts by prompt; every reward is another number."""
    rows = [(v, p, n) for p, sizes in enumerate(counts) for v, n in enumerate(sizes)]
    rows.sort()
    starts = np.concatenate([[0], np.cumsum([n for _, _, n in rows])])
    return RewardRecord(
        [f"p{i}" for i in range(len(counts))],
        np.array([p for _, p, _ in rows]),
        np.array([v for v, _, _ in rows]),
        starts,
        np.arange(starts[-1], dtype=np.float64),
        **more,
    )


def seen_by(spy: Spy) -> set[float]:
    return {reward for batch in spy.batches for reward in batch.rewards.tolist()}


@pytest.mark.parametrize("rollouts", [1, 3])
def test_the_oracle_is_what_no_estimator_has_seen_at_any_visit(rollouts):
    record = numbered([[6, 5, 8, 7]] * 5 + [[6, 6, 6]])
    spy, made = spies(rollouts)
    group, grouped = spies(2)
    found = replay(
        record,
        [spy, dataclasses.replace(group, name="group")],
        rollouts=rollouts,
        cache_rollouts=4,
        batch_size=3,
        seeds=4,
    )
    for seed in range(4):
        table = made[seed].table
        assert table is not None
        cached = set(table.reward_values.tolist())
        assert table.n.tolist() == [4] * 6
        for spied, shown in ((made[seed], rollouts), (grouped[seed], 2)):
            seen = seen_by(spied)
            assert not seen & cached
            for place in np.flatnonzero(found.seed == seed):
                rewards = record.of_visit(found.visit[place])
                oracle = np.array([r for r in rewards.tolist() if r not in seen])
                assert len(oracle) == len(rewards) - shown
                noise = oracle.var(ddof=1) / len(oracle)
                row = 0 if spied is made[seed] else 1
                error = oracle.mean() ** 2 - noise
                assert found.errors[row, place] == pytest.approx(error)
                if row == 0:
                    assert found.targets[place] == pytest.approx(oracle.mean())
                    assert found.target_variance[place] == pytest.approx(noise)
                    assert found.rewards[place] in seen


def test_the_level_of_a_row_is_of_other_visits_and_unseen_rollouts():
    record = numbered([[6] * 9] * 3)
    spy, made = spies()
    found = replay(record, [spy], cache_rollouts=6, seeds=2)
    for seed in range(2):
        seen = seen_by(made[seed])
        for place in np.flatnonzero(found.seed == seed):
            near = (
                (found.prompt == found.prompt[place])
                & (found.seed == seed)
                & (np.abs(found.step - found.step[place]) <= 3)
                & (found.step != found.step[place])
            )
            unseen = [
                r for v in found.visit[near] for r in record.of_visit(v).tolist() if r not in seen
            ]
            assert found.level[place] == pytest.approx(np.mean(unseen))


def test_two_seeds_show_different_rollouts_and_share_a_cache():
    record = numbered([[8] * 4] * 6)
    group, made = spies(4)
    replay(record, [group], cache_rollouts=10, seeds=4)
    for one, two in ((0, 1), (2, 3)):
        assert not seen_by(made[one]) & seen_by(made[two])
        assert made[one].table.reward_values.tolist() == made[two].table.reward_values.tolist()
    assert seen_by(made[0]) & seen_by(made[2])


def test_every_visit_is_in_one_batch_in_the_order_of_steps():
    record = numbered([[4] * 5] * 21)
    spy, made = spies()
    replay(record, [spy], cache_rollouts=0, batch_size=5, seeds=1)
    sizes = [len(batch) for batch in made[0].batches]
    assert sizes == [5, 5, 5, 6] * 5  # a last batch of one would have no others
    assert [batch.step for batch in made[0].batches] == list(range(20))
    for start in range(0, 20, 4):
        keys = [key for batch in made[0].batches[start : start + 4] for key in batch.keys]
        assert sorted(keys) == sorted(record.keys)
    recorded, made = spies()
    replay(record, [recorded], cache_rollouts=0, batches="recorded", seeds=1)
    assert [batch.keys for batch in made[0].batches] == [record.keys] * 5


def test_the_cache_is_the_first_visits_or_the_records_own():
    record = numbered([[4, 4, 4, 5]] * 3)
    spy, made = spies()
    found = replay(record, [spy], cache_rollouts=6, seeds=1)
    assert sorted(set(found.step.tolist())) == [2, 3]
    first = made[0].table
    assert set(first.reward_values.tolist()) < set(range(24))
    spy, made = spies()
    found = replay(record, [spy], cache_rollouts=0, seeds=1)
    assert made[0].table is None
    assert sorted(set(found.step.tolist())) == [0, 1, 2, 3]
    own = PassRates.from_rewards(record.keys, [[0.5]] * 3)
    spy, made = spies()
    found = replay(dataclasses.replace(record, pass_rates=own), [spy], seeds=1)
    assert made[0].table is own
    assert sorted(set(found.step.tolist())) == [0, 1, 2, 3]


def test_a_prompts_only_visit_is_split():
    record = read_record((np.random.default_rng(0).random((30, 40)) < 0.5).astype(float))
    spy, made = spies()
    found = replay(record, [spy], cache_rollouts=32, seeds=2)
    assert made[0].table.n.tolist() == [32] * 30
    assert len(found) == 60
    with pytest.raises(RecordError, match="cache of 38 rollouts leaves at most 2 of a visit"):
        replay(record, [spy], cache_rollouts=38)


def test_a_contender_does_not_change_the_others():
    record = simulate(prompts=40, visits=6, rollouts=8, seed=3).record
    one = replay(record, contenders(["batch-mean"]), seeds=2)
    many = replay(record, contenders(["group-mean-4", "basis-robust", "batch-mean"]), seeds=2)
    np.testing.assert_array_equal(one.errors[0], many.errors[2])


NAMES = ["batch-mean", "group-mean-4", "leave-one-out-8", "james-stein", "spo", "basis-robust"]


def true_errors(found, values):
    """Squared distance of the first shown baseline to the truth, by contender."""
    return (found.baselines - values[found.visit]) ** 2


def test_the_mse_is_unbiased_in_all_and_in_every_bin():
    """Many small records: the estimate less the truth is 0 within its standard error."""
    less: list[list[float]] = []
    for seed in range(60):
        simulated = simulate(prompts=60, visits=5, rollouts=8, cache=8, drift=0.5, seed=seed)
        found = replay(simulated.record, contenders(NAMES), seeds=2, batch_size=20)
        truth = true_errors(found, simulated.values)
        groups = [np.arange(len(found)), *found.by_difficulty(3).rows]
        groups += found.by_heterogeneity(3).rows
        row = []
        for name in ("batch-mean", "spo", "basis-robust", "group-mean-4"):
            place = found.place(name)
            row += [
                (found.errors[place, rows] - truth[place, rows]).sum() / len(found)
                for rows in groups
            ]
        less.append(row)
    values = np.array(less)
    standard = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    # 28 means: the largest of so many is under 3.5 standard errors in 98.7% of the cases.
    assert (np.abs(values.mean(axis=0)) < 3.5 * standard).all()
    # And the noise that is taken off is not small beside what is found.
    assert standard[2 * 7] < 0.001


def test_bins_by_the_own_oracle_would_be_biased():
    """Why bins are made of neighbouring visits: the own oracle's noise sorts the errors too."""
    simulated = simulate(prompts=800, visits=4, rollouts=6, pass_rates="alike", seed=0)
    found = replay(simulated.record, contenders(["batch-mean"]), seeds=2)
    error = found.errors[0]
    by_own = [error[found.targets < 0.35].mean(), error[found.targets > 0.65].mean()]
    by_level = [error[found.level < 0.35].mean(), error[found.level > 0.65].mean()]
    assert min(by_own) > 0.02
    assert max(map(abs, by_level)) < 0.01


@pytest.mark.slow
def test_intervals_cover_the_mean_of_all_records():
    """Of 300 records: the standard error is the deviation between records, to 10%.

    Errors of prompts are skewed, so that with 80 of them some intervals cover less than 95%.
    """
    names = ["batch-mean", "spo", "basis-robust", "pvpo"]
    found = [
        replay(
            simulate(prompts=80, visits=5, rollouts=8, cache=8, drift=0.3, seed=seed).record,
            contenders(names),
            seeds=2,
            batch_size=20,
        )
        for seed in range(300)
    ]
    asked = [[each.mse(name) for each in found] for name in names]
    asked.append([each.difference("spo", "basis-robust") for each in found])
    for means in asked:
        values = np.array([mean.value for mean in means])
        covered = np.mean([mean.low <= values.mean() <= mean.high for mean in means])
        assert 0.90 <= covered <= 0.985, covered
        errors = np.array([mean.error for mean in means]) / student_quantile(0.975, 15)
        assert np.sqrt((errors**2).mean()) == pytest.approx(values.std(ddof=1), rel=0.15)


class OwnReward(Estimator):
    name: ClassVar[str] = "own-reward"

    def _baselines(self, rollouts: RewardBatch):
        return rollouts.rewards.copy(), {}


def test_an_estimator_that_uses_its_own_reward_is_seen():
    record = simulate(prompts=150, visits=8, rollouts=8, seed=1).record
    own = Contender("own", "own", lambda _: OwnReward())
    found = replay(record, [own, *contenders(["basis-robust", "group-mean-4"])], seeds=2)
    assert found.zero_advantage("own") == 1.0
    assert found.own_reward("own").low > 0.9
    assert abs(found.own_reward("basis-robust").value) < 0.05
    assert found.own_reward("group-mean-4").value == pytest.approx(0.25, abs=0.05)
    # Its error is the variance of a single reward.
    values = found.level * (1 - found.level)
    assert found.mse("own").value == pytest.approx(values.mean(), rel=0.25)


def test_an_estimator_that_has_seen_the_oracle_is_seen():
    record = simulate(prompts=150, visits=8, rollouts=4, seed=1).record
    means = np.add.reduceat(record.rewards, record.starts[:-1]) / record.counts

    class Oracle(Estimator):
        """Knows the mean of all of a visit's rollouts."""

        name: ClassVar[str] = "oracle"

        def __init__(self) -> None:
            self.visits = np.zeros(len(record.keys), dtype=int)

        def _baselines(self, rollouts: RewardBatch):
            rows = [record.keys.index(key) for key in rollouts.keys]
            of = [np.flatnonzero(record.prompt == row)[self.visits[row]] for row in rows]
            self.visits[rows] += 1
            # The others of the visit are four times its mean less the shown one.
            return (4 * means[of] - rollouts.rewards) / 3, {}

    found = replay(record, [Contender("o", "o", lambda _: Oracle())], seeds=2, rollouts=1)
    assert found.mse("o").high < 0
    assert any("has seen what it is measured by" in line for line in note_lines(found))


def test_bias_and_variance_are_those_of_the_truth():
    simulated = simulate(prompts=400, visits=6, rollouts=8, cache=16, seed=2)
    record = simulated.record
    found = replay(record, contenders(["pvpo", "group-mean-4", "batch-mean", "spo"]), seeds=4)
    values = simulated.values[found.visit]
    noise = (values * (1 - values)).mean()
    bias, variance = found.bias_variance("group-mean-4")
    assert variance.value == pytest.approx(noise / 4, rel=0.1)
    assert bias.low < 0 < bias.high
    bias, variance = found.bias_variance("pvpo")
    assert variance.value == pytest.approx(0.0, abs=1e-12)
    static = record.pass_rates.means[record.pass_rates.rows(record.keys)]
    exact = ((static[found.prompt] - values) ** 2).mean()
    assert bias.low < exact < bias.high
    for name in found.names:
        bias, variance = found.bias_variance(name)
        assert bias.value + variance.value == pytest.approx(found.mse(name).value)
    alone = replay(record, contenders(["batch-mean"]), seeds=1)
    assert np.isnan(alone.bias_variance("batch-mean")[0].value)


def test_group_means_of_more_rollouts_than_a_visit_has_are_computed():
    simulated = simulate(prompts=300, visits=6, rollouts=16, seed=4)
    found = replay(simulated.record, contenders(["group-mean-8", "group-mean-24"]), seeds=2)
    assert found.shown.tolist() == [8, 0]
    exact = simulated.variances.mean() / 24
    assert found.mse("group-mean-24").value == pytest.approx(exact, rel=0.05)
    assert found.mse("group-mean-8").value == pytest.approx(3 * exact, rel=0.1)
    assert np.isnan(found.extreme("group-mean-24"))
    assert np.isnan(found.advantage_spread("group-mean-24"))


def test_who_cannot_take_part_is_named():
    record = simulate(prompts=30, visits=4, rollouts=5, cache=0, seed=0).record
    found = replay(record, cache_rollouts=0, seeds=1)
    assert "greedy_rewards" in found.left_out["remax"]
    assert "values" in found.left_out["critic"]
    assert "lengths" in found.left_out["opo"]
    assert "4 rollouts of a visit and 2 for the oracle" in found.left_out["james-stein"]
    assert "no cache" in found.left_out["basis-robust"]
    assert "spo" in found.names
    with pytest.raises(ConfigError, match="was left out: it needs pass rates"):
        found.mse("basis-robust")
    with pytest.raises(RecordError, match="no estimator can be replayed"):
        replay(record, contenders(["remax"]), cache_rollouts=0)
    with_lengths = dataclasses.replace(record, lengths=np.full(len(record.rewards), 7.0))
    found = replay(with_lengths, contenders(["reinforce-plus-plus"]), cache_rollouts=0, seeds=1)
    assert found.names == ["reinforce-plus-plus"]


def test_an_estimator_that_refuses_a_later_batch_is_left_out():
    class Picky(BatchMean):
        def _baselines(self, rollouts: RewardBatch):
            if rollouts.step == 3:
                raise ConfigError("no more of this")
            return super()._baselines(rollouts)

    record = simulate(prompts=30, visits=6, rollouts=5, seed=0).record
    picky = Contender("picky", "picky", lambda _: Picky())
    found = replay(record, [picky, *contenders(["batch-mean"])], batch_size=8, seeds=2)
    assert found.left_out == {"picky": "no more of this"}
    assert found.names == ["batch-mean"]
    assert found.errors.shape == (1, len(found))


def test_too_few_rollouts_are_told():
    record = numbered([[2, 2]] * 3)
    with pytest.raises(RecordError, match="largest visit has 2 rollouts"):
        replay(record, cache_rollouts=0)
    with pytest.raises(ConfigError, match="seeds is 0"):
        replay(record, seeds=0)
    mixed = numbered([[5, 2, 5, 5]] * 20)
    found = replay(mixed, contenders(["batch-mean"]), cache_rollouts=5, seeds=1)
    assert found.dropped == 20
    assert sorted(set(found.step.tolist())) == [2, 3]


def test_contenders_cover_the_registry_and_can_be_chosen():
    everyone = contenders()
    assert {each.estimator for each in everyone} == set(registry.names())
    assert len({each.name for each in everyone}) == len(everyone)
    assert [each.name for each in contenders(["spo", "basis-robust"])] == ["spo", "basis-robust"]
    assert len(contenders(["basis"])) > 3
    with pytest.raises(ConfigError, match="did you mean 'basis-robust'"):
        contenders(["basis-robus"])


def test_tuned_settings_are_told_apart():
    found = contenders(["spo"], tuned=True)
    if len(found) == 1:
        pytest.skip("no estimator has settings to try")
    record = simulate(prompts=60, visits=12, rollouts=6, drift=0.8, seed=5).record
    result = replay(record, found, seeds=2)
    best = result.best_tuned()["spo"]
    assert result.mse(best).value == min(result.mse(name).value for name in result.names)
    names = shown_names(result)
    assert names[0] == "spo"
    assert names[1:] in ([], [best])
    tables = csv_files(result, "spo")
    assert len(tables["measures.csv"].splitlines()) == len(found) + 1


def test_rows_of_groups_are_disjoint_and_complete():
    record = simulate(prompts=64, visits=10, rollouts=5, seed=6).record
    found = replay(record, contenders(["batch-mean"]), seeds=2, batch_size=16)
    for groups in (found.by_step(3), found.by_difficulty(), found.by_heterogeneity(4)):
        rows = np.concatenate(groups.rows)
        assert sorted(rows.tolist()) == list(range(len(found)))
        assert len(groups.labels) == len(groups.rows)


def test_clustered_mean_against_a_naive_one():
    rng = np.random.default_rng(0)
    prompt, batch = rng.integers(0, 9, 200), rng.integers(0, 14, 200)
    values = rng.normal(size=200) + prompt * 0.3 + rng.normal(size=14)[batch]
    less = values - values.mean()

    def part(cluster):
        sums = [less[cluster == c].sum() ** 2 for c in set(cluster.tolist())]
        return len(sums) / (len(sums) - 1) * sum(sums) / 200**2

    by_prompt, by_batch = part(prompt), part(batch)
    variance = max(by_prompt + by_batch - (less**2).sum() / 200**2, by_prompt, by_batch)
    found = clustered_mean(values, prompt, batch)
    assert found.value == pytest.approx(values.mean())
    assert found.error == pytest.approx(student_quantile(0.975, 8) * variance**0.5)
    assert np.isnan(clustered_mean(values[:0], prompt[:0], batch[:0]).value)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(4, 2.7764), (10, 2.2281), (30, 2.0423), (1000, 1.9623)]
)
def test_students_quantiles(degrees, quantile):
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, rel=0.01)


def test_an_own_group_estimator_gets_all_its_rows():
    record = numbered([[6] * 3] * 4)
    group = Contender("g", "g", lambda _: GroupMean(), 3)
    found = replay(record, [group], cache_rollouts=0, seeds=1)
    assert found.shown.tolist() == [3]
    assert np.isfinite(found.errors).all()


def test_pairs_of_seeds_are_those_that_show_different_rollouts():
    record = simulate(prompts=50, visits=6, rollouts=8, seed=7).record
    chosen = contenders(["spo"])
    odd = replay(record, chosen, seeds=2, first_seed=1)
    assert np.isnan(odd.variance).all()
    even, later = replay(record, chosen, seeds=2), replay(record, chosen, seeds=3, first_seed=1)
    np.testing.assert_array_equal(even.errors[:, len(even) // 2 :], odd.errors[:, : len(odd) // 2])
    assert np.isfinite(later.variance).all()
