"""Estimators of a baseline: one file each, all with the same three verbs, and names for them."""

from __future__ import annotations

from basis_rl.estimators.base import Estimator
from basis_rl.estimators.basis import Basis
from basis_rl.estimators.batch_mean import BatchMean
from basis_rl.estimators.group_mean import GroupMean
from basis_rl.estimators.leave_one_out import LeaveOneOut
from basis_rl.estimators.registry import create, names, register
from basis_rl.estimators.zero import Zero

for _class in (Zero, BatchMean, GroupMean, LeaveOneOut):
    register(_class.name, _class, replace=True)
register(Basis.name, Basis, pass_rates="needed", replace=True)
del _class

__all__ = [
    "Basis",
    "BatchMean",
    "Estimator",
    "GroupMean",
    "LeaveOneOut",
    "Zero",
    "create",
    "names",
    "register",
]
