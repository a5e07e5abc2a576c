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
from shared_data import shared_data

from basis_rl.errors import PromptsError
from basis_rl.passrates import prompt_key
from basis_rl.prompts import Prompt, check_data, column_value, load_prompts
from basis_rl.prompts.columns import columns_there_are

ROWS = [
    {"prompt": "1+1=", "answer": "2", "task": "sum", "id": 7},
    {"prompt": "3-1=", "answer": "2", "task": "difference", "id": 8},
    {"prompt": "2*2=", "answer": "4", "task": "product", "id": 9},
]
CHAT = [{"role": "user", "content": "Hi"}]


def write_jsonl(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def jsonl(tmp_path: Path) -> str:
    return write_jsonl(tmp_path / "prompts.jsonl", ROWS)


def error_of(*arguments: Any, **options: Any) -> str:
    with pytest.raises(PromptsError) as caught:
        load_prompts(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_file_format_gives_the_same_prompts(tmp_path: Path, jsonl: str) -> None:
    listed = tmp_path / "prompts.json"
    listed.write_text(json.dumps(ROWS))
    zipped = tmp_path / "prompts.jsonl.gz"
    zipped.write_bytes(gzip.compress(Path(jsonl).read_bytes()))
    zipped_list = tmp_path / "prompts.json.gz"
    zipped_list.write_bytes(gzip.compress(listed.read_bytes()))
    table = tmp_path / "prompts.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), table)

    expected = load_prompts(jsonl, source_column="task")
    assert expected[0] == Prompt(prompt_key("1+1="), "1+1=", "sum", ROWS[0])
    assert [prompt.columns for prompt in expected] == ROWS
    for path in (listed, zipped, zipped_list, table):
        assert load_prompts(str(path), source_column="task") == expected


def test_key_column_and_limit(jsonl: str) -> None:
    prompts = load_prompts(jsonl, key_column="id", limit=2)
    assert [prompt.key for prompt in prompts] == ["7", "8"]
    assert [prompt.source for prompt in prompts] == [None, None]


def test_where_keeps_matching_rows(jsonl: str) -> None:
    kept = load_prompts(jsonl, where={"task": ["sum", "product"], "answer": "2"})
    assert [prompt.prompt for prompt in kept] == ["1+1="]
    message = error_of(jsonl, where={"task": "root"})
    assert "none that fits {'task': 'root'} (task has 'difference', 'product', 'sum'): " in message
    many = write_jsonl(Path(jsonl).with_name("many.jsonl"), [{"i": i} for i in range(9)])
    assert "(i has 0, 1, 2, 3, 4, 5, 6, 7, …)" in error_of(many, where={"i": 9})
    # The second condition is looked at where the first one holds.
    message = error_of(jsonl, where={"task": "sum", "answer": "3"})
    assert "(task has 'difference', 'product', 'sum'; answer has '2')" in message
    assert "did you mean 'task'" in error_of(jsonl, where={"tasks": "sum"})


def test_template_fills_columns_and_keeps_braces(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "q.jsonl", [{"q": "1+1 {x}", "n": {"digits": 2}}])
    template = r"Q: {q}, {n.digits} digits, \boxed{}, {{set}}" + "\nA:"
    (prompt,) = load_prompts(data, template=template)
    assert prompt.prompt == "Q: 1+1 {x}, 2 digits, \\boxed{}, {set}\nA:"
    assert prompt.key == prompt_key(prompt.prompt)


def test_template_errors(jsonl: str, tmp_path: Path) -> None:
    assert "did you mean 'answer'" in error_of(jsonl, template="{answers}")
    nested = write_jsonl(tmp_path / "n.jsonl", [{"prompt": CHAT}])
    assert "use a column of text or numbers" in error_of(nested, template="{prompt}")


def test_lists_in_a_template(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "o.jsonl", [{"o": ["x", 2]}, {"o": list("abc"), "o:letters": 1}])
    first, second = load_prompts(data, template="{o:letters}\n{o.1}")
    assert first.prompt == "A. x\nB. 2\n2"
    assert second.prompt == "1\nb"  # a column of that name comes first
    assert "no column 'o.2'" in error_of(data, template="{o.2}")
    message = error_of(data, template="{o}")
    assert "{o.0} for one item, or {o:letters} for lines A., B., …" in message
    for bad in ("text", [], [["x"]], ["x"] * 27):
        other = write_jsonl(tmp_path / "bad.jsonl", [{"o": bad}])
        assert "no column 'o:letters'" in error_of(other, template="{o:letters}")


def test_mmlu_pro() -> None:
    data = shared_data("benchmarks/mmlu_pro.jsonl.gz")
    loaded = load_prompts(str(data), template="{question}\n{options:letters}", limit=500)
    for prompt in loaded:
        options = prompt.columns["options"]
        right = f"\n{prompt.columns['answer']}. {options[prompt.columns['answer_index']]}"
        assert right in prompt.prompt
    assert len({len(prompt.columns["options"]) for prompt in loaded}) > 1


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{the question}", "template field {the question}: "),
        ("{the-prompt}", "template field {the-prompt}: "),
        ("{prompt:>9}", "did you mean 'prompt'"),
        ("{prompt!r}", "did you mean 'prompt'"),
        ("{ prompt}", "did you mean 'prompt'"),
        (r"\frac{1}{2} {prompt}", "write {{ and }} for braces"),
        ("Q: {prompt", "lone brace at 'Q: {'"),
        ("prompt}", "lone brace at 'prompt}'"),
    ],
)
def test_no_field_of_a_template_stays_as_it_is(jsonl: str, template: str, words: str) -> None:
    assert words in error_of(jsonl, template=template)


