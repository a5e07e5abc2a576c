"""Public data sets by name (units, direction, missing values), and files with named columns."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates import PassRates, prompt_key
from basis_rl.passrates.importers import Imported, import_pass_rates

RATES = Path(__file__).parent / "fixtures" / "importers" / "columns" / "rates.csv"
SKYWORK = "extra_info.model_difficulty.DeepSeek-R1-Distill-Qwen-{}B"
MESSAGES = [{"role": "user", "content": "b"}]


class StubbedHub:
    """Stands for `datasets.load_dataset`: rows by name, and what was asked for."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, name: str, config: Any, *, split: str, revision: Any = None) -> Any:
        self.asked.append((name, config, split, revision))
        if name not in self.rows:
            raise ConnectionError("cannot reach the hub")
        return HubDataset(self.rows[name], f"hf://datasets/{name}@{'a' * 40}/data.parquet")


class HubDataset(list):
    def __init__(self, rows: list[dict[str, Any]], url: str) -> None:
        super().__init__(rows)
        self.info = SimpleNamespace(download_checksums={url: {}})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> StubbedHub:
    stub = StubbedHub()
    monkeypatch.setattr(datasets, "load_dataset", stub)
    return stub


def outcome(imported: Imported) -> dict[str, Any]:
    """(successes, n) or rate or rewards of each key."""
    table = imported.table
    if table.kind == "rates":
        assert table.rates is not None
        return dict(zip(table.keys, table.rates.tolist(), strict=True))
    if table.kind == "rewards":
        return dict(zip(table.keys, table.means.tolist(), strict=True))
    assert table.successes is not None
    pairs = zip(table.successes.tolist(), table.n.tolist(), strict=True)
    return dict(zip(table.keys, pairs, strict=True))


# hub id, rows, options, what each prompt (a, b, …) has, number of missing results
SETS: list[tuple[str, list[dict[str, Any]], dict[str, Any], dict[str, Any], int]] = [
    (
        "SynthLabsAI/Big-Math-RL-Verified",
        [
            {"problem": "a", "answer": "1", "source": "s", "llama8b_solve_rate": 0.25},
            {"problem": "b", "answer": "1", "source": "s", "llama8b_solve_rate": None},
        ],
        {},
        {"a": 0.25},
        1,
    ),
    (
        "POLARIS-Project/Polaris-Dataset-53K",
        [{"problem": "a", "difficulty": "3/8"}, {"problem": "b", "difficulty": "0/8"}],
        {},
        {"a": (3, 8), "b": (0, 8)},
        0,
    ),
    (
        "PrimeIntellect/INTELLECT-2-RL-Dataset",
        [{"prompt": "a", "solve_rate_qwen_r1_distill_7b": 0.7}],
        {},
        {"a": 0.7},
        0,
    ),
    (
        "PrimeIntellect/INTELLECT-3-RL",
        [
            {"question": "a", "avg@8_qwen3_4b_thinking_2507": 0.375},
            {"question": "b", "avg@8_qwen3_4b_thinking_2507": float("nan")},
        ],
        {"rate_column": "avg@8_qwen3_4b_thinking_2507"},
        {"a": (3, 8)},
        1,
    ),
    (
        "LLM360/guru-RL-92k",
        [
            {
                "prompt": MESSAGES,
                "data_source": "math",
                "qwen2.5_7b_pass_rate": 0.5,
                "qwen3_30b_pass_rate": float("nan"),
            }
        ],
        {"rate_column": "qwen2.5_7b_pass_rate"},
        {"b": 0.5},
        0,
    ),
    (
        "nvidia/OpenMathReasoning",
        [
            {"problem": "a", "problem_source": "x", "pass_rate_72b_tir": "0.96875"},
            {"problem": "b", "problem_source": "x", "pass_rate_72b_tir": "n/a"},
        ],
        {},
        {"a": 0.96875},
        1,
    ),
    (
        "allenai/Dolci-Think-RL-7B",
        [
            {"prompt": "a", "passrate": 0.5, "total_rollouts": 8, "total_correct_rollouts": 4},
            {"prompt": "b", "passrate": None, "total_rollouts": 0, "total_correct_rollouts": 0},
        ],
        {},
        {"a": (4, 8)},
        1,
    ),
    (
        "lime-nlp/DeepScaleR_Difficulty",
        [
            {"problem": "a", "difficulty": 100 * (1 - 5 / 128)},
            {"problem": "b", "difficulty": 100.0},
        ],
        {},
        {"a": (5, 128), "b": (0, 128)},
        0,
    ),
    (
        "Cornell-AGI/math_size_qwen2.5_1.5b_eval",
        [{"problem": "a", "response_0": "x", "response_1": "y", "eval_0": 1.0, "eval_1": False}],
        {},
        {"a": (1, 2)},
        0,
    ),
    (
        "MYCX/gendata_dapo",
        [
            {
                "prompt": "a",
                "completions": [
                    {"raw": "x", "is_correct": True},
                    {"raw": "y", "is_correct": False},
                    {"raw": "z", "is_correct": None},
                ],
            }
        ],
        {},
        {"a": (1, 2)},
        1,
    ),
    (
        "justus27/skywork-difficult",
        [{"problem": "a", "solve_rate_qwen_r1_distill_1b": 0.1}],
        {"rate_column": "solve_rate_qwen_r1_distill_1b"},
        {"a": 0.1},
        0,
    ),
]


