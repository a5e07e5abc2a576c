"""What a training run saw: the record that the trainer writes, and adding it to a table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from click.testing import CliRunner
from tiny_model import sums, table_for, tiny_config, tiny_trainer
from transformers import TrainerCallback

from basis_rl import PassRates, PassRatesError, RewardBatch
from basis_rl.adapters.record import RewardRecord
from basis_rl.cli.cache_absorb import absorb as command
from basis_rl.errors import BasisError
from basis_rl.passrates import Provenance, prompt_key
from basis_rl.passrates.absorbing.absorb import absorb
from basis_rl.passrates.absorbing.seen import step_range
from basis_rl.passrates.importers import Options, import_pass_rates, read_records
from basis_rl.passrates.inspect.compare import Reward
from basis_rl.passrates.merging.same_rollouts import same_rollouts
from basis_rl.passrates.training_record import NAME, read_record, read_run
from basis_rl.verl.option_names import VERL

RUN = Provenance(model="m", temperature=1.0)
NONE = math.nan


def record(folder: Path, *batches: tuple[int, list[str], list[float]], **options: Any) -> Path:
    """One session of a run."""
    rewards = options.pop("rewards", [Reward("math")])
    writer = RewardRecord(folder, options.pop("run", RUN), rewards, names=VERL)
    for step, keys, values in batches:
        writer.write(RewardBatch(keys, np.array(values), step=step, policy_version=step, **options))
    return folder / NAME


def told(path: Path, **options: Any) -> list[tuple[int, int, list[str], list[float | None]]]:
    return [
        (b.step, b.part, b.keys, [None if math.isnan(r) else r for r in b.rewards.tolist()])
        for b in read_record(path, **options)
    ]


def cache(folder: Path, **options: Any) -> Path:
    table = PassRates.from_counts(
        ["a", "b"],
        [1, 2],
        4,
        provenance=Provenance(
            **{"model": "m", "verifier": "math", "extra": {"build": {}, "data": "d"}, **options}
        ),
    )
    table.save(folder / "cache.parquet")
    return folder / "cache.parquet"


def refused(words: list[str], *arguments: Any, **options: Any) -> None:
    with pytest.raises(PassRatesError) as caught:
        absorb(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = record(tmp_path, (0, ["a", "b"], [1.0, NONE]), (0, ["c"], [0.5]), (2, ["a"], [0.0]))
    assert told(tmp_path) == [
        (0, 0, ["a", "b"], [1.0, None]), (0, 1, ["c"], [0.5]), (2, 0, ["a"], [0.0]),
    ]  # fmt: skip
    assert told(path, first=1, last=2) == [(2, 0, ["a"], [0.0])]
    assert told(path, last=0)[1][2] == ["c"]
    run = read_run(path)
    assert (run.steps, run.rewards, run.provenance["model"]) == ((0, 2), [("math", 1.0)], "m")


def test_a_run_that_goes_on_replaces_the_steps_that_it_repeats(tmp_path: Path) -> None:
    record(tmp_path, (0, ["a"], [0]), (1, ["b"], [0]), (1, ["c"], [0]), (2, ["d"], [0]))
    name = read_run(tmp_path).id
    path = record(tmp_path, (1, ["B"], [1]), (2, ["D"], [1]))
    assert [(step, keys) for step, _, keys, _ in told(path)] == [(0, ["a"]), (1, ["B"]), (2, ["D"])]
    assert read_run(tmp_path).id == name
    record(tmp_path, (0, ["x"], [1]))  # from the start: another run
    assert told(path) == [(0, 0, ["x"], [1.0])]
    assert read_run(tmp_path).id != name


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_line_that_a_crash_cut_off_is_dropped(tmp_path: Path, cut: int) -> None:
    path = record(tmp_path, (0, ["a"], [0]), (1, ["b"], [0]))
    path.write_bytes(path.read_bytes()[:-cut])
    assert [step for step, *_ in told(path)] == [0]
    record(tmp_path, (1, ["c"], [1]))
    assert [(step, keys) for step, _, keys, _ in told(path)] == [(0, ["a"]), (1, ["c"])]


@pytest.mark.parametrize(
    "line", [b"{}\n", b'{"step": 1, "part": 0, "keys"\n', b'{"step": 1, "part": 0, "keys": 3}\n']
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = record(tmp_path, (0, ["a"], [0]))
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(PassRatesError, match="line 3, is"):
        list(read_record(path))


def test_a_record_that_cannot_be_written_says_how_to_do_without(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(BasisError, match=r"or set \+algorithm\.basis\.record_rewards=false$"):
        record(tmp_path, (0, ["a"], [0]))


def test_counts_are_added_to_the_cache(tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, (0, ["a"], [0]), (1, ["a", "c", "a"], [1, 1, 1]), (2, ["b", "a"], [1, NONE]))
    record(run, (3, ["a"], [0]))
    out = tmp_path / "new.parquet"
    done = absorb(run, cache(tmp_path), out, steps="1:2")
    assert (done.rollouts, done.without_verdict, done.prompts, done.new_prompts) == (4, 1, 3, 1)
    table = PassRates.load(out)
    assert list(zip(table.keys, table.successes.tolist(), table.n.tolist(), strict=True)) == [
        ("a", 3, 6), ("b", 3, 5), ("c", 1, 1),
    ]  # fmt: skip
    provenance = table.provenance
    assert (provenance.model, provenance.verifier, provenance.extra["data"]) == ("m", "math", "d")
    assert "build" not in provenance.extra
    assert "mixes policies" in provenance.extra["warning"]
    [note] = provenance.extra["absorbed"]
    assert note["run"] == str(run)
    assert (note["steps"], note["policy_steps"], note["rollouts"]) == ([1, 2], [1, 2], 4)
    assert PassRates.load(tmp_path / "cache.parquet").n.tolist() == [4, 4]
    # The same steps do not count twice; further ones do.
    refused(["steps 1 to 2", "twice"], run, out, tmp_path / "x.parquet", steps="2:3")
    more = absorb(run, out, tmp_path / "more.parquet", steps="3:").table
    assert more.n.tolist() == [7, 5, 1]
    assert [note["steps"] for note in more.provenance.extra["absorbed"]] == [[1, 2], [3, 3]]
    # Where the cache's rollouts are left out, so are those that it has absorbed.
    alone = absorb(run, out, tmp_path / "alone.parquet", steps="2:", replace=True).table
    assert [note["steps"] for note in alone.provenance.extra["absorbed"]] == [[2, 3]]
    assert alone.n.tolist() == [1, 1]


def test_replace_keeps_the_run_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, (0, ["a", "c"], [1, 0]), sources=["x", "y"])
    table = absorb(run, cache(tmp_path), tmp_path / "n.parquet", steps=":", replace=True).table
    assert (list(table.keys), table.n.tolist(), table.sources) == (["a", "c"], [1, 1], ["x", "y"])
    assert table.provenance.extra["absorbed"][0]["replaces_cache"] is True


def test_rewards_go_behind_those_of_a_cache_of_rewards(tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, (0, ["a", "b", "a"], [0.25, 1, 0.5]), sources=["x", "x", "x"])
    refused(["other than 0 and 1", "--replace"], run, cache(tmp_path), tmp_path / "n", steps="0:0")
    own = PassRates.from_rewards(["a"], [[2.0]], sources=["old"])
    own.save(tmp_path / "own.parquet")
    table = absorb(run, tmp_path / "own.parquet", tmp_path / "n.parquet", steps="0:0").table
    assert table.reward_values.tolist() == [2.0, 0.25, 0.5, 1.0]
    assert table.sources == ["old", "x"]
    PassRates.from_rates(["a"], [0.5]).save(tmp_path / "rates.parquet")
    record(tmp_path / "other", (0, ["a"], [1]))
    rates = tmp_path / "rates.parquet"
    refused(["number of rollouts is unknown"], tmp_path / "other", rates, tmp_path / "x", steps=":")


def test_steps_have_to_be_named(tmp_path: Path) -> None:
    record(tmp_path / "run", (3, ["a"], [1]), (9, ["a"], [1]))
    table, out = cache(tmp_path), tmp_path / "n.parquet"
    run = tmp_path / "run"
    refused(["no steps are named", "steps 3 to 9", "--steps 3:9"], run, table, out, steps=None)
    for text in ("x", "5", "1:2:3", "-1:4"):
        refused([repr(text), "as 0:99", "3 to 9"], run, table, out, steps=text)
    for text in ("10:12", "0:2", "5:4"):
        refused([repr(text), "holds no step", "3 to 9"], run, table, out, steps=text)
    refused(["4 to 8", "no rollout", "3 to 9"], run, table, out, steps="4:8")
    assert step_range("4:", (3, 9)) == (4, 9)
    assert step_range(":4", (3, 9)) == (3, 4)
    assert not out.exists()


def test_a_run_of_another_model_or_verifier_is_refused(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "n.parquet"
    record(run, (0, ["a"], [1]), rewards=[Reward("exact")])
    refused(["verifier is 'math'", "'exact'"], run, cache(tmp_path), out, steps=":")
    other = cache(tmp_path, model="other", verifier="exact", temperature=0.5)
    refused(["model is 'other'", "'m'", "--allow-mismatch model"], run, other, out, steps=":")
    done = absorb(run, other, out, steps=":", allow_mismatch=["model"])
    assert any("temperature is 0.5 in the cache and 1.0 in the run" in w for w in done.warnings)
    refused(["is there already"], run, other, out, steps=":")
    refused(["no record", NAME], run.parent, other, tmp_path / "x", steps=":")
    refused(["no record", "none"], tmp_path / "none", other, tmp_path / "x", steps=":")


def test_the_command(tmp_path: Path) -> None:
    record(tmp_path / "run", (0, ["a", "c"], [1, NONE]))
    arguments = [str(tmp_path / "run"), "--cache", str(cache(tmp_path)), "--steps", "0:0"]
    done = CliRunner().invoke(command, [*arguments, "--out", str(tmp_path / "n.parquet")])
    assert done.exit_code == 0, done.output
    assert "absorbed 1 rollouts of 1 prompts (0 new to the cache; 1 rollouts without" in done.output
    assert "mixes policies" in done.output
    assert "absorbed steps 0 to 0 of 0 to 0 (counted from 0" in done.output


def verl_dump(folder: Path, steps: dict[int, list[tuple[str, float]]]) -> Path:
    """As verl's trainer.rollout_data_dir: a file a step, a row a rollout."""
    folder.mkdir()
    for step, rollouts in steps.items():
        lines = [
            {"input": prompt, "output": "o", "gts": "g", "score": score, "step": step}
            for prompt, score in rollouts
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{step}.jsonl").write_text(text)
    return folder


def test_a_dump_of_verl_is_absorbed_by_its_steps(tmp_path: Path) -> None:
    rollouts = {1: [("p", 1.0), ("p", 0.0)], 2: [("p", 1.0), ("q", 1.0)], 3: [("q", 0.0)]}
    dump = verl_dump(tmp_path / "dump", rollouts)
    PassRates.from_counts([prompt_key("p")], [1], 4).save(tmp_path / "cache.parquet")
    own, out = tmp_path / "cache.parquet", tmp_path / "n.parquet"
    refused(["no steps are named", "steps 1 to 3"], dump, own, out, steps=None)
    table = absorb(dump, own, out, steps="2:3").table
    assert dict(zip(table.keys, zip(table.successes, table.n, strict=True), strict=True)) == {
        prompt_key("p"): (2, 5), prompt_key("q"): (1, 2),
    }  # fmt: skip
    assert table.provenance.extra["absorbed"][0]["steps"] == [2, 3]
    refused(["steps 2 to 3", "twice"], dump, out, tmp_path / "x.parquet", steps="1:2")
    PassRates.from_counts(["other"], [1], 4).save(tmp_path / "o.parquet")
    other = tmp_path / "o.parquet"
    refused(["none of the 2 prompts", "--match"], dump, other, tmp_path / "x.parquet", steps=":")


def test_a_dump_of_trl_is_absorbed_by_its_steps(tmp_path: Path) -> None:
    folder = Path(__file__).parent / "fixtures" / "importers" / "trl"
    found = list(read_records(folder, options=Options(reward_column="judged")))
    keys = sorted({record.key or prompt_key(record.prompt) for record in found})
    PassRates.from_rewards(keys, [[0.5]] * len(keys)).save(tmp_path / "cache.parquet")
    first, last = min(r.step for r in found), max(r.step for r in found)
    arguments = folder, tmp_path / "cache.parquet"
    refused(["judged", "--reward-column"], *arguments, tmp_path / "a.parquet", steps=":")
    column = {"reward_column": "judged"}
    done = absorb(*arguments, tmp_path / "a.parquet", steps=f"{first}:{first}", **column)
    assert done.rollouts + done.without_verdict == sum(r.step == first for r in found)
    everything = absorb(*arguments, tmp_path / "b.parquet", steps=f"{first}:{last}", **column)
    assert everything.rollouts + everything.without_verdict == len(found)


class StopAfter(TrainerCallback):
    """As if the machine went down."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == self.step


def reward(id: list[str], **_: Any) -> list[float | None]:
    numbers = [int(name.split("-")[1]) for name in id]
    return [None if n == 3 else float(n % 2) for n in numbers]


def test_the_trainer_records_what_it_saw_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    data = sums(12)
    table = table_for(data, model="m")
    table.save(tmp_path / "cache.parquet")

    def trainer(steps: int) -> Any:
        config = tiny_config(
            tmp_path / "run",
            max_steps=steps,
            save_strategy="steps",
            save_steps=2,
            estimator_options={"max_unverified": 0.5},
        )
        return tiny_trainer(config, data, reward)

    first = trainer(6)
    first.add_callback(StopAfter(3))  # one step after the last checkpoint
    first.train()
    assert [step for step, *_ in told(tmp_path / "run")] == [0, 1, 2]
    second = trainer(6)
    second.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    batches = told(tmp_path / "run")
    assert [step for step, *_ in batches] == [0, 1, 2, 3, 4, 5]
    seen = [
        row for each in (first.generated[:2], second.generated) for rows, _ in each for row in rows
    ]
    assert [key for _, _, keys, _ in batches for key in keys] == [
        prompt_key(row["prompt"]) for row in seen
    ]
    assert [r for *_, rewards in batches for r in rewards] == reward([row["id"] for row in seen])
    done = absorb(
        tmp_path / "run", tmp_path / "cache.parquet", tmp_path / "new.parquet", steps="0:5",
        allow_mismatch=["model"],
    )  # fmt: skip
    assert done.rollouts == sum(row["id"] != "sum-3" for row in seen)
    assert done.table.n.sum() == table.n.sum() + done.rollouts


def test_recording_can_be_switched_off(tmp_path: Path) -> None:
    trainer = tiny_trainer(tiny_config(tmp_path, record_rewards=False), sums(8))
    trainer.train()
    assert not (tmp_path / NAME).exists()


def test_a_step_of_several_generation_batches_has_parts(tmp_path: Path) -> None:
    settings = {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "max_steps": 2}
    tiny_trainer(tiny_config(tmp_path, **settings), sums(16)).train()
    assert [(step, part) for step, part, *_ in told(tmp_path)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    lines = (tmp_path / NAME).read_text().splitlines()
    assert json.loads(lines[0])["rewards"][0][1] == 1.0


def test_only_steps_that_are_there_count_as_absorbed(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "n.parquet"
    record(run, *((step, ["a"], [1.0]) for step in range(10)))
    done = absorb(run, cache(tmp_path), out, steps="1:99")
    assert done.table.provenance.extra["absorbed"][0]["steps"] == [1, 9]
    assert done.steps.startswith("steps 1 to 9 of 0 to 9; step 0 left out; there are no others")
    assert "counted from 0" in done.steps
    record(run, *((step, ["a"], [0.0]) for step in range(10, 12)))
    more = absorb(run, out, tmp_path / "m.parquet", steps="10:")
    assert more.table.n.tolist() == [4 + 9 + 2, 4]
    assert more.steps.startswith("steps 10 to 11 of 0 to 11; steps 0 to 9 left out (")


def test_a_run_with_other_prompts_is_refused(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "n.parquet"
    record(run, (0, ["x", "y"], [1, 0]))
    words = ["none of the 2 prompts", "trained with"]
    refused(words, run, cache(tmp_path), out, steps=":")
    refused(words, run, cache(tmp_path), out, steps=":", replace=True)
    record(run, (1, ["a"], [1]))
    done = absorb(run, cache(tmp_path), out, steps=":")
    assert any("2 of the run's 3 prompts are new" in text for text in done.warnings)
    few = absorb(run, out, tmp_path / "m.parquet", steps=":", replace=True)
    assert not few.warnings


@pytest.mark.parametrize("name", ["dump", "dump/2.jsonl"])
def test_steps_that_were_imported_are_not_absorbed_again(name: str, tmp_path: Path) -> None:
    dump = verl_dump(tmp_path / "dump", {1: [("p", 1.0)], 2: [("p", 0.0)]})
    imported = import_pass_rates(tmp_path / name, steps=(2, 2)).table
    imported.save(tmp_path / "cache.parquet")
    own, out = tmp_path / "cache.parquet", tmp_path / "n.parquet"
    refused(["steps 2 to 2", "twice"], dump, own, out, steps="1:2")
    assert absorb(dump, own, out, steps="1:1").table.n.tolist() == [2]
    again = import_pass_rates(dump, steps=(1, 2)).table
    assert "absorbed steps" in same_rollouts(imported.provenance, again.provenance)