def test_columns_of_any_name_and_literal_braces(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "names.jsonl", [{"the question": "1+1", "a-b": 2}])
    (prompt,) = load_prompts(data, template=r"{the question}{a-b} \frac{{1}}{{2}} {{{a-b}}}")
    assert prompt.prompt == r"1+12 \frac{1}{2} {2}"


def test_system_and_chat_make_messages(jsonl: str) -> None:
    user = {"role": "user", "content": "1+1="}
    system = {"role": "system", "content": "Be brief."}
    assert load_prompts(jsonl)[0].prompt == "1+1="
    assert load_prompts(jsonl, chat=True)[0].prompt == [user]
    assert load_prompts(jsonl, system="Be brief.")[0].prompt == [system, user]
    assert "needs chat prompts" in error_of(jsonl, system="Be brief.", chat=False)


def test_chat_rows(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "chat.jsonl", [{"prompt": CHAT}])
    assert load_prompts(data)[0].prompt == CHAT
    assert "chat messages" in error_of(data, chat=False)
    own = write_jsonl(tmp_path / "own.jsonl", [{"prompt": [{"role": "system", "content": "x"}]}])
    assert "system message of its own" in error_of(own, system="y")


def test_repeated_prompts_are_kept_once_and_counted(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "twice.jsonl", [*ROWS, *ROWS[:2]])
    with pytest.warns(UserWarning, match="2 of 5 rows repeat"):
        prompts = load_prompts(data)
    assert [prompt.prompt for prompt in prompts] == [row["prompt"] for row in ROWS]


