from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from trl_ranks import CASES, ROWS, in_two_processes, run

from basis_rl.passrates import prompt_key
from basis_rl.passrates.training_record import read_record

SCRIPT = Path(__file__).with_name("trl_ranks.py")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    return in_two_processes(SCRIPT, folder, timeout=300)


@pytest.mark.parametrize("case", list(CASES))
def test_two_processes_give_the_advantages_of_one(
    tmp_path: Path, ranks: list[dict[str, Any]], case: str
) -> None:
    assert [rank["world_size"] for rank in ranks] == [2, 2]
    one = json.loads(json.dumps(run(tmp_path, 1, **CASES[case])))
    two = [rank[case] for rank in ranks]
    assert len(one["steps"]) == 3
    for step, whole in enumerate(one["steps"]):
        parts = [rank["steps"][step] for rank in two]
        assert [len(part["ids"]) for part in parts] == [ROWS // 2] * 2
        for name in ("ids", "kept"):
            assert parts[0][name] + parts[1][name] == whole[name]
        # One process scales by rows without a verdict as two do: the factor is of all rows.
        assert parts[0]["advantages"] + parts[1]["advantages"] == whole["advantages"]
    assert any(not all(step["kept"]) for step in one["steps"])
    for rank in two:
        assert rank["state"] == one["state"]
        assert rank["table"] == one["table"]
    assert two[0]["metrics"] == one["metrics"]


def test_two_processes_record_each_rollout_once(ranks: list[dict[str, Any]]) -> None:
    for case in CASES:
        batches = list(read_record(Path(ranks[0]["folder"]) / case))
        assert [batch.step for batch in batches] == [0, 1, 2]
        for step, batch in enumerate(batches):
            ids = [name for rank in ranks for name in rank[case]["steps"][step]["ids"]]
            numbers = [int(name.split("-")[1]) for name in ids]
            assert batch.keys == [prompt_key(f"{n // 10}+{n % 10}=") for n in numbers]
            wanted = [None if n % 7 == 3 else float(n % 3 == 0) for n in numbers]
            assert [None if math.isnan(r) else r for r in batch.rewards] == wanted
            has_sources = case == "robust"
            sources = ["a" if n % 2 else "b" for n in numbers]
            assert batch.sources == (sources if has_sources else None)
