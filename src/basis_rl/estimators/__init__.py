"""Estimators of a baseline: one file each, all with the same three verbs, and names for them."""

from __future__ import annotations

from basis_rl.estimators.a_star_po import AStarPo
from basis_rl.estimators.base import Estimator
from basis_rl.estimators.basis import Basis
from basis_rl.estimators.basis_online import BasisOnline
from basis_rl.estimators.batch_mean import BatchMean
from basis_rl.estimators.critic import Critic
from basis_rl.estimators.ebpo import Ebpo
from basis_rl.estimators.group_mean import GroupMean
from basis_rl.estimators.james_stein import JamesStein
from basis_rl.estimators.kae import Kae
from basis_rl.estimators.krpo import Krpo
from basis_rl.estimators.krpo_tracking import KrpoTracking
from basis_rl.estimators.leave_one_out import LeaveOneOut
from basis_rl.estimators.opo import Opo
from basis_rl.estimators.pvpo import Pvpo
from basis_rl.estimators.registry import PassRatesUse, create, names, register
from basis_rl.estimators.reinforce_plus_plus import ReinforcePlusPlus
from basis_rl.estimators.remax import ReMax
from basis_rl.estimators.spo import Spo
from basis_rl.estimators.spo_plus_plus import SpoPlusPlus
from basis_rl.estimators.zero import Zero

_BY_PASS_RATES: dict[PassRatesUse, tuple[type[Estimator], ...]] = {
    "none": (
        BatchMean,
        Critic,
        Ebpo,
        GroupMean,
        JamesStein,
        Krpo,
        LeaveOneOut,
        Opo,
        ReMax,
        ReinforcePlusPlus,
        Zero,
    ),
    "needed": (AStarPo, Basis, Pvpo),
    "optional": (BasisOnline, Kae, KrpoTracking, Spo, SpoPlusPlus),
}
for _use, _classes in _BY_PASS_RATES.items():
    for _class in _classes:
        register(_class.name, _class, pass_rates=_use, replace=True)
del _use, _classes, _class

__all__ = [
    "AStarPo",
    "Basis",
    "BasisOnline",
    "BatchMean",
    "Critic",
    "Ebpo",
    "Estimator",
    "GroupMean",
    "JamesStein",
    "Kae",
    "Krpo",
    "KrpoTracking",
    "LeaveOneOut",
    "Opo",
    "Pvpo",
    "ReMax",
    "ReinforcePlusPlus",
    "Spo",
    "SpoPlusPlus",
    "Zero",
    "create",
    "names",
    "register",
]