@pytest.mark.parametrize(("name", "rows", "options", "expected", "missing"), SETS)
def test_public_sets_by_name_and_from_a_local_file(
    name: str,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    expected: dict[str, Any],
    missing: int,
    hub: StubbedHub,
    tmp_path: Path,
) -> None:
    hub.rows[name] = rows
    imported = import_pass_rates(name, **options)
    keys = {
        text: prompt_key(MESSAGES if isinstance(rows[0].get("prompt"), list) else text)
        for text in expected
    }
    assert outcome(imported) == {keys[text]: value for text, value in expected.items()}
    assert imported.report.missing == missing
    told = imported.table.provenance.extra["import"]
    assert (told["source"], told["source_revision"]) == (name, "a" * 40)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    local = import_pass_rates(tmp_path / "train.parquet", format=name, **options)
    assert outcome(local) == outcome(imported)


def test_what_public_sets_tell_of_their_making(hub: StubbedHub) -> None:
    hub.rows["lime-nlp/MATH_Difficulty"] = [{"problem": "a", "difficulty": 0}]
    made_by = import_pass_rates("lime-nlp/MATH_Difficulty").table.provenance
    assert (made_by.model, made_by.temperature) == ("Qwen/Qwen2.5-Math-7B", 0.6)
    assert (made_by.top_p, made_by.max_tokens) == (0.9, 4096)
    own = import_pass_rates("lime-nlp/MATH_Difficulty", provenance={"temperature": 1.0})
    assert own.table.provenance.temperature == 1.0
    hub.rows["nvidia/OpenMathReasoning"] = [{"problem": "a", "pass_rate_72b_tir": "1.0"}]
    assert "could run code" in import_pass_rates("nvidia/OpenMathReasoning").report.remarks[0]


def test_the_split_configuration_and_revision_are_asked_for(hub: StubbedHub) -> None:
    name = "nvidia/OpenMathReasoning"
    hub.rows[name] = [{"problem": "a", "pass_rate_72b_tir": "0.5"}]
    import_pass_rates(f"{name}:default", split="cot", data_revision="v1")
    assert hub.asked == [(name, "default", "cot", "v1")]


def test_several_models_in_one_set_are_asked_about(hub: StubbedHub) -> None:
    hub.rows["LLM360/guru-RL-92k"] = [{"prompt": "a", "qwen2.5_7b_pass_rate": 0.5}]
    with pytest.raises(PassRatesError, match=r"qwen3_30b_pass_rate \(which variant"):
        import_pass_rates("LLM360/guru-RL-92k")


def test_the_hub_cannot_be_reached(hub: StubbedHub) -> None:
    with pytest.raises(
        PassRatesError, match=r"cannot be loaded \(cannot reach the hub\).*--format"
    ):
        import_pass_rates("nvidia/OpenMathReasoning")


