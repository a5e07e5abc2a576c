"""Shards and tables in one: what is merged, what is refused, and that the result goes on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from cache_parts import Digits, build, is_odd, prompts
from click.testing import CliRunner

from basis_rl import PassRates, PassRatesError
from basis_rl.cli.cache_merge import merge
from basis_rl.passrates import Provenance
from basis_rl.passrates.build import journal_path
from basis_rl.passrates.merging.files import merge_files
from basis_rl.verifiers import NamedVerifier


def shards(folder: Path, count: int = 3, **options) -> list[Path]:
    paths = [folder / f"s{number}.parquet" for number in range(1, count + 1)]
    for number, path in enumerate(paths, start=1):
        build(path, shard=(number, count), **options)
    return paths


def rows(table: PassRates) -> dict[str, tuple]:
    sources, hashes = table.sources or [""] * len(table), table.prompt_hashes or [""] * len(table)
    values = (
        table.successes.tolist()
        if table.successes is not None
        else [sorted(part) for part in np.split(table.reward_values, table.reward_offsets[1:-1])]
    )
    return {
        key: (value if isinstance(value, int) else tuple(value), n, source, text)
        for key, value, n, source, text in zip(
            table.keys, values, table.n.tolist(), sources, hashes, strict=True
        )
    }


def is_even() -> NamedVerifier:
    return NamedVerifier("odd", "2", lambda completion, _: float(int(completion) % 2 == 0))


def table(keys, successes, n, **options) -> PassRates:
    provenance = Provenance(**{"model": "m", "verifier": "math", **options.pop("provenance", {})})
    return PassRates.from_counts(keys, successes, n, provenance=provenance, **options)


def saved(folder: Path, *tables: PassRates) -> list[Path]:
    paths = [folder / f"t{number}.parquet" for number in range(len(tables))]
    for path, each in zip(paths, tables, strict=True):
        each.save(path)
    return paths


def refused(*arguments, words: list[str], **options) -> None:
    with pytest.raises(PassRatesError) as caught:
        merge_files(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("adaptive", [False, True])
def test_all_shards_are_the_build_and_go_on_as_it_would(tmp_path: Path, adaptive: bool) -> None:
    options = {"adaptive": adaptive, "n": 12}
    whole = build(tmp_path / "whole.parquet", **options)
    paths = shards(tmp_path, **options)
    merged = merge_files(paths[::-1], tmp_path / "m.parquet")
    assert list(merged.table.keys) == [key for p in paths for key in PassRates.load(p).keys]
    assert merged.no_journal is None
    assert merged.conflicts == 0
    loaded = PassRates.load(tmp_path / "m.parquet")
    if not adaptive:  # where to stop depends on the prompts of a shard
        assert rows(loaded) == rows(whole)
        ours, theirs = (
            {**t.provenance.to_dict(), "created": None, "merged": None, "schema_version": None}
            for t in (loaded, whole)
        )
        assert ours == theirs
    # The same command finds it finished, and loads no model.
    engine = Digits()
    again = build(tmp_path / "m.parquet", engine, **options)
    assert (again.n == loaded.n).all()
    assert engine.asked == []
    # More rollouts, and the verdicts of another verifier, of the completions that are there.
    engine = Digits()
    more = build(tmp_path / "m.parquet", engine, adaptive=False, n=13, extend=True)
    assert rows(more) == rows(build(tmp_path / "more.parquet", n=13))
    assert len(engine.asked) == 13 * 10 - int(loaded.n.sum())
    even = build(tmp_path / "m.parquet", None, is_even(), n=13, reverify=True)
    assert (even.successes == 13 - more.successes).all()


def test_verdicts_that_were_judged_again_are_the_ones_that_count(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    for number, path in enumerate(paths, start=1):
        build(path, None, is_even(), shard=(number, 3), reverify=True)
    merge_files(paths, tmp_path / "m.parquet")
    engine = Digits()
    more = build(tmp_path / "m.parquet", engine, is_even(), n=5, extend=True)
    assert len(engine.asked) == 10
    assert rows(more) == rows(build(tmp_path / "w.parquet", None, is_even(), n=5))


def test_missing_shards_are_named_unless_partial(tmp_path: Path) -> None:
    paths = shards(tmp_path, 4)
    out = tmp_path / "m.parquet"
    refused([paths[0], paths[2]], out, words=["shards 2, 4 of 4", "--partial"])
    part = merge_files([paths[2], paths[0]], out, partial=True).table
    assert part.provenance.extra["build"]["shard"] == "1,3/4"
    # What is left can be merged with it later.
    all_of_it = merge_files([out, paths[1], paths[3]], tmp_path / "all.parquet")
    assert all_of_it.table.provenance.extra["build"]["shard"] is None
    assert rows(all_of_it.table) == rows(build(tmp_path / "whole.parquet"))


def test_shards_of_other_builds_are_refused(tmp_path: Path) -> None:
    one, *_ = shards(tmp_path, 2)
    build(tmp_path / "seed.parquet", shard=(2, 2), seed=1)
    build(tmp_path / "of3.parquet", shard=(2, 3))
    build(tmp_path / "v2.parquet", None, is_odd("2"), shard=(2, 2))
    out = tmp_path / "m.parquet"
    refused([one, tmp_path / "seed.parquet"], out, words=["seed is 0", "and 1 in", "different"])
    refused([one, tmp_path / "of3.parquet"], out, words=["one of 2 shards", "of 3"])
    refused([one, tmp_path / "v2.parquet"], out, words=["verifier_version is '1'", "'2'"])
    build(tmp_path / "w.parquet")
    refused([one, tmp_path / "w.parquet"], out, words=["is a shard", "w.parquet is none"])
    assert not out.exists()


def test_without_a_journal_the_result_says_so(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    journal_path(paths[1]).unlink()
    out = tmp_path / "m.parquet"
    merged = merge_files(paths, out)
    assert merged.no_journal == f"{paths[1]} has no journal beside it"
    assert "build" not in merged.table.provenance.extra
    assert not journal_path(out).exists()
    assert rows(merged.table) == rows(build(tmp_path / "whole.parquet"))
    done = CliRunner().invoke(merge, [*map(str, paths), "--out", str(tmp_path / "n.parquet")])
    assert done.exit_code == 0
    assert "no journal written" in done.output


def test_a_journal_that_goes_on_is_not_taken(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        build(paths[1], Digits(1, batch=1), shard=(2, 3), n=5, extend=True)
    merged = merge_files(paths, tmp_path / "m.parquet")
    assert "or the build goes on" in str(merged.no_journal)
    assert merged.table.n.tolist() == [4] * 10


def test_a_journal_of_another_table_is_not_taken(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    journal_path(paths[0]).write_bytes(journal_path(paths[1]).read_bytes())
    assert "is not the journal of" in str(merge_files(paths, tmp_path / "m.parquet").no_journal)


def test_a_shard_whose_rewards_are_all_0_and_1_joins_one_with_others(tmp_path: Path) -> None:
    # Only some prompts have partial credit.
    def verifier():
        return NamedVerifier(
            "part", "1", lambda _, columns: 0.5 if columns["answer"] == "3" else 1.0
        )

    whole = build(tmp_path / "w.parquet", None, verifier())
    paths = [tmp_path / f"s{i}.parquet" for i in (1, 2)]
    kinds = [build(p, None, verifier(), shard=(i, 2)).kind for i, p in enumerate(paths, start=1)]
    assert set(kinds) == {"counts", "rewards"}
    assert rows(merge_files(paths, tmp_path / "m.parquet").table) == rows(whole)


def test_general_tables_are_joined_in_order(tmp_path: Path) -> None:
    one = table(["a", "b"], [1, 2], [4, 8], sources=["x", "y"], prompt_hashes=["1" * 16, ""])
    other = table(["c"], [3], 3)
    result = merge_files(saved(tmp_path, one, other), tmp_path / "m.parquet")
    assert result.table.keys == ["a", "b", "c"]
    assert rows(PassRates.load(tmp_path / "m.parquet")) == {
        "a": (1, 4, "x", "1" * 16), "b": (2, 8, "y", ""), "c": (3, 3, "", ""),
    }  # fmt: skip
    assert result.table.provenance.model == "m"
    merged = result.table.provenance.extra["merged"]
    assert [(m["prompts"], m["rollouts"]) for m in merged] == [(2, 12), (1, 3)]
    assert result.no_journal == "the inputs are not parts of one build"


def test_other_settings_are_shown_each_and_accepted_by_name(tmp_path: Path) -> None:
    one = table(["a"], [1], 4, provenance={"temperature": 1.0, "stop": ["x"]})
    other = table(["b"], [1], 4, provenance={"temperature": 0.5, "model": "n"})
    paths, out = saved(tmp_path, one, other), tmp_path / "m.parquet"
    words = ["model is 'm'", "'n'", "temperature is 1.0", "0.5", "stop is ['x']", "unknown"]
    refused(paths, out, words=[*words, "--allow-mismatch"])
    refused(paths, out, allow_mismatch=["temprature"], words=["did you mean 'temperature'"])
    names = ["temperature", "model", "stop"]
    result = merge_files(paths, out, allow_mismatch=names).table.provenance
    assert (result.model, result.temperature, result.verifier) == (None, None, "math")
    assert result.extra["model_of_merged"] == ["m", "n"]


def test_a_warning_and_what_was_absorbed_stay(tmp_path: Path) -> None:
    extra = {"warning": "mixes policies", "absorbed": [{"run": "r", "steps": [0, 1]}]}
    one, other = table(["a"], [1], 4), table(["b"], [1], 4, provenance={"extra": extra})
    merged = merge_files(saved(tmp_path, one, other), tmp_path / "m.parquet").table
    assert {name: merged.provenance.extra[name] for name in extra} == extra


def test_conflicts_are_shown_and_resolved_on_request(tmp_path: Path) -> None:
    one, other = table(["a", "b"], [1, 2], 4), table(["b", "c", "a"], [5, 3, 8], 8)
    paths = saved(tmp_path, one, other)
    out = tmp_path / "m.parquet"
    words = ["2 prompts are in more than one file", "'a': 1/4 in", "8/8 in", "--on-conflict"]
    refused(paths, out, words=words)
    summed = merge_files(paths, out, on_conflict="sum")
    assert summed.conflicts == 2
    assert rows(summed.table) == {
        "a": (9, 12, "", ""), "b": (7, 12, "", ""), "c": (3, 8, "", ""),
    }  # fmt: skip
    first = merge_files(paths, tmp_path / "f.parquet", on_conflict="first").table
    assert rows(first) == {"a": (1, 4, "", ""), "b": (2, 4, "", ""), "c": (3, 8, "", "")}
    assert first.provenance.extra["on_conflict"] == "first"
    refused(paths, tmp_path / "n.parquet", on_conflict="last", words=["'last'", "sum or first"])


def test_rewards_and_rates(tmp_path: Path) -> None:
    one = PassRates.from_rewards(["a", "b"], [[0.5, 1], [0.25]])
    other = PassRates.from_rewards(["b", "a"], [[2, 3], [4]])
    paths = saved(tmp_path, one, other)
    summed = merge_files(paths, tmp_path / "s.parquet", on_conflict="sum").table
    assert summed.reward_values.tolist() == [0.5, 1, 4, 0.25, 2, 3]
    first = merge_files(paths, tmp_path / "f.parquet", on_conflict="first").table
    assert first.reward_values.tolist() == [0.5, 1, 0.25]
    rates = [PassRates.from_rates(["a", "b"], [0.5, 1]), PassRates.from_rates(["b", "c"], [0, 0.1])]
    paths = saved(tmp_path, *rates)
    words = ["cannot be summed", "first"]
    refused(paths, tmp_path / "r.parquet", on_conflict="sum", words=words)
    joint = merge_files(paths, tmp_path / "r.parquet", on_conflict="first").table
    assert joint.rates.tolist() == [0.5, 1, 0.1]
    mixed = saved(tmp_path, one, table(["c"], [1], 2, provenance={"model": None, "verifier": None}))
    refused(mixed, tmp_path / "x.parquet", words=["holds rewards", "counts", "one kind"])


def test_the_same_rollouts_are_not_summed(tmp_path: Path) -> None:
    build(tmp_path / "a.parquet")
    build(tmp_path / "b.parquet", prompts=prompts(4))
    build(tmp_path / "c.parquet", prompts=prompts(4), seed=1)
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    out = tmp_path / "m.parquet"
    refused([a, b], out, on_conflict="sum", words=["same seed", "count twice"])
    assert (merge_files([a, b], out, on_conflict="first").table.n == 4).all()
    both = merge_files([a, c], tmp_path / "n.parquet", on_conflict="sum").table
    assert both.n.tolist() == [8] * 4 + [4] * 6
    assert "build" not in both.provenance.extra


def test_one_key_with_two_texts_or_sources_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "m.parquet"
    texts = [table(["a"], [1], 2, prompt_hashes=[digit * 16]) for digit in "12"]
    refused(saved(tmp_path, *texts), out, on_conflict="first", words=["'a'", "hash of its text"])
    texts = [table(["a"], [1], 2, sources=[name]) for name in "xy"]
    refused(saved(tmp_path, *texts), out, on_conflict="sum", words=["'a'", "source 'x'", "'y'"])


def test_rollouts_are_known_again_after_absorbing(tmp_path: Path) -> None:
    built = build(tmp_path / "a.parquet")
    keys, ones = built.keys, np.ones(len(built))

    def absorbed(name: str, steps: list[int], *, run: str = "r", replaces: bool = False) -> Path:
        grown = built.with_counts(keys, ones, 1)
        note = {"run": run, "run_id": run, "steps": steps, "replaces_cache": replaces}
        made = grown.provenance.replace(extra={**grown.provenance.extra, "absorbed": [note]})
        PassRates.from_counts(
            keys, grown.successes, grown.n, sources=grown.sources, provenance=made
        ).save(tmp_path / name)
        return tmp_path / name

    own, out = tmp_path / "a.parquet", tmp_path / "m.parquet"
    one, next_ = absorbed("b", [0, 4]), absorbed("c", [5, 9])
    refused([own, one], out, on_conflict="sum", words=["same seed"])
    refused([one, next_], out, on_conflict="sum", words=["same seed"])
    alone, again = absorbed("d", [0, 4], replaces=True), absorbed("e", [4, 6], replaces=True)
    refused([alone, again], out, on_conflict="sum", words=["absorbed steps of r"])
    other = absorbed("f", [4, 6], run="other", replaces=True)
    assert (merge_files([alone, other], out, on_conflict="sum").table.n == 10).all()
    summed = merge_files([own, alone], tmp_path / "s.parquet", on_conflict="sum").table
    assert (summed.n == 9).all()


def test_outputs_and_inputs_that_cannot_be(tmp_path: Path) -> None:
    paths = saved(tmp_path, table(["a"], [1], 2), table(["b"], [1], 2))
    refused(paths[:1], tmp_path / "m.parquet", words=["1 file", "two or more"])
    refused([*paths, paths[0]], tmp_path / "m.parquet", words=["named twice"])
    refused(paths, paths[0], words=["is there already"])
    refused(paths, tmp_path / "no" / "m.parquet", words=["no folder"])
    refused([*paths, tmp_path / "x"], tmp_path / "m.parquet", words=["no file"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t0.parquet", "t1.parquet"]


def test_a_full_disk_leaves_neither_table_nor_journal(tmp_path: Path, monkeypatch) -> None:
    paths = shards(tmp_path)
    before = sorted(tmp_path.iterdir())

    def full(self: PassRates, path: Path) -> None:
        raise PassRatesError("no space")

    monkeypatch.setattr(PassRates, "save", full)
    refused(paths, tmp_path / "m.parquet", words=["no space"])
    assert sorted(tmp_path.iterdir()) == before


def test_the_command(tmp_path: Path) -> None:
    paths = saved(tmp_path, table(["a", "b"], [1, 2], 4), table(["b"], [4], 4))
    out = tmp_path / "m.parquet"
    arguments = [*map(str, paths), "--out", str(out), "--on-conflict", "sum"]
    done = CliRunner().invoke(merge, arguments)
    assert done.exit_code == 0, done.output
    assert "1 prompts were in several files: summed" in done.output
    assert "2 prompts, 12 rollouts" in done.output


def test_large_tables_take_little_time(tmp_path: Path) -> None:
    size = 50_000
    tables = [
        table([f"{part}-{i:032x}" for i in range(size)], np.arange(size) % 9, 8)
        for part in range(4)
    ]
    paths = saved(tmp_path, *tables)
    start = time.process_time()
    merged = merge_files(paths, tmp_path / "m.parquet").table
    assert len(merged) == 4 * size
    assert time.process_time() - start < 5