def test_repeats_with_another_answer_are_shown(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    other = [{**ROWS[0], "answer": "3"}, {**ROWS[1], "answer": None}, {**ROWS[2], "id": 4}]
    data = write_jsonl(tmp_path / "other.jsonl", [*ROWS, *other])
    prompts = load_prompts(data)
    assert [prompt.columns for prompt in prompts] == ROWS
    first, second = (str(warning.message) for warning in recwarn)
    assert "3 of 6 rows repeat" in first
    assert "2 of these repeats have another answer" in second
    assert f"(first: {data}, line 4: answer '3', before '2')" in second
    recwarn.clear()
    load_prompts(data, answer_column="task")
    assert len(recwarn) == 1


def test_one_key_for_two_prompts_is_refused(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "keys.jsonl", [{**ROWS[0], "id": 1}, {**ROWS[1], "id": 1}])
    message = error_of(data, key_column="id")
    assert "line 2" in message
    assert "'1' is also that of another prompt" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "a"}\n{"prompt": \n', ["line 2", "damaged"]),
        ('{"prompt": "a"}\n[1]\n', ["line 2", "a list", "named columns"]),
        ('{"prompt": "a"}\n\n"b"\n', ["line 3", "a text"]),
        ("", ["no rows"]),
        ("\n\n", ["no rows"]),
        ('{"prompt": ""}\n', ["line 1", "empty"]),
        ('{"prompt": 3}\n', ["line 1", "3 (int)", "list of messages"]),
        ('{"prompt": []}\n', ["a prompt is a text"]),
        ('{"prompt": [{"role": "user"}]}\n', ["role and content"]),
        ('{"promt": "a"}\n', ["no column 'prompt'", "did you mean 'promt'"]),
    ],
)
def test_bad_jsonl(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    message = error_of(str(path))
    assert str(path) in message
    for word in words:
        assert word in message


def test_bad_json(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"prompt": "a"}')
    assert "list of objects" in error_of(str(path))
    path.write_text('[{"prompt": "a"},\n{"prompt": ]')
    assert "line 2" in error_of(str(path))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "caf\xe9"}\n')
    assert "damaged at line 1" in error_of(str(path))


def test_files_cut_short_are_named(tmp_path: Path, jsonl: str) -> None:
    zipped = tmp_path / "cut.jsonl.gz"
    whole = gzip.compress(Path(jsonl).read_bytes() * 50)
    table = tmp_path / "cut.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), table)
    rows = table.read_bytes()
    for fraction in (0.01, 0.3, 0.6, 0.9, 0.99):
        zipped.write_bytes(whole[: max(int(len(whole) * fraction), 1)])
        assert "damaged" in error_of(str(zipped))
        table.write_bytes(rows[: max(int(len(rows) * fraction), 1)])
        assert "damaged" in error_of(str(table))


def test_missing_files_folders_and_unknown_suffixes(tmp_path: Path, jsonl: str) -> None:
    message = error_of(str(tmp_path / "promts.jsonl"))
    assert f"did you mean {jsonl}?" in message
    assert "check the path" in error_of(str(tmp_path / "no" / "prompts.jsonl"))
    assert "prompts.jsonl" in error_of(str(tmp_path))
    table = tmp_path / "prompts.csv"
    table.write_text("prompt\n")
    assert ".parquet" in error_of(str(table))
    assert "hub id owner/name" in error_of("what is this?")


def test_missing_columns_list_what_there_is(jsonl: str) -> None:
    message = error_of(jsonl, prompt_column="question")
    assert (
        "the columns are prompt, answer, task, id; name one as prompt column (--prompt" in message
    )
    assert "did you mean" not in message
    assert "did you mean" not in columns_there_are({"question": 1}, "solution")
    assert "no column 'key'" in error_of(jsonl, key_column="key")
    assert "did you mean 'task'" in error_of(jsonl, source_column="tsk")


def test_keys_and_sources_must_be_names(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "null.jsonl", [{**ROWS[0], "task": None, "id": 1.5}])
    assert "texts or integers" in error_of(data, source_column="task")
    assert "texts or integers" in error_of(data, key_column="id")


def test_limits(jsonl: str) -> None:
    assert "limit is 0" in error_of(jsonl, limit=0)
    kept = load_prompts(jsonl, limit=2, where={"task": ["difference", "product"]})
    assert [prompt.prompt for prompt in kept] == ["3-1=", "2*2="]