def test_a_wrong_rate_names_its_row(hub: StubbedHub) -> None:
    name = "PrimeIntellect/INTELLECT-3-RL"
    column = "avg@8_qwen3_4b_instruct_2507"
    hub.rows[name] = [{"question": "a", column: 0.5}, {"question": "b", column: 0.3}]
    with pytest.raises(PassRatesError, match=r"row 1: avg@8.*2\.4 of 8 rollouts, no whole number"):
        import_pass_rates(name, rate_column=column)
    hub.rows["POLARIS-Project/Polaris-Dataset-53K"] = [{"problem": "a", "difficulty": "9/8"}]
    with pytest.raises(PassRatesError, match=r"row 0: difficulty is '9/8'.*fraction k/n"):
        import_pass_rates("POLARIS-Project/Polaris-Dataset-53K")


# passes or failures


def skywork(weak: float, strong: float, *, rows: int = 200) -> list[dict[str, Any]]:
    """Counts out of 16 with these mean rates of the 1.5B and the 32B model."""
    draw = random.Random(0)

    def count(rate: float) -> int:
        return sum(draw.random() < rate for _ in range(16))

    made = []
    for i in range(rows):
        counts = {
            f"DeepSeek-R1-Distill-Qwen-{size}B": count(rate)
            for size, rate in (("1.5", weak), ("7", (weak + strong) / 2), ("32", strong))
        }
        prompt = [{"role": "user", "content": f"q{i}"}]
        made.append(
            {"prompt": prompt, "data_source": "s", "extra_info": {"model_difficulty": counts}}
        )
    return made


@pytest.mark.parametrize(("rates", "kind"), [((0.7, 0.2), "failures"), ((0.2, 0.7), "passes")])
def test_skywork_direction_is_decided_by_the_models(
    rates: tuple[float, float], kind: str, hub: StubbedHub
) -> None:
    name, column = "Skywork/Skywork-OR1-RL-Data", SKYWORK.format("1.5")
    hub.rows[name] = skywork(*rates)
    imported = import_pass_rates(name, rate_column=column)
    counts = [
        row["extra_info"]["model_difficulty"]["DeepSeek-R1-Distill-Qwen-1.5B"]
        for row in hub.rows[name]
    ]
    expected = [16 - c for c in counts] if kind == "failures" else counts
    assert imported.table.successes is not None
    assert imported.table.successes.tolist() == expected
    assert any(f"taken as {kind}" in remark for remark in imported.report.remarks)
    # Either way the weaker model solves less.
    strong = import_pass_rates(name, rate_column=SKYWORK.format("32"))
    assert imported.report.mean < strong.report.mean
    assert imported.table.provenance.model == "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"


def test_an_undecided_direction_is_asked_about(hub: StubbedHub) -> None:
    name, column = "Skywork/Skywork-OR1-RL-Data", SKYWORK.format("7")
    hub.rows[name] = skywork(0.5, 0.5)
    with pytest.raises(PassRatesError, match=r"passes or failures\?.*--direction"):
        import_pass_rates(name, rate_column=column)
    passes = import_pass_rates(name, rate_column=column, direction="passes").table
    failures = import_pass_rates(name, rate_column=column, direction="failures").table
    assert passes.successes is not None
    assert failures.successes is not None
    assert (passes.successes + failures.successes == 16).all()
    with pytest.raises(PassRatesError, match="use passes or failures"):
        import_pass_rates(name, rate_column=column, direction="up")
    hub.rows[name] = skywork(0.7, 0.2, rows=10)
    with pytest.raises(PassRatesError, match=r"over 10 rows.*too few to tell"):
        import_pass_rates(name, rate_column=column)


def test_a_direction_where_it_is_known_is_refused(hub: StubbedHub) -> None:
    hub.rows["POLARIS-Project/Polaris-Dataset-53K"] = [{"problem": "a", "difficulty": "3/8"}]
    with pytest.raises(PassRatesError, match="--direction has no meaning"):
        import_pass_rates("POLARIS-Project/Polaris-Dataset-53K", direction="failures")


