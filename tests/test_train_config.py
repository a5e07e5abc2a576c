from __future__ import annotations

import copy
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_run import example_module, write_config, write_data

from basis_rl.cli import main
from basis_rl.errors import BasisError, ConfigError
from basis_rl.train import document
from basis_rl.train.command import cache_command
from basis_rl.train.config import OWN_TRL_FIELDS, TrainConfig, load_config

REMOVED = object()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    example_module("make_tiny_model").write(folder / "model", steps=5)
    (folder / "my_rewards.py").write_text(
        "def good(completion, answer): return float(completion == answer)\n"
        "def batched(completions, **columns): return [0.0 for _ in completions]\n"
        "number = 3\n"
    )
    return folder


@pytest.fixture(scope="module")
def valid(folder: Path) -> dict[str, Any]:
    return write_data(folder)


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    values = copy.deepcopy(values)
    for path, value in changes.items():
        *sections, last = path.split(".")
        section = values
        for name in sections:
            section = section.setdefault(name, {})
        if value is REMOVED:
            del section[last]
        else:
            section[last] = value
    return values


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


# (changes of a valid configuration, words of the one line that must come)
MALFORMED: list[tuple[dict[str, Any], list[str]]] = [
    # unknown keys, at every depth
    ({"modle": {}}, ["unknown key 'modle'", "did you mean 'model'"]),
    ({"model.nmae": "x"}, ["unknown key 'nmae' in model", "did you mean 'name'"]),
    ({"model.lora": {"rank": 8}}, ["'rank' in model.lora", "known are r, alpha"]),
    ({"model.lora": {"alhpa": 8}}, ["'alhpa' in model.lora", "did you mean 'alpha'"]),
    ({"data.tran": "x"}, ["'tran' in data", "did you mean 'train'"]),
    ({"data.prompt_colum": "x"}, ["did you mean 'prompt_column'"]),
    ({"reward.function": []}, ["'function' in reward", "did you mean 'functions'"]),
    (
        {"reward.functions": [{"name": "exact", "wieght": 1}]},
        ["'wieght'", "functions[0]", "weight"],
    ),
    ({"pass_rates": {"path": "x", "coverage": 1}}, ["'coverage' in pass_rates", "min_coverage"]),
    ({"trl.learning_rat": 1e-5}, ["'learning_rat' in trl", "did you mean 'learning_rate'"]),
    ({"trl.max_lenght": 1}, ["unknown key 'max_lenght' in trl"]),
    ({"estimator.smoothin": "none"}, ["estimator:", "'smoothin'", "did you mean 'smoothing'"]),
    ({"outputdir": "x"}, ["did you mean 'output_dir'"]),
    # missing keys
    ({"model": REMOVED}, ["model is missing", "a section"]),
    ({"data": REMOVED}, ["data is missing"]),
    ({"reward": REMOVED}, ["reward is missing"]),
    ({"output_dir": REMOVED}, ["output_dir is missing", "a text"]),
    ({"model.name": REMOVED}, ["model.name is missing"]),
    ({"data.train": REMOVED}, ["data.train is missing", "a text or a list"]),
    ({"reward.functions": REMOVED}, ["reward.functions is missing"]),
    ({"reward.functions": [{"weight": 2}]}, ["reward.functions[0].name is missing"]),
    ({"pass_rates": {"min_coverage": 1}}, ["pass_rates.path is missing"]),
    ({"estimator": {"name": None}}, ["estimator.name", "e.g. basis"]),
    ({"estimator": {"preset": "papr"}}, ["preset is 'papr'", "'paper'"]),
    ({"pass_rates": REMOVED}, ["estimator:", "needs pass rates", "set pass_rates to its file"]),
    # wrong types
    ({"model": "x"}, ["model is 'x'", "section"]),
    ({"model": None}, ["model is null", "section"]),
    ({"model": ["x"]}, ["model is a list", "section"]),
    ({"model.name": 3}, ["model.name is 3 (a whole number)", "use a text"]),
    ({"model.name": ""}, ["model.name is empty"]),
    ({"model.dtype": "fp16"}, ["model.dtype is 'fp16'", "'float16'"]),
    ({"model.lora": True}, ["model.lora is True", "section"]),
    ({"model.lora": {"r": "8"}}, ["model.lora.r is '8' (a text)", "a whole number"]),
    ({"model.lora": {"r": 0}}, ["model.lora.r is 0", "1 or more"]),
    ({"model.lora": {"r": True}}, ["model.lora.r is True", "a whole number"]),
    ({"model.lora": {"dropout": -0.1}}, ["model.lora.dropout is -0.1", "0 or more"]),
    ({"data.train": 5}, ["data.train is 5", "a text or a list, each a text"]),
    ({"data.train": [5]}, ["data.train[0] is 5"]),
    ({"data.train": []}, ["data.train is empty"]),
    ({"data.limit": 0}, ["data.limit is 0", "1 or more"]),
    ({"data.limit": 2.5}, ["data.limit is 2.5", "a whole number or null"]),
    ({"data.where": "Level 3"}, ["data.where", "section"]),
    ({"data.chat": "yes"}, ["data.chat is 'yes'", "true or false or null"]),
    ({"reward.functions": "exact"}, ["reward.functions is 'exact'", "a list"]),
    ({"reward.functions": []}, ["reward.functions is empty"]),
    ({"reward.functions": [1]}, ["reward.functions[0] is 1"]),
    ({"reward.functions": [{"name": "exact", "weight": "2"}]}, ["functions[0].weight", "a number"]),
    (
        {"reward.functions": [{"name": "exact", "weight": float("nan")}]},
        ["functions[0].weight is nan", "finite"],
    ),
    ({"pass_rates": 7}, ["pass_rates is 7"]),
    (
        {"pass_rates": {"path": "x", "min_coverage": 2}},
        ["pass_rates.min_coverage is 2", "1 or less"],
    ),
    ({"pass_rates": {"path": "x", "allow": ["models"]}}, ["pass_rates.allow[0]", "'model'"]),
    ({"estimator": 1}, ["estimator is 1"]),
    ({"objective": "gpro"}, ["objective is 'gpro'", "'grpo'"]),
    ({"trl": []}, ["trl is a list"]),
    ({"trl.learning_rate": "fast"}, ["trl.learning_rate is 'fast'", "a number"]),
    ({"trl.max_steps": 2.5}, ["trl.max_steps is 2.5", "a whole number"]),
    ({"trl.bf16": "yes"}, ["trl.bf16 is 'yes'", "true or false"]),
    # values that contradict each other or what they name
    ({"trl.output_dir": "x"}, ["trl.output_dir", "use output_dir"]),
    ({"trl.pass_rates": "x"}, ["trl.pass_rates", "use pass_rates"]),
    ({"trl.reward_weights": [1.0]}, ["trl.reward_weights", "use reward.functions"]),
    ({"trl.resume_from_checkpoint": "x"}, ["resumes by itself"]),
    ({"trl.num_generations": 3}, ["trl:", "3"]),
    (
        {"trl.scale_rewards": "group"},
        ["trl:", "scale_rewards", "estimator: {name: group-mean, std: true}"],
    ),
    (
        {"objective": "gspo", "trl.loss_type": "dapo"},
        ["trl:", "contradicts", "set objective: null"],
    ),
    ({"trl.temperature": 0}, ["trl:", "temperature"]),
    ({"objective": "gspo", "trl.importance_sampling_level": "token"}, ["trl:", "contradicts"]),
    (
        {"trl.steps_per_generation": 2, "trl.save_steps": 3},
        ["trl.save_steps is 3", "multiple of 2"],
    ),
    (
        {"trl.steps_per_generation": 2, "trl.max_steps": 5},
        ["trl.max_steps is 5", "multiple of 2"],
    ),
    ({"trl.save_only_model": True}, ["trl.save_only_model is true", "resumed", "final"]),
    (
        {"trl.per_device_train_batch_size": 33},
        ["data.train:", "32 training prompts", "takes 33", "per_device_train_batch_size"],
    ),
    ({"estimator": "group-mean"}, ["trl:", "'group-mean'", "num_generations is 1"]),
    ({"trl.lr_scheduler_type": "linaer"}, ["trl:", "linaer"]),
    ({"trl.eval_strategy": "never"}, ["trl:", "never"]),
    ({"estimator": "bassis"}, ["estimator:", "did you mean 'basis'"]),
    ({"estimator.preset": "papr"}, ["estimator:", "'papr'"]),
    ({"estimator.variant": "unbiased"}, ["estimator:", "'unbiased'"]),
    ({"data.train": "missing.jsonl"}, ["data.train:", "there is no file missing.jsonl"]),
    ({"data.eval": "missing.parquet"}, ["data.eval:", "there is no file missing.parquet"]),
    ({"data.train": "reasoning-gym:chain_sumz"}, ["data.train:", "did you mean 'chain_sum'"]),
    ({"data.train": "a b"}, ["data.train:", "names no prompts"]),
    ({"data.prompt_column": "question"}, ["data.train:", "line 1", "no column 'question'"]),
    ({"data.key_column": "idd"}, ["did you mean 'id'"]),
    ({"data.template": "{promt}"}, ["data.train:", "did you mean 'prompt'"]),
    ({"data.where": {"task": "none"}}, ["data.train:", "none that fits"]),
    ({"data.system": "x", "data.chat": False}, ["data.system needs chat prompts"]),
    (
        {"pass_rates": {"path": "rates.parquet", "min_coverage": 0.5}},
        ["pass_rates.min_coverage=0.5", "add estimator.missing: prior"],
    ),
    ({"data.key_column": "id"}, ["pass_rates:", "know 0.0%", "data.key_column"]),
    ({"data.template": "{prompt} "}, ["pass_rates:", "know 0.0%", "estimator.missing: prior"]),
    ({"reward.functions": ["maths"]}, ["reward:", "did you mean 'math'"]),
    ({"reward.functions": ["exact", "exact"]}, ["'exact' twice"]),
    ({"reward.functions": ["no_module:f"]}, ["reward:", "cannot import module 'no_module'"]),
    ({"reward.functions": ["my_rewards:goood"]}, ["reward:", "did you mean 'good'"]),
    ({"reward.functions": ["my_rewards:number"]}, ["reward:", "name a function"]),
    ({"reward.functions": ["my_rewards:batched"]}, ["reward:", "one completion at a time"]),
    (
        {"reward.answer_column": "anser"},
        ["data.train, for reward 'exact'", "did you mean 'answer'"],
    ),
    ({"reward.answer_column": "nothing"}, ["'nothing' is empty for 32 of 32", "right answers"]),
    ({"reward.functions": ["reasoning-gym"]}, ["no column 'metadata.source_dataset'"]),
    ({"reward.functions": ["my_rewards:good"]}, ["pass_rates:", "verifier", "pass_rates.allow"]),
    ({"pass_rates": "no.parquet"}, ["there is no file no.parquet", "basis-rl cache build --model"]),
    ({"pass_rates": "train.jsonl"}, ["pass_rates:", "train.jsonl"]),
    ({"model.name": "no-such-folder"}, ["model is", "no-such-folder", "pass_rates.allow"]),
    (
        {"model.name": "no-such-folder", "pass_rates": None, "estimator": "batch-mean"},
        ["model.name is 'no-such-folder'", "cannot be loaded", "hub id"],
    ),
    ({"output_dir": "train.jsonl"}, ["output_dir train.jsonl is a file"]),
]


