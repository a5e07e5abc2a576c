"""Advice of `lab recommend` in tests: few contenders, one seed."""

from __future__ import annotations

from basis_rl.lab.recommend import Recommendation, recommend
from basis_rl.lab.recommend.judge import usable
from basis_rl.lab.recommend.words import paragraphs
from basis_rl.lab.record import RewardRecord

NAMES = ("batch-mean", "pvpo", "basis-robust", "spo", "basis-online")


def advice(record: RewardRecord, names=NAMES, **options) -> Recommendation:
    """What is recommended for a record."""
    contenders = usable(1, continuous=not record.is_binary, names=names)
    return recommend(record, contenders=contenders, seeds=1, **options)


def text_of(found: Recommendation) -> str:
    """All that is said."""
    return "\n".join(paragraphs(found))
