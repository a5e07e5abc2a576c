"""Which baseline suits a record, by how much, how sure, and what more rollouts would bring."""

from __future__ import annotations

from basis_rl.lab.recommend.run import Recommendation, recommend

__all__ = ["Recommendation", "recommend"]
