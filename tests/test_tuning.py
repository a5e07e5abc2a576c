from __future__ import annotations

import pytest

from basis_rl import PassRates, RewardBatch, estimators
from basis_rl.lab.tuning import settings_to_try


@pytest.mark.parametrize("name", estimators.names())
def test_every_setting_makes_an_estimator_that_differs_from_the_published_one(name):
    table = PassRates.from_counts(["a", "b", "c"], [1, 2, 7], 8)
    settings = settings_to_try(name)
    assert all(settings.count(options) == 1 for options in settings)
    for options in settings:
        estimator = estimators.create(name, table, **options)
        published = estimators.create(name, table)
        batch = RewardBatch(["a", "a", "b", "b", "c", "c"], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
        for _ in range(25):
            ours = estimator.estimate(batch).baselines
            theirs = published.estimate(batch).baselines
        assert not (ours == theirs).all(), options


def test_trackers_are_tuned_and_others_have_nothing_to_tune():
    for name in ("spo", "spo-plus-plus", "kae", "krpo-tracking"):
        assert len(settings_to_try(name)) >= 4
    assert settings_to_try("zero") == []
    assert settings_to_try("no such estimator") == []
