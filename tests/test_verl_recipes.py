"""The files in `recipes/`: they run what `basis-rl verl command` prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from script_calls import run_script

from basis_rl.cli.verl_command import command
from basis_rl.verl.command.files import printed_by, recipe_files, runs
from basis_rl.verl.command.settings import METRICS_FILE
from basis_rl.verl.paper.models import MODELS
from basis_rl.verl.paper.times import HOURS

RECIPES = Path(__file__).parent.parent / "recipes"
RUNS = runs()
VALUE = "section-5.1/grpo-math.sh"
MAIN = ["python", "-m", "verl.trainer.main_ppo"]


def printed(words):
    """Script that a command prints, without `basis-rl verl command`."""
    return CliRunner().invoke(command, words, catch_exceptions=False).output


def run(name, folder, *words, **environment):
    """Run a file from another folder; its calls."""
    done, calls = run_script(RECIPES / name, folder, *words, **environment)
    assert done.returncode == 0, done.stderr
    return calls


def refusal(name, folder, *words, **environment):
    """The line with which a file ends before it calls anything."""
    done, calls = run_script(RECIPES / name, folder, *words, **environment)
    assert done.returncode == 1
    assert calls == []
    assert done.stderr.count("\n") == 1
    return done.stderr


def kind(call):
    return call[:3] if call[:1] == ["basis-rl"] else MAIN[: 3 if call[:3] == MAIN else 0]


def values(call):
    """Words of a job by key, without quotes; the last of each counts, as in verl."""
    pairs = (word.replace("'", "").partition("=")[::2] for word in call[3:])
    return {key: value for key, value in pairs if key != METRICS_FILE}


def make(calls):
    """Write the files that calls would have written."""
    for call in calls:
        if call[1:3] == ["verl", "prepare"]:
            folder = Path(call[call.index("--out") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            name = call[call.index("--name") + 1] if "--name" in call else "validation"
            (folder / f"{name}.parquet").touch()
        elif call[1:3] == ["cache", "build"]:
            Path(call[call.index("--out") + 1]).touch()


def prepared(model, folder, **places):
    """Run the first two files; their calls."""
    first = run("data.sh", folder, model, **places)
    make(first)
    second = run("pass-rates.sh", folder, model, **places)
    make(second)
    return [*first, *second]


def test_files_are_what_the_code_writes():
    files = recipe_files()
    found = {str(path.relative_to(RECIPES)) for path in RECIPES.rglob("*.sh")}
    assert found == set(files)
    for name, text in files.items():
        assert (RECIPES / name).read_text() == text, f"{name} is old: python recipes/write.py"
        subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=20)


def test_each_setting_has_its_source():
    inside = False
    for text in recipe_files().values():
        for line in text.splitlines():
            if inside and line != ")":
                assert " # " in line, line
            inside = line.endswith("=(") or (inside and line != ")")


def test_each_file_is_explained():
    text = (RECIPES / "README.md").read_text()
    for name in [VALUE, "data.sh", "pass-rates.sh", "evaluate.sh", "settings.sh"]:
        assert name in text, name
    for choice in RUNS.values():
        of_table = f"| `{choice.name.partition('-')[2]}` |"
        assert of_table in text or f"{choice.name}.sh" in text, choice.name
    for hours in HOURS.values():
        assert f" {hours} h " in text


@pytest.mark.parametrize("model", MODELS)
def test_files_run_what_the_command_prints(model, tmp_path):
    """Prompts, pass rates, check, training, evaluation: the same words, in the same order."""
    out = tmp_path / "all runs"
    places = {"FOLDER": f"{out}/{model}"}
    first = prepared(model, tmp_path, **places)
    for name, choice in RUNS.items():
        if choice.model != model:
            continue
        steps = [str(step) for step in range(50, choice.total_steps + 1, 50)]
        for step in steps:
            (out / model / choice.name / f"global_step_{step}").mkdir(parents=True)
        calls = run(name, tmp_path, "trainer.save_freq=10", **places)
        calls += run("evaluate.sh", tmp_path, model, choice.name, *steps, **places)
        (tmp_path / "printed").mkdir(exist_ok=True)
        script = printed([*printed_by(choice).split()[3:], "--out", f"{tmp_path}/other"])
        _, expected = run_script(script, tmp_path / "printed", "trainer.save_freq=10")
        _same([*first, *calls], expected, out, tmp_path / "other", choice)


def _same(calls, expected, out, other, choice):
    if not choice.of_baseline.pass_rates:
        calls = [call for call in calls if call[1] != "cache"]
    assert [kind(call) for call in calls] == [kind(call) for call in expected]
    for ours, theirs in zip(calls, expected, strict=True):
        there = [word.replace(str(other), str(out)) for word in theirs]
        if ours[1] == "cache":
            assert sorted(ours) == sorted(there)
        elif ours[2] == "prepare":
            assert ours == there
        else:
            batch = {"data.train_batch_size": "512"} if "trainer.val_only=True" in ours else {}
            assert values(ours) == values(there) | batch


def test_value_estimation(tmp_path):
    folder = tmp_path / "all runs/section-5.1"
    calls = run(VALUE, tmp_path, FOLDER=str(folder))
    script = printed(["--study", "section-5.1", "--out", f"{tmp_path}/all runs"])
    _, expected = run_script(script, tmp_path)
    checks = [call for call in calls if call[2] == "check"]
    assert len(checks) == 3  # before each part of training
    calls = [call for call in calls if call not in checks[1:]]
    assert [call[:3] for call in calls] == [call[:3] for call in expected]
    for ours, theirs in zip(calls, expected, strict=True):
        if ours[:3] == MAIN:
            assert values(ours) == values(theirs)
        elif ours[2] == "check":
            assert values(ours) | {"trainer.total_training_steps": "100"} == values(theirs)
        else:
            assert sorted(ours) == sorted(theirs)


def test_a_file_that_runs_too_early_says_what_to_run_first(tmp_path):
    model, run_name = "qwen3-4b", "qwen3-4b/grpo-basis-unb.sh"
    places = {"FOLDER": f"{tmp_path}/all runs"}
    train = f"{tmp_path}/all runs/train.parquet is missing: run recipes/data.sh {model} first\n"
    for file in ("pass-rates.sh", run_name, "qwen3-4b/gspo-8.sh"):
        assert refusal(file, tmp_path, model, **places) == train
    make(run("data.sh", tmp_path, model, **places))
    assert "run recipes/pass-rates.sh qwen3-4b first" in refusal(run_name, tmp_path, **places)
    assert run("qwen3-4b/gspo-8.sh", tmp_path, **places)  # uses none
    early = refusal("evaluate.sh", tmp_path, model, "gspo-8", "50", **places)
    assert "gspo-8/global_step_50 is missing: run gspo-8.sh up to that step first" in early
    assert "give model, run and steps" in refusal("evaluate.sh", tmp_path, model, **places)


@pytest.mark.parametrize("model", [(), ("qwen3-8b",), ("section-5.1",)])
def test_an_unknown_model(tmp_path, model):
    for name in ("data.sh", "pass-rates.sh", "evaluate.sh"):
        assert "name qwen3-4b or qwen2.5-math-7b" in refusal(name, tmp_path, *model)


@pytest.mark.parametrize("name", ["qwen3-4b/grpo-8.sh", VALUE])
def test_nothing_is_trained_after_a_failed_check(tmp_path, name):
    make(run("data.sh", tmp_path, "qwen3-4b", FOLDER=str(tmp_path)))
    done, calls = run_script(RECIPES / name, tmp_path, FOLDER=str(tmp_path), FAIL="check")
    assert done.returncode == 1
    assert calls[-1][1:3] == ["verl", "check"]


def test_a_second_time_prepares_and_evaluates_nothing_again(tmp_path):
    places = {"FOLDER": f"{tmp_path}/all runs"}
    prepared("qwen3-4b", tmp_path, **places)
    assert run("data.sh", tmp_path, "qwen3-4b", **places) == []
    run_folder = tmp_path / "all runs/grpo-8"
    for step in (50, 100):
        (run_folder / f"global_step_{step}").mkdir(parents=True)
    (run_folder / "evaluation").mkdir()
    (run_folder / "evaluation/step-50-greedy.jsonl").write_text("x")
    calls = run("evaluate.sh", tmp_path, "qwen3-4b", "grpo-8", "50", "100", **places)
    assert len(calls) == 3


def test_variables_of_the_environment(tmp_path):
    chosen = {"MODEL": "/m/my model", "TRAIN": f"{tmp_path}/p.parquet"}
    chosen["PASS_RATES"] = f"{tmp_path}/rates.parquet"
    for key in ("TRAIN", "PASS_RATES"):
        Path(chosen[key]).touch()
    job = values(run("qwen3-4b/grpo-basis-unb.sh", tmp_path, **chosen)[-1])
    assert job["actor_rollout_ref.model.path"] == "/m/my model"
    assert job["data.train_files"] == chosen["TRAIN"]
    assert job["+algorithm.basis.pass_rates"] == chosen["PASS_RATES"]
    assert job["trainer.default_local_dir"] == f"{tmp_path}/runs/qwen3-4b/grpo-basis-unb"


def test_more_options_may_follow(tmp_path):
    make(run("data.sh", tmp_path, "qwen3-4b", FOLDER=str(tmp_path)))
    (call,) = run("pass-rates.sh", tmp_path, "qwen3-4b", "--n", "8", FOLDER=str(tmp_path))
    assert call[-2:] == ["--n", "8"]