@pytest.mark.parametrize(("changes", "words"), MALFORMED, ids=lambda case: str(case)[:70])
def test_malformed_configurations_give_one_line(
    changes: dict[str, Any],
    words: list[str],
    folder: Path,
    valid: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    path = write_config(folder, changed(valid, changes))
    code, _, err = run(["train", path, "--check"], capsys)
    assert code == 2
    assert err.startswith("basis-rl: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    for word in words:
        assert word in err


TEXTS = [
    ("", "is empty"),
    ("# nothing\n", "is empty"),
    ("- a\n- b\n", "holds a list"),
    ("just words\n", "holds a str"),
    ("model: {name: x\n", "is not YAML"),
    ("model:\n\tname: x\n", "line 2"),
    ("model: {name: x}\nmodel: {name: y}\n", "line 2: 'model' is given twice"),
    ("model:\n  name: x\n  name: y\n", "line 3: 'name' is given twice"),
    ("1: x\n", "line 1: key 1 is not a text"),
    ("model: !!python/object:os.system {}\n", "is not YAML"),
    ("model: &a {name: *a}\n", "an alias stands inside its own anchor"),
    ("model: *nothing\n", "is not YAML"),
    ("? [a, b]\n: 1\n", "line 1"),
    ("a: 1\n---\nb: 2\n", "is not YAML"),
    ("model: \x00\n", "is not YAML"),
]


@pytest.mark.parametrize(("text", "words"), TEXTS)
def test_texts_that_are_no_configuration(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    code, _, err = run(["train", str(path)], capsys)
    assert code == 2
    assert err.count("\n") == 1
    assert words in err
    assert str(path) in err


def test_files_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "c.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, words in (
        (binary, "not UTF-8"),
        (tmp_path, "is a folder"),
        (tmp_path / "none.yaml", "there is no file"),
    ):
        code, _, err = run(["train", str(path)], capsys)
        assert code == 2
        assert words in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("trl.learning_rate", "section.key=value"),
        ("=3", "section.key=value"),
        ("trl.=3", "section.key=value"),
        ("output_dir.x=3", "output_dir is"),
        ("trl.max_steps={", "is not YAML"),
        ("trl.max_steps=ten", "trl.max_steps is 'ten'"),
        ("trl.mx_steps=10", "did you mean 'max_steps'"),
        ("modle.name=x", "did you mean 'model'"),
    ],
)
def test_bad_overrides(
    override: str,
    words: str,
    folder: Path,
    valid: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_config(folder, valid)
    code, _, err = run(["train", path, "--check", "--set", override], capsys)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


def test_random_edits_never_give_a_traceback(
    folder: Path,
    valid: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    generator = random.Random(0)
    original = yaml.safe_dump(valid, sort_keys=False)
    refused = 0
    for _ in range(150):
        text = original
        for _ in range(generator.randint(1, 3)):
            start = generator.randrange(len(text))
            kind = generator.choice(["cut", "drop", "insert", "swap", "line"])
            if kind == "cut":
                text = text[: max(start, 1)]
            elif kind == "drop":
                text = text[:start] + text[start + generator.randint(1, 8) :] or "x"
            elif kind == "insert":
                text = text[:start] + generator.choice("{}[]:-#&*!|>'\"%@\t\n 0é") + text[start:]
            elif kind == "swap":
                text = text[:start] + chr(generator.randint(33, 126)) + text[start + 1 :]
            else:
                lines = text.splitlines(keepends=True)
                lines.insert(generator.randrange(len(lines) + 1), generator.choice(lines))
                text = "".join(lines)
        path = folder / "random.yaml"
        path.write_text(text)
        code, _, err = run(["train", str(path), "--check"], capsys)
        if code:
            refused += 1
            assert code == 2, (text, err)
            assert err.count("\n") == 1, (text, err)
            assert err.startswith("basis-rl: "), (text, err)
    assert refused > 75


def test_a_valid_configuration_is_summed_up(
    folder: Path, valid: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(folder, changed(valid, {"data.eval": str(folder / "eval.jsonl")}))
    code, out, err = run(["train", path, "--check", "--set", "trl.learning_rate=1e-6"], capsys)
    assert (code, err) == (0, "")
    assert "32 to train on (text), 4 to evaluate on" in out
    assert "100.0% of the training prompts known" in out
    assert "16 rollouts, 1 per prompt; learning rate 1e-06" in out
    assert "the configuration is valid" in out
    assert not (folder / "out").exists()


def test_numbers_without_a_point_are_numbers() -> None:
    parsed = document.parse_yaml("[1e-6, 5E3, -1e+2, 1.5e-3, .5e1, e5, 1e, 0x1e]", where="text")
    assert parsed == [1e-6, 5e3, -1e2, 1.5e-3, 5.0, "e5", "1e", 30]


def test_only_true_and_false_are_truth_values() -> None:
    parsed = document.parse_yaml("[no, off, yes, On, true, False, null, ~, 3]", where="text")
    assert parsed == ["no", "off", "yes", "On", True, False, None, None, 3]
    assert document.parse_yaml(document.dump({"a": ["no", False]}), where="text") == {
        "a": ["no", False]
    }


def test_overrides_change_only_the_copy() -> None:
    values = {"trl": {"beta": 0.1}, "data": None}
    result = document.apply_overrides(
        values, ["trl.beta=null", "data.limit=3", "reward.functions=[math]", "a.b.c={d: 1}"]
    )
    assert values == {"trl": {"beta": 0.1}, "data": None}
    assert result == {
        "trl": {"beta": None},
        "data": {"limit": 3},
        "reward": {"functions": ["math"]},
        "a": {"b": {"c": {"d": 1}}},
    }


def test_short_and_long_forms_are_the_same(folder: Path, valid: dict[str, Any]) -> None:
    short = load_config(write_config(folder, changed(valid, {"estimator": "basis"})))
    long = load_config(
        write_config(folder, changed(valid, {"pass_rates": {"path": valid["pass_rates"]}}))
    )
    assert short == long
    assert isinstance(short, TrainConfig)
    assert short.reward.items()[0].answer_column == "answer"


def test_own_sections_and_basis_config_agree() -> None:
    import dataclasses
    import typing

    from basis_rl.trl import BasisConfig
    from basis_rl.trl.objectives import OBJECTIVES

    fields = {field.name for field in dataclasses.fields(BasisConfig)}
    assert set(OWN_TRL_FIELDS) <= fields
    literal, _ = typing.get_args(typing.get_type_hints(TrainConfig)["objective"])
    assert set(typing.get_args(literal)) == set(OBJECTIVES)


def test_the_named_cache_command_is_a_valid_one(folder: Path, valid: dict[str, Any]) -> None:
    import shlex

    from basis_rl.cli.cache_build import build
    from basis_rl.cli.data_options import wanted_rows

    values = changed(
        valid,
        {
            "data.template": "{prompt}\n",
            "data.system": "it's",
            "data.source_column": "task",
            "data.where": {"task": ["sum", "it's"], "id": 3},
            "data.chat": True,
            "trl.top_p": 0.9,
        },
    )
    command = cache_command(load_config(write_config(folder, values)))
    assert command is not None
    program, group, name, *arguments = shlex.split(command)
    assert (program, group, name) == ("basis-rl", "cache", "build")
    options = build.make_context("build", arguments).params
    assert options["model"] == valid["model"]["name"]
    assert options["template"] == "{prompt}\\n"
    assert options["system"] == "it's"
    assert options["chat"] is True
    assert wanted_rows(options["where"]) == {"task": ["sum", "it's"], "id": 3}
    assert options["max_tokens"] == 3
    assert options["top_p"] == 0.9
    assert options["out"] == valid["pass_rates"]
    for functions in (["exact", "math"], [{"name": "exact", "weight": 0.5}]):
        several = changed(valid, {"reward.functions": functions})
        assert cache_command(load_config(write_config(folder, several))) is None
    two = changed(valid, {"data.train": ["a.jsonl", "b.jsonl"]})
    assert cache_command(load_config(write_config(folder, two))) is None


def test_yaml_errors_come_without_a_framework(folder: Path, valid: dict[str, Any]) -> None:
    path = write_config(folder, changed(valid, {"model.nmae": "x"}))
    code = (
        "import sys\n"
        "from basis_rl.cli import main\n"
        "try: main(['train', sys.argv[1]])\n"
        "except SystemExit as error: assert error.code == 2\n"
        "assert not {'torch', 'transformers', 'trl', 'datasets', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True)


def test_errors_are_basis_errors() -> None:
    with pytest.raises(ConfigError):
        load_config("none.yaml")
    assert issubclass(ConfigError, BasisError)
