from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab_records import checkpoints, trace

from basis_rl.cli import main
from basis_rl.drawing import picture
from basis_rl.errors import BasisError
from basis_rl.html_page import document, figure, number_table, plain_table
from basis_rl.lab.figures.draw.all import pictures
from basis_rl.lab.figures.page import page, verdict
from basis_rl.lab.figures.paper import FIGURES, Results, Settings, paper_figures
from basis_rl.lab.figures.statements import statements
from basis_rl.lab.read import write_record
from basis_rl.lab.stages import stages_of

SMALL = ("--repeats", "2", "--batches", "20", "--batch-size", "16", "--seed", "1")


@pytest.fixture(scope="module")
def run() -> Results:
    record = trace(prompts=40, visits=24)
    return paper_figures(stages_of(record), record, settings=Settings(2, 40, 20))


@pytest.fixture(scope="module")
def text(run) -> str:
    images = {name: picture(drawn, "svg") for name, drawn in pictures(run).items()}
    return page(
        run, statements(run), images, name="<a> & b", command="basis-rl lab figures x", seconds=3
    )


def test_the_page_needs_nothing_else(text):
    assert "http" not in text
    assert "<script" not in text
    assert "<link" not in text
    sources = re.findall(r'src="([^"]{0,40})', text)
    assert len(sources) == len(FIGURES)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)


def test_the_page_tells_every_statement_number_and_setting(text, run):
    found = statements(run)
    assert len(found) == 19
    for statement in found:
        assert statement.claim in text
        assert statement.rule.replace("'", "&#x27;") in text
    counts = [sum(s.holds is v for s in found) for v in (True, False, None)]
    words = re.search(r"Of 19 statements .*?, (\d+) hold .*? and (\d+) do not", text)
    assert words is not None
    assert [int(number) for number in words.groups()] == counts[:2]
    assert text.count("<details>") == len(FIGURES)
    assert f"{run.accuracy[0].mse:.4f}" in text
    assert "basis-rl lab figures x" in text
    assert "oracle variance" in text
    assert "pools 4 neighbouring visits" in text


def test_names_are_escaped(text):
    assert "&lt;a&gt; &amp; b" in text
    assert "<a> & b" not in text
    assert "<i>" not in plain_table({"<i>": "<i>"}, "<i>")
    assert "<i>" not in number_table(["<i>"], [["<i>"]], caption="<i>")
    assert "<i>" not in figure(b"", "<i>") + document("<i>", [])


def test_every_picture_has_labels_and_a_legend(run):
    drawn = pictures(run)
    assert set(drawn) == set(FIGURES)
    for name, one in drawn.items():
        shown = [axes for axes in one.axes if axes.get_visible()]
        assert all(axes.get_xlabel() for axes in shown), name
        assert shown[0].get_ylabel(), name
        assert one.legends, name
        assert [t.get_text() for t in one.legends[0].get_texts()], name


def test_lines_of_a_picture_differ_in_more_than_colour(run):
    for name, one in pictures(run).items():
        for axes in one.axes:
            handles, labels = axes.get_legend_handles_labels()
            looks = set()
            for handle in handles:
                line = handle[0] if isinstance(handle, tuple) else handle
                dash = line._dash_pattern if line.get_linestyle() != "None" else None
                looks.add((line.get_marker(), str(dash), line.get_markerfacecolor() == "white"))
            assert len(looks) == len(labels), (name, labels)


def test_a_picture_is_the_same_bytes_again(run):
    first, second = pictures(run)["3a"], pictures(run)["3a"]
    for kind in ("svg", "png", "pdf"):
        assert picture(first, kind) == picture(second, kind)
    with pytest.raises(BasisError, match="of kind 'gif'"):
        picture(first, "gif")


def test_no_statement_is_no_verdict():
    assert "no statement" in verdict([])


def test_the_command_draws_a_run(tmp_path, capsys):
    path, out = tmp_path / "run.parquet", tmp_path / "out"
    drawn = ("3a", "3b", "3d", "8")
    chosen = [word for name in drawn for word in ("--figure", name)]
    write_record(trace(prompts=24, visits=20), path)
    with pytest.raises(SystemExit) as end:
        main(["lab", "figures", str(path), "--out", str(out), *SMALL, *chosen])
    assert end.value.code == 0
    expected = {f"figure-{name}.{kind}" for name in drawn for kind in ("csv", "svg", "pdf", "png")}
    expected |= {"figure-3a-parts.csv", "statements.csv", "figures.html"}
    assert {file.name for file in out.iterdir()} == expected
    with (out / "statements.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    told = capsys.readouterr()
    assert len(rows) == 13
    assert all(row["claim"] in told.out for row in rows)
    assert str(out / "figures.html") in told.err


def test_the_command_draws_one_figure_of_checkpoints(tmp_path, capsys):
    records, table = checkpoints(prompts=20)
    paths = [tmp_path / f"{record.name}.parquet" for record in records]
    for record, path in zip(records, paths, strict=True):
        write_record(record, path)
    table.save(tmp_path / "rates.parquet")
    rates = ["--pass-rates", str(tmp_path / "rates.parquet")]
    names = [*map(str, paths), *rates, "--out", str(tmp_path / "out"), *SMALL]
    with pytest.raises(SystemExit) as end:
        main(["lab", "figures", *names, "--figure", "3a", "--figure", "8"])
    assert end.value.code == 0, capsys.readouterr().err
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"figure-3a.csv", "figure-8.csv", "figures.html"} <= files
    assert "figure-2.csv" not in files
    with (tmp_path / "out" / "figure-8.csv").open() as lines:
        assert [row["stage"] for row in csv.DictReader(lines)] == ["early", "middle", "late"]


def test_the_command_refuses_in_one_line(tmp_path, capsys):
    path = tmp_path / "run.parquet"
    write_record(trace(prompts=24, visits=20), path)
    taken = tmp_path / "taken"
    taken.write_text("")
    for arguments, words in (
        ([str(path), "--out", str(taken)], "cannot make the folder"),
        ([str(tmp_path / "none"), "--out", str(tmp_path)], "none"),
        (
            [str(path), "--batch-size", "64", "--out", str(tmp_path)],
            "choose --batch-size 8, or 24 at most",
        ),
    ):
        with pytest.raises(SystemExit) as end:
            main(["lab", "figures", *arguments, "--figure", "3a"])
        assert end.value.code == 2
        error = capsys.readouterr().err.strip()
        assert words in error
        assert "\n" not in error


def test_numbers_need_no_matplotlib():
    code = (
        "import sys; sys.modules['matplotlib'] = None; import basis_rl.lab.figures.statements, "
        "basis_rl.lab.figures.draw.all, basis_rl.lab.figures.page, basis_rl.cli.lab_figures"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_modules_are_small():
    import basis_rl.lab.figures as package

    for file in Path(package.__file__).parent.rglob("*.py"):
        assert len(file.read_text().splitlines()) <= 300, file