def test_dotted_columns() -> None:
    row = {"a": {"b": {"c": 1}}, "a.b": 2}
    assert column_value(row, "a.b.c") == 1
    assert column_value(row, "a.b") == 2
    assert column_value({"a": [{"b": [3, 4]}]}, "a.0.b.1") == 4
    for bad in ("a.1", "a.-1", "a.x", "a.00"):
        with pytest.raises(KeyError):
            column_value({"a": [5]}, bad)
    with pytest.raises(KeyError):
        column_value(row, "a.c")


def test_reasoning_gym_is_the_same_every_time() -> None:
    data = "reasoning-gym:chain_sum?size=5&seed=3&min_terms=2&max_terms=2"
    prompts = load_prompts(data)
    assert prompts == load_prompts(data)
    assert prompts != load_prompts(data.replace("seed=3", "seed=4"))
    assert len(prompts) == 5
    first = prompts[0]
    assert first.source == "chain_sum"
    assert first.prompt == first.columns["question"] == first.columns["prompt"]
    assert first.columns["metadata"]["num_terms"] == 2
    (filled,) = load_prompts(data, template="{metadata.expression}=", limit=1)
    assert filled.prompt == f"{first.columns['metadata']['expression']}="


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("reasoning-gym:chain_sums", "did you mean 'chain_sum'"),
        ("reasoning-gym:zzzzzzzz", "reasoning_gym.factory.DATASETS"),
        ("reasoning-gym:", "no task ''"),
        ("reasoning-gym:chain_sum?min_term=2", "did you mean 'min_terms'"),
        ("reasoning-gym:chain_sum?min_terms=-1", "min_terms must be positive"),
        ("reasoning-gym:chain_sum?min_terms=two", "refuses its options"),
        ("reasoning-gym:chain_sum?size=0", "size is 0"),
        ("reasoning-gym:chain_sum?size=many", "size is 'many'"),
        ("reasoning-gym:chain_sum?size", "name=value"),
        ("reasoning-gym:chain_sum?size=2&size=3", "gives size twice"),
    ],
)
def test_bad_reasoning_gym_names(data: str, words: str) -> None:
    assert words in error_of(data)


def test_hub_data_sets_go_through_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    calls = []

    def load_dataset(name: str, config: str | None, split: str) -> datasets.Dataset:
        calls.append((name, config, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    prompts = load_prompts("openai/gsm8k:main", split="test")
    assert calls == [("openai/gsm8k", "main", "test")]
    assert [prompt.columns for prompt in prompts] == ROWS


def test_hub_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def load_dataset(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("cannot\nreach the hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    message = error_of("owner/name")
    assert "cannot reach the hub" in message
    assert "check the name and the connection" in message


def test_check_data_reads_no_rows(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("no json")
    check_data(str(damaged))
    check_data("owner/name:config")
    for name in (str(tmp_path / "missing.jsonl"), "reasoning-gym:nothing", "two words"):
        with pytest.raises(PromptsError):
            check_data(name)


def test_gsm8k() -> None:
    prompts = load_prompts(
        str(shared_data("train/gsm8k_test.jsonl.gz")), template="Question: {question}\nAnswer:"
    )
    assert len(prompts) == 1319
    assert len({prompt.key for prompt in prompts}) == 1319
    assert prompts[0].prompt.startswith("Question: Janet")
    assert prompts[0].columns["answer"].endswith("#### 18")


def test_math_in_verls_schema() -> None:
    prompts = load_prompts(
        str(shared_data("train/math_train.parquet")),
        source_column="data_source",
        where={"level": ["Level 3", "Level 4", "Level 5"]},
    )
    assert len(prompts) == 5586
    assert {prompt.source for prompt in prompts} == {"TianHongZXY/MATH"}
    assert prompts[0].prompt[0]["role"] == "user"
    assert column_value(prompts[0].columns, "reward_model.ground_truth.target") == "0"


def test_pandas_and_torch_are_not_imported(jsonl: str) -> None:
    code = (
        "import sys; from basis_rl.prompts import load_prompts; "
        f"load_prompts({jsonl!r}); "
        "assert not {'pandas', 'torch', 'datasets', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