def test_the_renamed_skywork_columns(hub: StubbedHub) -> None:
    name = "PrimeIntellect/Skywork-OR1-RL-Data"
    hub.rows[name] = []
    for i in range(40):
        info = {
            "data_source": "s",
            "index": i,
            "difficulty_deepseek_r1_distill_qwen_1.5b": 12 + i % 3,
            "difficulty_deepseek_r1_qwen_7b": 8,
            "difficulty_deepseek_r1_qwen_32b": 2 + i % 2,
        }
        hub.rows[name].append({"question": f"q{i}", "answer": "1", "info": info})
    imported = import_pass_rates(name, rate_column="info.difficulty_deepseek_r1_qwen_7b")
    assert outcome(imported)[prompt_key("q0")] == (8, 16)
    assert imported.table.provenance.model == "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"
    weakest = import_pass_rates(name, rate_column="info.difficulty_deepseek_r1_distill_qwen_1.5b")
    assert outcome(weakest)[prompt_key("q0")] == (4, 16)


# named columns


def test_columns_of_counts_and_of_rates() -> None:
    counted = import_pass_rates(RATES, successes_column="solved", n_column="tries")
    assert outcome(counted) == {prompt_key("1+1="): (3, 8), prompt_key("7*6="): (4, 4)}
    assert counted.report.missing == counted.report.without_result == 1
    rated = import_pass_rates(RATES, rate_column="rate", n=8, source_column="kind")
    assert outcome(rated) == {prompt_key("1+1="): (3, 8), prompt_key("7*6="): (8, 8)}
    assert rated.table.sources == ["a", "b"]
    bare = import_pass_rates(RATES, rate_column="rate").table
    assert bare.kind == "rates"
    assert bare.n.tolist() == [0, 0]
    keyed = import_pass_rates(RATES, rate_column="rate", key_column="question", n=8).table
    assert keyed.keys == ["1+1=", "7*6="]
    assert keyed.prompt_hashes == [prompt_key(text)[:16] for text in ("1+1=", "7*6=")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "of no known format: name the column with the rewards"),
        ({"rate_column": "rat"}, "did you mean 'rate'"),
        ({"rate_column": "rate", "unit": "share"}, "unit is 'share'"),
        ({"rate_column": "tries"}, r"tries is '8', no rate \(0 to 1\): say what it is with --unit"),
        (
            {"rate_column": "rate", "reward_column": "rate"},
            "--reward-column and --rate-column are both",
        ),
        ({"successes_column": "solved"}, "solved is a count and n is unknown"),
        ({"successes_column": "solved", "n": 2}, r"line 2: solved is 3 of n = 2"),
        ({"rate_column": "rate", "n": 0}, "n is 0"),
        ({"rate_column": "kind"}, "kind is 'a': it should be a number"),
        ({"reward_column": "rate", "repeats": "all"}, "repeats is 'all'"),
        ({"reward_column": "rate", "limit": 0}, "limit is 0"),
    ],
)
def test_mistakes_with_columns(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BasisError, match=words):
        import_pass_rates(RATES, **options)


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_row_a_rollout(tmp_path: Path) -> None:
    rows = [{"prompt": p, "ok": r} for p, r in [("a", True), ("b", False), ("a", False)]]
    table = import_pass_rates(lines(tmp_path / "x.jsonl", rows), reward_column="ok").table
    assert outcome_of(table) == {"a": (1, 2), "b": (0, 1)}


def outcome_of(table: PassRates) -> dict[str, tuple[int, int]]:
    names = {prompt_key(text): text for text in ("a", "b", "c")}
    assert table.successes is not None
    pairs = zip(table.successes.tolist(), table.n.tolist(), strict=True)
    return {names[key]: pair for key, pair in zip(table.keys, pairs, strict=True)}


