"""Settings beside the published ones, for a comparison that grants every estimator its best."""

from __future__ import annotations

from itertools import product
from typing import Any


def settings_to_try(name: str) -> list[dict[str, Any]]:
    """Options of an estimator to try on a record, the published ones left out.

    The best of them on a record is chosen with that record's own oracle, so it flatters the
    estimator; it says what the method could do, not what a user would get.

    Parameters
    ----------
    name : str
        Of the registry.

    Returns
    -------
    list of dict
        Keywords of the estimator; empty where it has nothing to tune, or learns it.
    """
    grids: dict[str, list[dict[str, list[Any]]]] = {
        "basis": [{"smoothing": ["empirical-bayes"]}, {"variant": ["vop"]}],
        "kae": [{"window": [15.0, 20.0, 30.0, 40.0]}],
        "krpo": [{"measurement_variance": [0.25, 1.0]}],
        # With the measurement variance of 0/1 rewards; only ratios matter.
        "krpo-tracking": [{"process_variance": [1e-3, 2e-3, 4e-3], "start_variance": [0.06, 0.25]}],
        "spo": [{"rho": [0.9, 0.92, 0.94, 0.96], "prior_rollouts": [8.0, 16.0]}],
        # By versions the best rate depends on how many policies one epoch sees.
        "spo-plus-plus": [
            {"clock": ["visits"], "rho": [0.9, 0.92, 0.94, 0.96], "prior_rollouts": [8.0, 16.0]},
            {"clock": ["versions"], "rho": [0.98, 0.99, 0.995]},
        ],
    }
    return [
        dict(zip(grid, values, strict=True))
        for grid in grids.get(name, [])
        for values in product(*grid.values())
    ]
