"""`basis-rl verl command`: scripts that run the paper's settings, each with its source."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import pytest
from script_calls import run_script

from basis_rl.cli import main
from basis_rl.errors import ConfigError
from basis_rl.verl.command.settings import (
    METRICS_FILE,
    Choice,
    common_groups,
    overrides,
    training_groups,
)
from basis_rl.verl.paper.baselines import BASELINES
from basis_rl.verl.paper.gpus import GPUS, spread
from basis_rl.verl.paper.models import MODELS
from basis_rl.verl.paper.objectives import OBJECTIVES
from basis_rl.verl.paper.times import HOURS

COMBINATIONS = list(itertools.product(MODELS, OBJECTIVES, BASELINES))


def printed(capsys, *options):
    with pytest.raises(SystemExit) as end:
        main(["verl", "command", *options])
    assert end.value.code == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refusal(capsys, *options):
    with pytest.raises(SystemExit) as end:
        main(["verl", "command", *options])
    out, err = capsys.readouterr()
    assert end.value.code == 2
    assert out == ""
    assert err.count("\n") == 1
    return err


def settings(choice):
    groups = [*common_groups(choice), *training_groups(choice)]
    return {each.key: each for group in groups for each in group.settings}


def test_every_combination_is_a_script(capsys):
    for model, objective, baseline in COMBINATIONS:
        script = printed(capsys, "--model", model, "--objective", objective, "--baseline", baseline)
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=20)
        arrays = re.findall(r"^\w+=\(\n(.*?)\n\)$", script, re.M | re.S)
        for line in "\n".join(arrays).splitlines():
            assert re.match(r"  (\S.*?)? *# \S", line), line  # each setting has its source


@pytest.mark.parametrize(
    ("key", "values", "place"),
    [
        ("actor_rollout_ref.actor.optim.lr", {1e-6}, "Appendix D"),
        ("actor_rollout_ref.rollout.temperature", {1.0}, "Appendix D"),
        ("actor_rollout_ref.actor.use_kl_loss", {False}, "Appendix D"),
        ("algorithm.use_kl_in_reward", {False}, "Appendix D"),
        ("data.train_batch_size", {512, 64}, "Section 5.2, Appendix D"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", {256, 32}, "Appendix D"),
        ("data.max_response_length", {4096, 2048}, "Appendix D"),
        ("trainer.total_training_steps", {150, 300}, "Section 5.2"),
        ("actor_rollout_ref.actor.optim.clip_grad", {1.0}, "assumed"),
        ("actor_rollout_ref.actor.loss_agg_mode", {"token-mean", "seq-mean-token-mean"}, "assumed"),
        ("data.seed", {42}, "assumed"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size", {1}, "assumed"),
    ],
)
def test_settings_are_the_papers(key, values, place):
    found = [settings(Choice(*names))[key] for names in COMBINATIONS]
    assert {each.value for each in found} == values
    assert all(each.source.startswith(place) for each in found)


def test_what_the_paper_says_of_one_model_is_assumed_of_the_other():
    for key in ("data.max_prompt_length", "actor_rollout_ref.rollout.top_p"):
        assert settings(Choice("qwen2.5-math-7b"))[key].source == "Appendix D"
        assert settings(Choice("qwen3-4b"))[key].is_assumed
    assert MODELS["qwen3-4b"].offline.value == 64
    assert MODELS["qwen2.5-math-7b"].offline.value == 32


@pytest.mark.parametrize("names", COMBINATIONS)
def test_each_step_has_512_rollouts_and_two_updates(names):
    found = {key: each.value for key, each in settings(Choice(*names)).items()}
    rollouts = found["actor_rollout_ref.rollout.n"]
    assert found["data.train_batch_size"] * rollouts == 512
    assert rollouts == (8 if names[2] == "grpo-8" else 1)
    mini_batch = found["actor_rollout_ref.actor.ppo_mini_batch_size"]
    assert found["data.train_batch_size"] / mini_batch == 2


def test_the_script_runs_what_the_settings_say(capsys, tmp_path):
    script = printed(capsys, "--model", "qwen3-4b", "--objective", "gspo", "--out", str(tmp_path))
    done, calls = run_script(script, tmp_path, "trainer.save_freq=10")
    assert done.returncode == 0, done.stderr
    expected = overrides(Choice("qwen3-4b", "gspo"), out=str(tmp_path))
    check, train = calls[-1 - 6 - 1], calls[-1 - 6]
    assert check[:3] == ["basis-rl", "verl", "check"]
    assert train[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    for call in (check, train):
        given = [word.replace("'", "") for word in call[3:] if METRICS_FILE not in word]
        assert given == [*expected, "trainer.save_freq=10"]
    (metrics,) = (word for word in train if METRICS_FILE in word)
    assert f"{tmp_path}/qwen3-4b/gspo-basis-unb/metrics-" in metrics
    evaluated = calls[-6:]
    assert [call[-2].rsplit("_", 1)[1] for call in evaluated] == [
        "50'",
        "50'",
        "100'",
        "100'",
        "150'",
        "150'",
    ]
    for call in evaluated:
        assert "trainer.val_only=True" in call
        assert "algorithm.adv_estimator=grpo" in call
        assert not any(
            "basis_rl.verl" in word.split("=")[-1] and "verifiers" not in word for word in call
        )
    sampled, greedy = evaluated[:2]
    assert "actor_rollout_ref.rollout.val_kwargs.n=32" in sampled
    assert "actor_rollout_ref.rollout.val_kwargs.do_sample=False" in greedy
    cache = next(call for call in calls if call[1:3] == ["cache", "build"])
    assert cache[cache.index("--n") + 1] == "64"
    assert cache[cache.index("--max-tokens") + 1] == "4096"
    prepared = [call for call in calls if call[1:3] == ["verl", "prepare"]]
    assert len(prepared) == 1 + 7
    assert "{problem}" in prepared[1][prepared[1].index("--template") + 1]


def test_a_failure_stops_the_script(capsys, tmp_path):
    script = printed(capsys, "--model", "qwen3-4b", "--out", str(tmp_path))
    done, calls = run_script(script, tmp_path, FAIL="check")
    assert done.returncode == 1
    assert calls[-1][1:3] == ["verl", "check"]


def test_a_second_run_prepares_and_evaluates_nothing_again(capsys, tmp_path):
    script = printed(capsys, "--model", "qwen3-4b", "--out", str(tmp_path))
    folder = tmp_path / "qwen3-4b"
    names = ["aime24", "aime25", "amc23", "hmmt25", "math500", "minerva", "olympiadbench"]
    files = [folder / "train.parquet", *(folder / f"benchmarks/{name}.parquet" for name in names)]
    steps = itertools.product((50, 100), ("sampled", "greedy"))
    for step, way in steps:
        files.append(folder / f"grpo-basis-unb/evaluation/step-{step}-{way}.jsonl")
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    _, calls = run_script(script, tmp_path)
    assert [call[1:3] for call in calls[:2]] == [["cache", "build"], ["verl", "check"]]
    assert len(calls) == 2 + 1 + 2


def test_variables_of_the_environment(capsys, tmp_path):
    script = printed(capsys, "--model", "qwen3-4b", "--what", "train")
    chosen = {"MODEL": "/m/my model", "FOLDER": str(tmp_path), "TRAIN": "/d/p.parquet"}
    _, calls = run_script(script, tmp_path, **chosen)
    (train,) = calls
    assert "actor_rollout_ref.model.path='/m/my model'" in train
    assert "data.train_files='/d/p.parquet'" in train
    assert f"+algorithm.basis.pass_rates='{tmp_path}/pass-rates.parquet'" in train


@pytest.mark.parametrize("name", ["a b", "é*?", "x;y&z #!", "~a", "[1],=(2)", "--n"])
def test_odd_names_of_files_are_words_of_the_script(capsys, tmp_path, name):
    options = ["--out", name, "--train", f"{name}/t.parquet", "--pass-rates", f"{name}/p.parquet"]
    script = printed(capsys, "--model", "qwen3-4b", *options)
    _, calls = run_script(script, tmp_path)
    train = next(call for call in calls if "verl.trainer.main_ppo" in call)
    assert f"data.train_files='{tmp_path}/{name}/t.parquet'" in train
    assert f"+algorithm.basis.pass_rates='{tmp_path}/{name}/p.parquet'" in train
    assert f"trainer.default_local_dir='{tmp_path}/{name}/qwen3-4b/grpo-basis-unb'" in train


@pytest.mark.parametrize("start", ["~", "~/r", "$SCRATCH", "$SCRATCH/r"])
def test_a_folder_may_start_at_home_or_at_a_variable(capsys, tmp_path, start):
    script = printed(capsys, "--model", "qwen3-4b", "--what", "train", "--out", start)
    places = {"HOME": f"{tmp_path}/h", "SCRATCH": f"{tmp_path}/s"}
    _, (train,) = run_script(script, tmp_path, **places)
    place = start.replace("~", places["HOME"]).replace("$SCRATCH", places["SCRATCH"])
    assert f"data.train_files='{place}/qwen3-4b/train.parquet'" in train


def test_parts(capsys):
    options = ["--model", "qwen3-4b"]
    script = printed(capsys, *options, "--what", "cache")
    assert "cache build" in script
    assert "common=(" not in script
    both = printed(capsys, *options, "--what", "train", "--what", "check")
    assert both.index("verl check") < both.index("main_ppo")
    assert "cache build" not in both
    script = printed(capsys, *options, "--pass-rates", "~/p.parquet", "--train", "t.parquet")
    assert "cache build" not in script
    assert "DAPO-Math-17k" not in script
    assert 'pass_rates="${PASS_RATES:-$HOME/p.parquet}"' in script
    assert 'train="${TRAIN:-$PWD/t.parquet}"' in script
    assert "cache build" not in printed(capsys, *options, "--baseline", "vanilla")


def test_which_reading_of_eq_5(capsys):
    assert settings(Choice("qwen3-4b"))["+algorithm.basis.preset"].is_assumed
    script = printed(capsys, "--model", "qwen3-4b")
    assert "+algorithm.basis.preset=paper " in script
    assert "Preset paper, used here, takes its mean over the whole batch" in script.replace(
        "\n# ", " "
    )
    literal = printed(capsys, "--model", "qwen3-4b", "--preset", "paper-literal")
    assert "+algorithm.basis.preset=paper-literal " in literal
    assert "grpo-basis-unb-literal" in literal


def test_value_study(capsys, tmp_path):
    script = printed(capsys, "--study", "section-5.1", "--out", str(tmp_path))
    done, calls = run_script(script, tmp_path)
    assert done.returncode == 0, done.stderr
    trained = [call for call in calls if "verl.trainer.main_ppo" in call]
    assert [call[-1] for call in trained] == [
        f"trainer.total_training_steps={step}" for step in (10, 50, 100)
    ]
    assert all("algorithm.adv_estimator=grpo" in call for call in trained)
    records = [call for call in calls if call[1:3] == ["lab", "record"]]
    assert [call[call.index("--step") + 1] for call in records] == ["10", "50", "100"]
    for call in records:
        assert call[call.index("--oracle") + 1] == "256"
    latest = tmp_path / "section-5.1/grpo-8/latest_checkpointed_iteration.txt"
    latest.write_text("50")
    _, again = run_script(script, tmp_path)
    assert [call[-1] for call in again if "verl.trainer.main_ppo" in call] == [trained[-1][-1]]
    figures = calls[-1]
    assert figures[1:3] == ["lab", "figures"]
    assert [Path(word).stem for word in figures[3:6]] == ["early", "middle", "late"]
    other = re.compile(r"# (Section 5\.2|Appendix D|--gpus|--nodes)")
    settings_of_training = script[: script.index("# 1. ")]
    said = [line for line in settings_of_training.splitlines() if other.search(line)]
    assert said == []  # nothing of Section 5.2 is passed off as said of this run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "qwen3-8b"], "did you mean 'qwen3-4b'?"),
        ([], "--model is missing: use qwen3-4b or qwen2.5-math-7b"),
        (["--model", "qwen3-4b", "--objective", "gspg"], "did you mean"),
        (["--model", "qwen3-4b", "--baseline", "basis-ubn"], "did you mean 'basis-unb'?"),
        (["--model", "qwen3-4b", "--baseline", "vanila"], "did you mean 'vanilla'?"),
        (["--model", "qwen3-4b", "--gpu", "h1000"], "did you mean 'h100'?"),
        (["--model", "qwen3-4b", "--gpu", "h100", "--gpu-memory", "80"], "leave one out"),
        (["--model", "qwen3-4b", "--gpus", "3"], "use 1, 2, 4, 8, 16"),
        (["--model", "qwen3-4b", "--gpus", "0"], "--gpus is 0: give a positive number"),
        (["--model", "qwen3-4b", "--gpu-memory", "8"], "use GPUs of"),
        (["--model", "qwen3-4b", "--what", "trian"], "did you mean 'train'?"),
        (["--model", "qwen3-4b", "--study", "section-5"], "did you mean 'section-5."),
        (["--model", "qwen3-4b", "--baseline", "vanilla", "--pass-rates", "p"], "no effect"),
        (["--model", "qwen3-4b", "--baseline", "vanilla", "--n", "8"], "no effect"),
        (["--model", "qwen3-4b", "--n", "8", "--pass-rates", "p"], "no effect"),
        (["--model", "qwen3-4b", "--baseline", "robust", "--preset", "paper-literal"], "leave it"),
        (["--model", "qwen3-4b", "--gpu-memory", "nan"], "--gpu-memory is nan: give a positive"),
        (["--model", "qwen3-4b", "--gpu-memory", "inf"], "--gpu-memory is inf: give a positive"),
        (["--model", "qwen3-4b", "--out", "it's"], "give a path without quotes"),
        (["--model", "qwen3-4b", "--out", ""], "'' is no path of a file system"),
        (["--model", "qwen3-4b", "--train", "s3://b/t.parquet"], "give one that all machines"),
        (["--model", "qwen3-4b", "--out", "a$b"], "dollar signs (but for a variable"),
        (["--model", "qwen3-4b", "--out", "$(date)"], "dollar signs (but for a variable"),
        (["--study", "section-5.1", "--model", "qwen3-4b"], "has qwen2.5-math-7b alone"),
        (["--study", "section-5.1", "--steps", "20"], "stops at 10, 50, 100"),
    ],
)
def test_refusals(capsys, options, words):
    assert words in refusal(capsys, *options)


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_spread_fits_the_gpus(model):
    for memory, gpus, nodes in itertools.product(GPUS.values(), (1, 2, 4, 8), (1, 4)):
        sizing = spread(model, gpus=gpus, nodes=nodes, memory=memory)
        states = 16 * model.parameters / gpus / nodes / 1e9
        resident = states if sizing.offload == "none" else 0
        assert resident + sizing.rollout_share * memory <= 0.9 * memory + 1e-9
        assert 2 * model.parameters / sizing.tensor_parallel / 1e9 < sizing.rollout_share * memory
        assert gpus % sizing.tensor_parallel == 0
        assert sizing.max_tokens >= model.sequence
        if sizing.offload == "between phases":
            assert states <= 0.9 * memory


def test_more_memory_never_asks_for_more_help():
    ranks = {"none": 0, "between phases": 1, "always": 2}
    found = [spread(MODELS["qwen3-4b"], gpus=2, nodes=1, memory=m) for m in range(16, 200)]
    assert sorted((ranks[each.offload] for each in found), reverse=True) == [
        ranks[each.offload] for each in found
    ]


def test_too_little_memory_says_how_much_is_needed():
    with pytest.raises(ConfigError, match="use GPUs of 12 GB or more") as error:
        spread(MODELS["qwen3-4b"], gpus=4, nodes=1, memory=8)
    assert "5120 tokens" in str(error.value)


def test_the_papers_hours_are_those_of_its_table():
    """Table 3: BASIS trains half as many steps, in 47% to 54% of the time of 8 rollouts."""
    assert len(HOURS) == 15
    for objective in OBJECTIVES:
        share = HOURS[objective, "basis-unb", 150] / HOURS[objective, "grpo-8", 300]
        assert 0.45 < share < 0.55
