"""BASIS and other baselines for reinforcement learning with verifiable rewards.

Source: arXiv 2605.27293.
"""

from __future__ import annotations

from basis_rl import estimators
from basis_rl.batch import Estimate, RewardBatch
from basis_rl.errors import (
    BasisError,
    BatchError,
    ConfigError,
    MissingPassRateError,
    PassRatesError,
    StateError,
)
from basis_rl.estimators import Basis, BasisOnline, BatchMean, GroupMean, LeaveOneOut, Zero
from basis_rl.normalize import normalize_advantages
from basis_rl.passrates.table import PassRates

__version__ = "0.1.0"

__all__ = [
    "Basis",
    "BasisError",
    "BasisOnline",
    "BatchError",
    "BatchMean",
    "ConfigError",
    "Estimate",
    "GroupMean",
    "LeaveOneOut",
    "MissingPassRateError",
    "PassRates",
    "PassRatesError",
    "RewardBatch",
    "StateError",
    "Zero",
    "estimators",
    "normalize_advantages",
]