def test_repeated_rows_of_a_prompt(tmp_path: Path) -> None:
    same = [{"prompt": "a", "rate": 0.5}, {"prompt": "a", "rate": 0.5}]
    path = lines(tmp_path / "x.jsonl", same)
    once = import_pass_rates(path, rate_column="rate", n=8)
    assert outcome_of(once.table) == {"a": (4, 8)}
    assert once.report.dropped == {"rows that repeat a prompt and its result": 1}
    assert outcome_of(import_pass_rates(path, rate_column="rate", n=8, repeats="sum").table) == {
        "a": (8, 16)
    }
    path = lines(tmp_path / "x.jsonl", [{"prompt": "a", "rate": 0.5}, {"prompt": "a", "rate": 1}])
    with pytest.raises(PassRatesError, match=r"line 2: prompt .* another result here than at"):
        import_pass_rates(path, rate_column="rate", n=8)
    first = import_pass_rates(path, rate_column="rate", n=8, repeats="first").table
    assert outcome_of(first) == {"a": (4, 8)}


def test_lists_of_rewards_that_repeat(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "r": [1, 0]},
        {"prompt": "a", "r": [1, 0]},
        {"prompt": "a", "r": [1, 1]},
    ]
    path = lines(tmp_path / "x.jsonl", rows)
    # Two rows alike are one written twice, two that differ are four rollouts; three are neither.
    with pytest.raises(PassRatesError, match=r"line 3.*--repeats first, or --repeats sum"):
        import_pass_rates(path, reward_column="r")
    for repeats, outcome in (("sum", (4, 6)), ("first", (1, 2))):
        imported = import_pass_rates(path, reward_column="r", repeats=repeats)
        assert outcome_of(imported.table) == {"a": outcome}
    for some, outcome in ((rows[:2], (1, 2)), (rows[1:], (3, 4))):
        lines(path, some)
        imported = import_pass_rates(path, reward_column="r")
        assert outcome_of(imported.table) == {"a": outcome}


def test_lists_that_only_look_alike_are_added_up(tmp_path: Path) -> None:
    """Python's hashes of -1 and -2 are one number."""
    rows = [{"prompt": "a", "r": [-1.0, 0.0]}, {"prompt": "a", "r": [-2.0, 0.0]}]
    table = import_pass_rates(lines(tmp_path / "x.jsonl", rows), reward_column="r").table
    assert table.n.tolist() == [4]
    assert table.means.tolist() == [-0.75]


def test_one_key_for_two_prompts_or_sources(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": "a", "r": 1, "s": "x"}, {"id": 1, "prompt": "b", "r": 0, "s": "x"}]
    path = lines(tmp_path / "x.jsonl", rows)
    with pytest.raises(PassRatesError, match="line 2: key '1' is also that of another prompt"):
        import_pass_rates(path, reward_column="r", key_column="id")
    rows = [{"prompt": "a", "r": 1, "s": "x"}, {"prompt": "a", "r": 0, "s": "y"}]
    path = lines(tmp_path / "x.jsonl", rows)
    with pytest.raises(PassRatesError, match=r"line 2: prompt .* has source 'y', and 'x' at"):
        import_pass_rates(path, reward_column="r", source_column="s")


def test_a_column_that_is_empty_gives_no_table(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", [{"prompt": "a", "r": None}, {"prompt": "b", "r": "n/a"}])
    with pytest.raises(PassRatesError, match=r"2 prompts were read and none has a result \(2 are"):
        import_pass_rates(path, reward_column="r")


def test_n_that_is_missing_in_some_rows(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "r": 0.5, "n": 8}, {"prompt": "b", "r": 0.5, "n": None}]
    path = lines(tmp_path / "x.jsonl", rows)
    with pytest.raises(PassRatesError, match=r"line 2 gives rates, rows before it counts"):
        import_pass_rates(path, rate_column="r", n_column="n")


def test_a_limit_of_prompts(tmp_path: Path) -> None:
    rows = [{"prompt": p, "r": 1} for p in "abab"]
    imported = import_pass_rates(lines(tmp_path / "x.jsonl", rows), reward_column="r", limit=1)
    assert outcome_of(imported.table) == {"a": (2, 2)}
    assert imported.report.dropped == {"beyond the limit of prompts": 2}
