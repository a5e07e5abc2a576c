"""Inputs of `cache import` that could give wrong numbers without an error."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from basis_rl import cli
from basis_rl.errors import BasisError, PassRatesError
from basis_rl.passrates import prompt_key
from basis_rl.passrates.importers import import_pass_rates
from basis_rl.passrates.importers.read import rows_of
from basis_rl.prompts import Prompt


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def one(path: Path, value: Any, **columns: Any) -> Path:
    return lines(path / "x.jsonl", [{"prompt": "a", "r": value, **columns}])


def test_truth_values_written_as_texts(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("prompt,r\na,True\na,False\na,FALSE\n")
    table = import_pass_rates(path, reward_column="r").table
    assert (table.means.tolist(), table.n.tolist()) == ([1 / 3], [3])


@pytest.mark.parametrize("value", ["-nan", "+NaN", "<NA>", float("nan"), None, " N/A "])
def test_missing_in_other_spellings(value: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", [{"prompt": "a", "r": v} for v in (1, value, 0)])
    found = import_pass_rates(path, reward_column="r")
    assert (found.table.means.tolist(), found.report.missing) == ([0.5], 1)
    found = import_pass_rates(
        lines(path, [{"prompt": p, "r": v} for p, v in (("a", 0.5), ("b", value))]),
        rate_column="r",
    )
    assert (len(found.table), found.report.missing) == (1, 1)


def test_bytes_are_no_list_of_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["a"], "r": [b"1"]}), tmp_path / "x.parquet")
    with pytest.raises(PassRatesError, match=r"row 0: r is b'1': it should be a number"):
        import_pass_rates(tmp_path / "x.parquet", reward_column="r")


def test_an_unknown_format_names_options_and_who_has_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("prompt,reward,step\na,1,1\n")
    with pytest.raises(PassRatesError, match=r"\(--reward-column reward\)") as refused:
        import_pass_rates(path)
    # Of these `lab` has none.
    alone = str(refused.value).split("let `basis-rl cache import` take")[0]
    for option in ("--successes-column", "--n", "--rate-column", "--unit"):
        assert option in str(refused.value)
        assert option not in alone
    path.write_text("prompt,right\na,1\n")
    with pytest.raises(PassRatesError, match=r"\(--reward-column\), .*columns are prompt, right$"):
        import_pass_rates(path)
    with pytest.raises(PassRatesError, match="--reward-column and --rate-column are both given"):
        import_pass_rates(path, reward_column="right", rate_column="right")


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (1, {"reward_column": "r", "threshold": float("nan")}, "threshold is nan"),
        (1, {"reward_column": "r", "mapping": {1: float("nan")}}, "map has 1=nan"),
        (0.3, {"rate_column": "r", "threshold": 0.5}, "sums up a prompt's rollouts"),
        (0.3, {"rate_column": "r", "mapping": {0: 1}}, "sums up a prompt's rollouts"),
        ("4/8", {"rate_column": "r", "unit": "fraction", "n": 16}, "n is given as 16"),
        (3, {"successes_column": "r", "n": 8, "n_column": "n"}, "--n and --n-column are both"),
        (3, {"successes_column": "r", "n_column": "zero"}, "r is 3 of n = 0"),
    ],
)
def test_options_that_contradict_the_data(
    value: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PassRatesError, match=words):
        import_pass_rates(one(tmp_path, value, n=8, zero=0), **options)


def test_public_sets_keep_their_n_and_unit(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", [{"problem": "a", "difficulty": 50.0}])
    form = "lime-nlp/MATH_Difficulty"
    assert import_pass_rates(path, format=form, n=128).table.n.tolist() == [128]
    for option, words in (({"n": 64}, "n is given as 64.*is 128"), ({"unit": "rate"}, "unit")):
        with pytest.raises(PassRatesError, match=words):
            import_pass_rates(path, format=form, **option)


def test_remarks_on_units(tmp_path: Path) -> None:
    def remarks(values: list[Any], **options: Any) -> str:
        rows = [{"prompt": str(i), "r": value} for i, value in enumerate(values)]
        found = import_pass_rates(lines(tmp_path / "x.jsonl", rows), **options)
        return " ".join(found.report.remarks)

    rates = [0.25, 0.5, 1.0]
    assert "not percent?" in remarks(rates, rate_column="r", unit="percent")
    assert "not percent?" in remarks(rates, rate_column="r", unit="percent-failures")
    assert not remarks([25.0, 50.0], rate_column="r", unit="percent")
    assert not remarks([0.0, 100.0], rate_column="r", unit="percent")
    eighths = [k / 8 for k in range(9)] * 2
    assert "is n 8, not 64?" in remarks(eighths, rate_column="r", n=64)
    assert not remarks(eighths, rate_column="r", n=8)
    assert "no reward reaches" in remarks([0, 1], reward_column="r", threshold=5)
    assert "all rewards reach" in remarks([0, 1], reward_column="r", threshold=-1)
    assert not remarks([0, 10], reward_column="r", threshold=5)


def test_an_empty_prompt_is_no_prompt(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", [{"prompt": " ", "r": 1, "id": 1}])
    with pytest.raises(PassRatesError, match="line 1: its prompt is empty"):
        import_pass_rates(path, reward_column="r")
    assert import_pass_rates(path, reward_column="r", key_column="id").table.keys == ["1"]


def test_rows_without_a_step_are_of_no_range(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "r": r, "step": s} for r, s in ((1, 1), (0, None), (0, 2))]
    found = import_pass_rates(lines(tmp_path / "x.jsonl", rows), reward_column="r", steps=(1, 1))
    assert (found.table.means.tolist(), found.table.n.tolist()) == ([1.0], [1])
    assert found.report.dropped["without a training step"] == 1


def test_a_column_step_of_another_meaning(tmp_path: Path) -> None:
    path = one(tmp_path, 1, step="Step 1: add")
    assert import_pass_rates(path, reward_column="r").table.n.tolist() == [1]
    with pytest.raises(PassRatesError, match="step is 'Step 1: add'"):
        import_pass_rates(path, reward_column="r", steps=(1, 1))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_two_columns_of_one_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    if kind == "csv":
        path.write_text("prompt,r,r\na,1,0\n")
    else:
        arrays = [pa.array([value]) for value in ("a", 1, 0)]
        pq.write_table(pa.Table.from_arrays(arrays, names=["prompt", "r", "r"]), path)
    with pytest.raises(PassRatesError, match="has two columns 'r'"):
        import_pass_rates(path, reward_column="r")


def verl(path: Path, step: int, score: float) -> Path:
    row = {"input": "q", "output": "o", "gts": "", "score": score, "step": step}
    return lines(path, [row, row])


def test_links_in_a_folder_are_read_once(tmp_path: Path) -> None:
    for step in (2, 9, 10):
        verl(tmp_path / f"{step}.jsonl", step, 1.0)
    (tmp_path / "latest.jsonl").symlink_to(tmp_path / "10.jsonl")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "itself.jsonl").symlink_to(tmp_path / "itself.jsonl")
    table = import_pass_rates(tmp_path, steps=(1, 10)).table
    assert table.n.tolist() == [6]


def test_a_compressed_copy_is_refused(tmp_path: Path) -> None:
    path = verl(tmp_path / "1.jsonl", 1, 1.0)
    (tmp_path / "1.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(PassRatesError, match=r"1\.jsonl and .*1\.jsonl\.gz are there"):
        import_pass_rates(tmp_path)


def test_training_and_validation_of_different_steps_are_not_mixed(tmp_path: Path) -> None:
    verl(tmp_path / "validation" / "0.jsonl", 0, 1.0)
    verl(tmp_path / "train" / "1.jsonl", 1, 0.0)
    with pytest.raises(PassRatesError, match="training and validation: name one of these folders"):
        import_pass_rates(tmp_path, steps=(0, 1))


def details(path: Path, metric: str) -> Path:
    row = {"doc": {"query": "q"}, "model_response": {"text": ["a"] * 8}, "metric": {metric: 0.5}}
    return lines(path / "details_x.jsonl", [row])


@pytest.mark.parametrize(
    ("metric", "n"),
    [
        ("math_pass@1:4_samples", 4),
        ("codegen_pass@1:16", 16),
        ("pass@k:k=1&n=4", 4),
        ("pass@k:n=4&k=1", 4),
        ("avg@n:n=2", 2),
        ("avg@n", 8),
    ],
)
def test_n_of_lighteval_metrics(metric: str, n: int, tmp_path: Path) -> None:
    table = import_pass_rates(details(tmp_path, metric)).table
    assert table.kind == "counts"
    assert table.n.tolist() == [n]
    assert table.means.tolist() == [0.5]


@pytest.mark.parametrize(
    "metric",
    ["pass@10", "mg-pass@8", "g-pass@8_0.5", "math_g-pass@8_0.5", "mmath_g-pass@8", "math_maj@8"],
)
def test_lighteval_metrics_that_are_no_pass_rate(metric: str, tmp_path: Path) -> None:
    with pytest.raises(PassRatesError, match="there are 0 here"):
        import_pass_rates(details(tmp_path, metric))


def test_documents_that_only_look_like_a_dump(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for document in ({"loss": [0.5, 0.2], "step": [1, 2]}, {"eval": {"x": [1, 2]}}, {}):
        path.write_text(json.dumps(document))
        with pytest.raises(PassRatesError, match="no known format"):
            import_pass_rates(path)


def test_damaged_compression_and_too_large_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(gzip.compress(json.dumps([{"prompt": "a", "r": 1}] * 5000).encode()))
    data[15:20] = b"\xff" * 5
    path = tmp_path / "x.json.gz"
    path.write_bytes(bytes(data))
    with pytest.raises(PassRatesError, match="is damaged"):
        list(rows_of(path))

    def too_large(_: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(gzip, "decompress", too_large)
    with pytest.raises(PassRatesError, match="does not fit into memory"):
        list(rows_of(path))


def test_a_byte_order_mark_before_the_first_line(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"prompt": "a", "r": 1}\r\n\r\n{"prompt": "a", "r": 0}'
    for name, data in (("x.jsonl", text), ("x.jsonl.gz", gzip.compress(text))):
        (tmp_path / name).write_bytes(data)
        assert import_pass_rates(tmp_path / name, reward_column="r").table.means.tolist() == [0.5]


def test_the_input_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"prompt": ["a"], "r": [1]}), path)
    before = path.read_bytes()
    (tmp_path / "link.parquet").symlink_to(path)
    for out in (path, tmp_path / "link.parquet"):
        options = ["--reward-column", "r", "--overwrite", "--out", str(out)]
        with pytest.raises(SystemExit, match="2"):
            cli.main(["cache", "import", str(path), *options])
        assert "is what is imported" in capsys.readouterr().err
    assert path.read_bytes() == before


TEMPLATES = {
    "qwen": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "qwen, no special tokens": "system\nYou are Qwen.\nuser\n{}\nassistant\n",
    "llama 3": "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
    "llama 3, no special tokens": "system\n\nToday Date: 26 Jul 2024\n\nuser\n\n{}assistant\n\n",
    "gemma": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "mistral": "<s>[INST] {}[/INST]",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_templates_around_prompts_that_end_each_other(template: str, tmp_path: Path) -> None:
    texts = ["1+1", "11+1", "111+1", "1+11", "What is 7*6", "6", "Émile has 3 été", "user"]
    prompts = [Prompt(prompt_key(text), text, None, {}) for text in texts[:-1]]
    rows = [{"prompt": template.format(text), "r": i % 2} for i, text in enumerate(texts)]
    path = lines(tmp_path / "x.jsonl", rows)
    found = import_pass_rates(path, reward_column="r", match=prompts)
    rates = dict(zip(found.table.keys, found.table.means.tolist(), strict=True))
    assert rates == {prompt.key: float(i % 2) for i, prompt in enumerate(prompts)}
    assert len(found.report.unmatched) == 1
    assert "template" in " ".join(found.report.remarks)


def test_a_number_is_not_cut_into_a_prompt(tmp_path: Path) -> None:
    """Were ``<1`` taken for a template, 12+3= would be found as 2+3=."""
    rows = [{"prompt": f"<1{text}>", "r": 1} for text in ("2+3=", "4+5=")]
    prompts = [Prompt(prompt_key(text), text, None, {}) for text in ("2+3=", "4+5=")]
    with pytest.raises(BasisError, match="none of the 2 prompts is in the data set"):
        import_pass_rates(lines(tmp_path / "x.jsonl", rows), reward_column="r", match=prompts)


def test_evaluations_of_several_steps_are_not_mixed(tmp_path: Path) -> None:
    """SkyRL tells the step by the folder alone."""
    row = {"input_prompt": "q", "output_response": "o", "data_source": "d"}
    for step, score in ((2, 0.0), (10, 1.0)):
        lines(tmp_path / f"global_step_{step}_evals" / "d.jsonl", [{**row, "score": score}])
    with pytest.raises(PassRatesError, match="2 training steps, 2 to 10"):
        import_pass_rates(tmp_path)
    assert import_pass_rates(tmp_path, steps=(10, 10)).table.means.tolist() == [1.0]
    assert import_pass_rates(tmp_path / "global_step_2_evals").table.means.tolist() == [0.0]


def test_two_evalplus_results_of_one_task(tmp_path: Path) -> None:
    for name, task in (("a", "HumanEval/0"), ("b", "Mbpp/2"), ("c", "HumanEval/0")):
        results = {"eval": {task: [{"base_status": "pass", "plus_status": "pass"}]}}
        (tmp_path / f"{name}_eval_results.json").write_text(json.dumps(results))
        if name == "b":
            assert len(import_pass_rates(tmp_path).table) == 2
    with pytest.raises(PassRatesError, match=r"c_eval\S+ and \S+a_eval\S+ both"):
        import_pass_rates(tmp_path)


def test_open_instruct_runs_in_one_folder_are_remarked(tmp_path: Path) -> None:
    row = {"step": 1, "sample_idx": 0, "prompt_tokens": [1], "response_tokens": [2], "reward": 1.0}
    for run in ("one", "two"):
        lines(tmp_path / f"{run}_rollouts_000000.jsonl", [row])
    found = import_pass_rates(tmp_path)
    assert found.table.n.tolist() == [1]
    assert "files of 2 runs, one, two" in found.report.remarks[0]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells a process its size")
def test_a_line_that_memory_does_not_hold(tmp_path: Path) -> None:
    """A kilobyte of gzip may be a gigabyte of one line; the process is given less."""
    path = tmp_path / "x.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(300):
            stream.write(b" " * 2**20)
    code = (
        "import resource, sys\n"
        "from basis_rl.errors import BasisError\n"
        "from basis_rl.passrates.importers import import_pass_rates\n"
        "from basis_rl.passrates.importers.read import first_row\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 2**27, size + 2**27))\n"
        "try:\n"
        "    import_pass_rates(sys.argv[1], reward_column='r')\n"
        "except BasisError as error:\n"
        "    print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "x.jsonl.gz is damaged at line 1 (MemoryError)" in told.stdout, told.stderr


def test_remarks_on_rewards_of_another_scale(tmp_path: Path) -> None:
    def remarks(values: list[Any], **options: Any) -> str:
        rows = [{"prompt": str(i), "r": value} for i, value in enumerate(values)]
        path = lines(tmp_path / "x.jsonl", rows)
        return " ".join(import_pass_rates(path, reward_column="r", **options).report.remarks)

    percent = "--rate-column r --unit percent"
    assert percent in remarks([44.0, 50.0, 12.5, 0.0])
    assert percent not in remarks([44.4, 50.1, 12.5])
    assert percent not in remarks([44.0, 150.0, 1.0])
    assert percent not in remarks([[44.0, 50.0], [1.0, 2.0]])
    assert "--threshold 5 if 10 is a success" in remarks([0, 10, 10])
    assert not remarks([0, 10, 10], threshold=5)
    assert not remarks([0, 0.5, 0.25])


def test_percentages_with_a_sign(tmp_path: Path) -> None:
    path = one(tmp_path, "50%")
    found = import_pass_rates(path, rate_column="r", unit="percent").table
    assert found.means.tolist() == [0.5]
    found = import_pass_rates(path, rate_column="r", unit="percent-failures", n=4).table
    assert found.successes.tolist() == [2]
    with pytest.raises(PassRatesError, match="'50%', in percent: say --unit percent"):
        import_pass_rates(path, rate_column="r")
    with pytest.raises(PassRatesError, match="'50%': drop the sign"):
        import_pass_rates(path, reward_column="r")


@pytest.mark.parametrize(
    ("verifier", "part"),
    [("math", None), ("mine:digit", None), ("math + 0.5 x numbr", "numbr"), ("numbr", "numbr")],
)
def test_a_verifier_that_training_does_not_know(
    verifier: str, part: str | None, tmp_path: Path
) -> None:
    made = {"verifier": verifier}
    found = import_pass_rates(one(tmp_path, 1), reward_column="r", provenance=made)
    told = [text for text in found.report.remarks if "verifier" in text]
    assert len(told) == (part is not None)
    assert all(f"{part!r}" in text and "did you mean 'number'" in text for text in told)


def test_formats_and_files_are_named(tmp_path: Path) -> None:
    path = one(tmp_path, 1, problem="a", difficulty="3/8")
    with pytest.raises(PassRatesError, match="of that name are POLARIS-Project/Polaris-Dataset"):
        import_pass_rates(path, format="polaris")
    with pytest.raises(PassRatesError, match=r"did you mean 'verl'.*hub id of a public data set"):
        import_pass_rates(path, format="verll")
    with pytest.raises(PassRatesError, match="--format POLARIS-Project/Polaris-Dataset-53K"):
        import_pass_rates(path)
    verl(tmp_path / "dump" / "1.jsonl", 1, 1.0)
    lines(tmp_path / "dump" / "notes.jsonl", [{"a": 1}])
    remarks = import_pass_rates(tmp_path / "dump").report.remarks
    assert "1 other file of the folder left out: notes.jsonl" in remarks
