"""Reading records of rewards: every source, what is left out, what an error says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared_data

from basis_rl import BasisError, PassRates
from basis_rl.lab.read import read_record, write_record
from basis_rl.lab.reading.file import record_provenance
from basis_rl.lab.reading.visits import Visits
from basis_rl.lab.record import RecordError, RewardRecord
from basis_rl.passrates import Provenance, prompt_key
from basis_rl.passrates.importers.record import Notes, Options

DUMPS = Path(__file__).parent / "fixtures" / "importers"


def visits(record: RewardRecord) -> list[tuple[str, int, list[float]]]:
    """Key, step and sorted rewards of every visit, in order."""
    return [
        (record.keys[record.prompt[v]], int(record.step[v]), sorted(record.of_visit(v).tolist()))
        for v in range(len(record))
    ]


def lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


TRACE = [
    {"prompt_id": "a", "rollouts_per_visit": 4, "successes_by_visit": [0, 4, 1]},
    {"prompt_id": "b", "rollouts_per_visit": 2, "successes_by_visit": [1]},
]


def test_a_trace_has_a_step_a_visit_and_may_be_ragged(tmp_path):
    record = read_record(lines(tmp_path / "trace.jsonl", TRACE))
    assert visits(record) == [
        ("a", 1, [0, 0, 0, 0]),
        ("b", 1, [0, 1]),
        ("a", 2, [1, 1, 1, 1]),
        ("a", 3, [0, 0, 0, 1]),
    ]
    assert record.name == "trace.jsonl"
    assert visits(read_record(tmp_path / "trace.jsonl", steps=(2, 2))) == [("a", 2, [1] * 4)]


def test_successes_of_a_trace_are_in_no_order(tmp_path):
    rows = [
        {"prompt_id": str(i), "rollouts_per_visit": 8, "successes_by_visit": [4]}
        for i in range(400)
    ]
    record = read_record(lines(tmp_path / "trace.jsonl", rows))
    first = record.rewards[record.starts[:-1]]
    assert 0.4 < first.mean() < 0.6


def test_the_real_trace_is_read_whole():
    record = read_record(shared_data("traces/qwen25math15b_grpo_trace.jsonl"))
    assert len(record.keys) == 605
    assert set(record.counts.tolist()) == {8}
    visited = np.bincount(record.prompt)
    assert (visited.min(), visited.max()) == (44, 57)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"successes_by_visit": [0, 5]}, r"line 2: visit 2 has 5 successes of 4"),
        ({"successes_by_visit": [0, True]}, r"line 2: visit 2 has True"),
        ({"rollouts_per_visit": 0}, r"line 2: 0 rollouts a visit"),
        ({"prompt_id": "a"}, r"line 2: prompt 'a' has a line before"),
    ],
)
def test_a_damaged_trace_names_the_line(tmp_path, change, message):
    rows = [TRACE[0], {**TRACE[0], "prompt_id": "b", **change}]
    with pytest.raises(RecordError, match=message):
        read_record(lines(tmp_path / "trace.jsonl", rows))


MATRIX = np.array([[1.0, 0.0, np.nan], [0.5, 1.0, 0.0]])


def test_matrices_are_one_visit_a_prompt(tmp_path):
    np.save(tmp_path / "m.npy", MATRIX)
    np.savez(tmp_path / "m.npz", rewards=MATRIX, keys=np.array(["x", "y"]))
    (tmp_path / "plain.csv").write_text("1,0,\n0.5,1,0\n")
    (tmp_path / "keyed.csv").write_text("key,r1,r2,r3\nx,1,0,\ny,0.5,1,0\n")
    lists = [[1.0, 0.0, None], [0.5, 1.0, 0.0]]
    pq.write_table(pa.table({"prompt_id": ["x", "y"], "rewards": lists}), tmp_path / "m.parquet")
    wanted = {"0": [0, 1], "1": [0, 0.5, 1]}
    named = {"x": [0, 1], "y": [0, 0.5, 1]}
    for name, expected in (
        ("m.npy", wanted),
        ("m.npz", named),
        ("plain.csv", wanted),
        ("keyed.csv", named),
        ("m.parquet", named),
    ):
        notes = Notes()
        record = read_record(tmp_path / name, notes=notes)
        assert visits(record) == [(key, 0, values) for key, values in expected.items()], name
        assert notes.dropped["without a verdict"] == 1, name
    assert visits(read_record(MATRIX)) == [(key, 0, values) for key, values in wanted.items()]


def test_a_table_with_other_columns_is_no_matrix(tmp_path):
    """A step or a length would be taken for a reward."""
    (tmp_path / "d.csv").write_text("id,step,reward\nx,7,1\nx,7,0\n")
    with pytest.raises(BasisError, match="reward-column"):
        read_record(tmp_path / "d.csv")
    options = Options(key_column="id", reward_column="reward")
    assert visits(read_record(tmp_path / "d.csv", options=options)) == [("x", 7, [0, 1])]


def test_keys_of_prompts_are_those_of_other_readers(tmp_path):
    (tmp_path / "m.csv").write_text("prompt,r1,r2\n1+1=,1,0\n")
    assert read_record(tmp_path / "m.csv").keys == [prompt_key("1+1=")]
    path = lines(tmp_path / "m.jsonl", [{"question": "1+1=", "scores": [1, 0]}])
    assert read_record(path).keys == [prompt_key("1+1=")]


def test_an_array_of_three_dimensions_has_visits(tmp_path):
    cube = np.arange(12.0).reshape(2, 3, 2)
    cube[1, 2] = np.nan
    np.savez(tmp_path / "c.npz", rewards=cube, steps=np.array([10, 20, 40]))
    assert visits(read_record(tmp_path / "c.npz")) == [
        ("0", 10, [0, 1]),
        ("1", 10, [6, 7]),
        ("0", 20, [2, 3]),
        ("1", 20, [8, 9]),
        ("0", 40, [4, 5]),
    ]


def test_what_is_no_matrix_is_refused_with_its_place(tmp_path):
    np.save(tmp_path / "flat.npy", np.zeros(3))
    (tmp_path / "damaged.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "short.csv").write_text("1,0,0\n1,0\n")
    (tmp_path / "infinite.csv").write_text("1,0,0\n1,inf,0\n")
    for name, message in (
        ("flat.npy", r"flat.npy has shape \(3,\)"),
        ("damaged.npy", r"damaged.npy cannot be read"),
        ("short.csv", r"short.csv, line 2 has 2 cells"),
        ("infinite.csv", r"infinite.csv, line 2"),
        ("missing.npy", r"there is no"),
    ):
        with pytest.raises(BasisError, match=message):
            read_record(tmp_path / name)


def training_run(folder: Path) -> Path:
    start = {"record": 1, "id": "r", "run": {}, "rewards": [[None, 1.0]]}
    rows = [start]
    for step, keys, rewards in (
        (0, ["a", "b", "a"], [1.0, 0.0, None]),
        (1, ["a", "c"], [0.0, 1.0]),
        (2, ["b", "c"], [0.0, 0.0]),
    ):
        batch = {"step": step, "part": 0, "policy_step": step, "keys": keys, "rewards": rewards}
        rows.append({**batch, "sources": ["s"] * len(keys)})
    folder.mkdir()
    lines(folder / "basis_rewards.jsonl", rows)
    return folder


def test_a_training_run_by_folder_or_file(tmp_path):
    folder = training_run(tmp_path / "run")
    notes = Notes()
    record = read_record(folder, notes=notes)
    assert visits(record) == [
        ("a", 0, [1]),
        ("b", 0, [0]),
        ("a", 1, [0]),
        ("c", 1, [1]),
        ("b", 2, [0]),
        ("c", 2, [0]),
    ]
    assert record.sources == ["s"] * 3
    assert notes.dropped["without a verdict"] == 1
    by_file = read_record(folder / "basis_rewards.jsonl")
    assert visits(by_file) == visits(record)
    with pytest.raises(RecordError, match="no rewards of steps 7 to 9: it holds steps 0 to 2"):
        read_record(folder, steps=(7, 9))


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        *((name, {0}) for name in ("lighteval", "lm_eval", "open_r1", "spo", "evalplus")),
        *((name, {0}) for name in ("verifiers", "verifiers_results", "skyrl")),
        ("nemo_rl", {1, 2}),
        ("open_instruct", {1, 2}),
        ("areal", {0, 1}),
        ("verl_v1", {1, 2, 3}),
    ],
)
def test_dumps_that_the_importer_reads(name, steps):
    record = read_record(DUMPS / name)
    assert set(record.step.tolist()) == steps
    assert np.isfinite(record.rewards).all()


def test_a_dump_agrees_with_the_importer_in_keys_and_counts(tmp_path):
    rows = [
        {"input": f"{i}+1=", "output": "", "score": float(i < 2), "step": 4} for i in (1, 1, 2, 3)
    ]
    record = read_record(lines(tmp_path / "4.jsonl", rows))
    assert visits(record) == [
        (prompt_key("1+1="), 4, [1, 1]),
        (prompt_key("2+1="), 4, [0]),
        (prompt_key("3+1="), 4, [0]),
    ]


def test_columns_of_a_dump_of_no_known_format(tmp_path):
    path = lines(tmp_path / "d.jsonl", [{"q": "x", "right": 1}, {"q": "x", "right": 0}])
    with pytest.raises(BasisError, match="reward-column"):
        read_record(path)
    options = Options(key_column="q", reward_column="right")
    assert visits(read_record(path, options=options)) == [("x", 0, [0, 1])]


def test_a_row_written_twice_is_taken_once(tmp_path):
    row = {"id": "x", "scores": [1, 0, 1]}
    path = lines(tmp_path / "d.jsonl", [row, row])
    options = Options(key_column="id", reward_column="scores")
    notes = Notes()
    record = read_record(path, format="columns", options=options, notes=notes)
    assert visits(record) == [("x", 0, [0, 1, 1])]
    assert notes.dropped["rows that repeat a prompt and its result"] == 1


def test_of_two_rollouts_of_one_name_the_later_holds():
    found = Visits("made", Notes())
    found.add("line 1", "x", [1.0], rollout="a")
    found.add("line 2", "x", [0.0], rollout="b")
    found.add("line 3", "x", [None], rollout="a")
    assert visits(found.record()) == [("x", 0, [0])]
    assert found.notes.dropped["replaced by a later write of the same rollout"] == 1


def test_a_rate_of_unknown_rollouts_is_refused(tmp_path):
    path = lines(tmp_path / "d.jsonl", [{"id": "x", "rate": 0.5}])
    options = Options(key_column="id", rate_column="rate")
    with pytest.raises(RecordError, match=r"line 1 is a rate of an unknown number"):
        read_record(path, options=options)


def test_several_sources_are_steps_of_one_run(tmp_path):
    for step in (1, 2):
        np.save(tmp_path / f"{step}.npy", np.full((2, 3), float(step - 1)))
    record = read_record([tmp_path / "1.npy", tmp_path / "2.npy"])
    assert visits(record) == [
        ("0", 0, [0] * 3),
        ("1", 0, [0] * 3),
        ("0", 1, [1] * 3),
        ("1", 1, [1] * 3),
    ]
    # With steps of their own the parts are put together by step.
    first = lines(tmp_path / "t1.jsonl", TRACE[:1])
    second = lines(tmp_path / "t2.jsonl", TRACE[1:])
    whole = lines(tmp_path / "t.jsonl", TRACE)
    assert visits(read_record([first, second])) == visits(read_record(whole))


def test_rewards_of_minus_one_are_remarked_and_can_be_mapped():
    notes = Notes()
    record = read_record(np.array([[1.0, -1.0]]), notes=notes)
    assert not record.is_binary
    assert "-1" in notes.remarks[0]
    assert read_record(np.array([[1.0, -1.0]]), mapping={-1: 0}).is_binary


def test_pass_rates_must_know_the_prompts(tmp_path):
    table = PassRates.from_counts(["0", "z"], [1, 1], 4)
    table.save(tmp_path / "p.parquet")
    record = read_record(MATRIX, pass_rates=tmp_path / "p.parquet")
    assert record.pass_rates is not None
    with pytest.raises(RecordError, match="know none of the 2 prompts"):
        read_record(MATRIX, pass_rates=PassRates.from_counts(["y"], [1], 4))
    # A table of counts is a record of one policy too.
    assert visits(read_record(tmp_path / "p.parquet")) == [
        ("0", 0, [0, 0, 0, 1]),
        ("z", 0, [0, 0, 0, 1]),
    ]


rewards = st.sampled_from([0.0, 1.0, 0.25, -3.5])


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.lists(rewards, min_size=1)),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["none", "counts", "rewards"]),
)
def test_written_records_are_read_again(tmp_path_factory, rows, sourced, measured, cache):
    rows = sorted(rows, key=lambda row: row[1])
    keys = sorted({row[0] for row in rows})
    sizes = [len(row[2]) for row in rows]
    values = np.concatenate([row[2] for row in rows])
    table = None
    if cache == "counts":
        table = PassRates.from_counts(["a", "q"], [1, 3], [2, 5], provenance=Provenance(model="m"))
    elif cache == "rewards":
        table = PassRates.from_rewards(["a", "q"], [[0.5], [1.0, -2.0]])
    record = RewardRecord(
        keys,
        np.array([keys.index(row[0]) for row in rows]),
        np.array([row[1] for row in rows]),
        np.concatenate([[0], np.cumsum(sizes)]),
        values,
        lengths=values + 10 if measured else None,
        sources=[key.upper() for key in keys] if sourced else None,
        pass_rates=table,
        name="made",
    )
    path = tmp_path_factory.mktemp("record") / "r.parquet"
    write_record(record, path, provenance={"model": "m", "step": 3})
    again = read_record(path, name="made")
    assert visits(again) == visits(record)
    for name in ("rewards", "starts", "step", "lengths"):
        np.testing.assert_array_equal(getattr(again, name), getattr(record, name))
    if sourced:
        assert dict(zip(again.keys, again.sources or [], strict=True)) == {
            key: key.upper() for key in keys
        }
    assert record_provenance(path) == {"model": "m", "step": 3}
    if table is None:
        assert again.pass_rates is None
    else:
        assert again.pass_rates is not None
        assert again.pass_rates.kind == table.kind
        assert list(again.pass_rates.keys) == list(table.keys)
        assert again.pass_rates.n.tolist() == table.n.tolist()
        assert again.pass_rates.means.tolist() == table.means.tolist()
        assert again.pass_rates.provenance.model == table.provenance.model


def test_a_damaged_record_file_is_one_line(tmp_path):
    path = tmp_path / "r.parquet"
    write_record(read_record(MATRIX), path)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BasisError, match=r"r\.parquet"):
        read_record(path)
    path.write_bytes(bytes(data[:50]))
    with pytest.raises(BasisError, match=r"r\.parquet"):
        read_record(path)


def test_a_record_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "r.parquet"
    write_record(read_record(MATRIX), path)
    before = path.read_bytes()
    bare = PassRates.from_rates(["0"], [0.5])
    with pytest.raises(RecordError, match="unknown number"):
        write_record(dataclasses.replace(read_record(MATRIX), pass_rates=bare), path)
    with pytest.raises(RecordError, match="JSON"):
        write_record(read_record(MATRIX), path, provenance={"a": object()})
    assert path.read_bytes() == before
    with pytest.raises(RecordError, match="no folder"):
        write_record(read_record(MATRIX), tmp_path / "none" / "r.parquet")


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(RecordError, match="did you mean 'trace'"):
        read_record(lines(tmp_path / "t.jsonl", TRACE), format="trce")
