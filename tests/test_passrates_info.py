"""`basis-rl cache info`: text, histogram, picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_rl import cli
from basis_rl.passrates import PassRates, Provenance, prompt_hash
from basis_rl.passrates.inspect.describe import bars, describe
from basis_rl.passrates.inspect.histogram import Bin, bins


def counts(n: Any = 4) -> PassRates:
    return PassRates.from_counts(
        ["a", "b", "c", "d"],
        [0, 1, 1, 4],
        n,
        sources=["small", "large", "large", "large"],
        provenance=Provenance(model="m", extra={"tokens": 3200, "note": ["é"]}),
    )


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_text_of_counts() -> None:
    text = describe(counts(), "t.parquet")
    lines = text.splitlines()
    assert lines[0] == "t.parquet: 4 prompts, 16 rollouts (4 each), counts of successes"
    assert "pass rate: 0.3750 (standard deviation over prompts 0.3750)" in lines[1]
    assert "prompts at exactly 0: 25.0%, at exactly 1: 25.0%" in lines[2]
    assert "tokens: 3,200 (200 a rollout)" in lines[3]
    assert "  1/4  2   50.0% ████████████████████████████████████████" in lines
    assert "  2/4  0    0.0%" in lines
    table = lines[lines.index("  source  prompts  rollouts    mean    at 0    at 1") :]
    assert table[1].split() == ["large", "3", "12", "0.5000", "0.0%", "33.3%"]
    assert table[2].split() == ["small", "1", "4", "0.0000", "100.0%", "0.0%"]
    assert '  note: ["é"]' in lines
    assert "  model: m" in lines


def test_text_of_rates_rewards_and_mixed_n() -> None:
    rates = PassRates.from_rates(["a", "b"], [0.0, 0.35], prompt_hashes=["", prompt_hash("b")])
    text = describe(rates, "r")
    assert "2 prompts, rates of an unknown number of rollouts" in text
    assert "prompts with a hash of their text: 1" in text
    assert [line.split()[:2] for line in text.splitlines() if "exactly 0 " in line] == [
        ["exactly", "0"]
    ]
    rewards = PassRates.from_rewards(["a", "b"], [[0.5], [-1.0, 2.5]])
    assert "3 rollouts (1 to 2 each), rewards" in describe(rewards, "w")
    assert "exactly 0 " not in describe(PassRates.from_rewards(["a"], [[-1.0]]), "w")
    assert "exactly 1" in describe(counts([4, 4, 4, 5]), "w")


@given(
    st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.1, 0.5]), min_size=1, max_size=50),
    st.sampled_from(["rates", "rewards", "shifted", "counts"]),
)
def test_every_prompt_is_in_one_bin(values: list[float], kind: str) -> None:
    keys = range(len(values))
    table = {
        "rates": lambda: PassRates.from_rates(keys, values),
        "rewards": lambda: PassRates.from_rewards(keys, [[v] for v in values]),
        "shifted": lambda: PassRates.from_rewards(keys, [[3 * v - 1] for v in values]),
        "counts": lambda: PassRates.from_counts(keys, np.rint(np.multiply(values, 7)), 7),
    }[kind]()
    found = bins(table)
    assert sum(b.count for b in found) == len(values)
    ends = {b.low: b.count for b in found if b.is_end}
    if ends:
        assert ends == {end: int((table.means == end).sum()) for end in (0.0, 1.0)}
    for b in found:
        if b.high == b.low:
            assert b.count == int((table.means == b.low).sum())


@pytest.mark.parametrize("blocks", [True, False])
def test_bars(blocks: bool) -> None:
    found = [Bin(0, 0, "0/2", 0), Bin(0, 0, "1/2", 1), Bin(0, 0, "2/2", 10_000)]
    lines = bars(found, blocks=blocks, width=60)
    assert len(lines[0].split()) == 3  # nothing is drawn for nothing
    assert lines[1].endswith("▏" if blocks else "#")
    assert lines[2].endswith(("█" if blocks else "#") * 30)
    assert max(map(len, lines)) <= 60
    assert all(len(line) <= 40 for line in bars(found, blocks=blocks, width=1))


def test_many_sources_and_long_notes_are_cut() -> None:
    keys = [str(i) for i in range(40)]
    noted = Provenance(extra={"note": "x" * 1000})
    table = PassRates.from_counts(keys, [1] * 40, 2, sources=keys, provenance=noted)
    text = describe(table, "t")
    assert "  and 20 more sources" in text
    assert max(map(len, text.splitlines())) < 230


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    counts().save(path)
    done = subprocess.run(
        [sys.executable, "-m", "basis_rl", "cache", "info", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b"####" in done.stdout
    assert b"\\xe9" in done.stdout
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    piped = subprocess.run(
        [sys.executable, "-m", "basis_rl", "cache", "info", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert "█" in piped.stdout.decode()
    assert b"\x1b" not in piped.stdout


def test_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    counts().save(tmp_path / "t.parquet")
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path in paths:
        assert run(["cache", "info", str(tmp_path / "t.parquet"), "--png", str(path)]) == 0
    assert paths[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert "wrote" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["counts", "many values", "mixed", "rates", "shifted", "one"])
def test_pictures_show_every_prompt(kind: str) -> None:
    pytest.importorskip("matplotlib")
    from basis_rl.passrates.inspect.picture import draw

    rng = np.random.default_rng(0)
    keys = range(300)
    table = {
        "counts": lambda: PassRates.from_counts(keys, rng.integers(0, 9, 300), 8),
        "many values": lambda: PassRates.from_counts(keys, rng.integers(0, 65, 300), 64),
        "mixed": lambda: PassRates.from_counts(keys, [1] * 300, rng.integers(1, 9, 300)),
        "rates": lambda: PassRates.from_rates(keys, rng.random(300)),
        "shifted": lambda: PassRates.from_rewards(keys, list(rng.normal(size=(300, 2)))),
        "one": lambda: PassRates.from_counts(["a"], [1], 3),
    }[kind]()
    axes = draw(table, name="folder/t.parquet").axes[0]
    heights = [bar.get_height() for bar in axes.containers for bar in bar]
    assert sum(heights) == len(table)
    assert axes.get_title("left").startswith("t.parquet\n")
    shown = [text.get_text() for text in axes.texts]
    assert f"mean {table.means.mean():.3f}" in shown
    if kind != "shifted":
        assert f"{(table.means == 0).mean():.1%} at 0" in shown
        assert f"{(table.means == 1).mean():.1%} at 1" in shown
        assert len({bar.get_hatch() for bars in axes.containers for bar in bars}) == 2


@pytest.mark.parametrize(
    ("png", "words"),
    [("t.jpg", "is no .png file"), ("none/t.png", "create it first"), ("t.png", "matplotlib")],
)
def test_pictures_that_cannot_be_written(
    png: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts().save(tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)
    if words == "matplotlib":
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["cache", "info", "t.parquet", "--png", png]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert words in output.err


def test_rates_that_are_edges_of_bins() -> None:
    """0.3 is right of its own edge, as are 0.6 and 0.7, which steps of 0.1 miss."""
    rates = [k / 10 for k in range(1, 10)]
    found = bins(PassRates.from_rates([str(rate) for rate in rates], rates))
    assert [b.count for b in found] == [0, 0, *[1] * 9, 0]
    assert [b.low for b in found[2:-1]] == rates


def test_means_that_are_all_the_same() -> None:
    found = bins(PassRates.from_rewards(["a", "b"], [[-1.0], [-1.0]]))
    assert [(b.low, b.high, b.label, b.count) for b in found] == [(-1.0, -1.0, "-1.00", 2)]


def test_a_rollout_and_long_sources() -> None:
    sources = ["a/long/path/" * 9 + name for name in ("math", "code")]
    text = describe(PassRates.from_counts(["a", "b"], [1, 0], 1, sources=sources), "x")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "path/math " in text
    assert "path/code " in text
    assert "1 prompt, 1 rollout (1 each)" in describe(PassRates.from_counts(["a"], [1], 1), "x")


def test_tokens_are_of_the_sampled_completions() -> None:
    def tokens(**extra: Any) -> list[str]:
        noted = Provenance(extra={"tokens": 1963, **extra})
        table = PassRates.from_counts(["a"], [1], 1440, provenance=noted)
        return [line for line in describe(table, "t").splitlines() if "  tokens: 1,963 (" in line]

    [line] = tokens(completions=800, absorbed=[{}])
    assert line == "  tokens: 1,963 (2.5 a completion, of 800 that were sampled)"
    assert tokens(completions=1440) == ["  tokens: 1,963 (1.4 a rollout)"]
    assert tokens(built_from={}) == tokens(absorbed=[{}]) == []


def test_entries_within_entries_have_lines_of_their_own() -> None:
    build = {f"setting {i}": "x" * 20 for i in range(30)} | {"options": {"dtype": "auto"}}
    noted = Provenance(extra={"build": build, "absorbed": [{"steps": [0, 9]}, {"steps": [10, 19]}]})
    lines = describe(PassRates.from_counts(["a"], [1], 2, provenance=noted), "t").splitlines()
    start = lines.index("  build:")
    assert lines[start + 30] == f"    setting 29: {'x' * 20}"
    assert lines[start + 31 : start + 33] == ["    options:", "      dtype: auto"]
    assert lines[lines.index("  absorbed 2:") + 1] == "    steps: [10, 19]"
