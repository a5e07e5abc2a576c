"""Public data sets that ship pass rates: which columns hold them, and in which unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.direction import holds_failures
from basis_rl.passrates.importers.format import COMMON, Columns, Format, Rows, source_of
from basis_rl.passrates.importers.formats.columns import PROMPT_COLUMNS, key_and_prompt
from basis_rl.passrates.importers.record import Notes, Options, Record, Row
from basis_rl.passrates.importers.values import (
    Measured,
    measured,
    number,
    optional,
    value_of,
    whole,
)


@dataclass(frozen=True)
class Rate:
    """A column of pass rates.

    ``unit`` is one of `values.UNITS`, ``numbered`` (rewards in columns ``<column>0``, ``…1``) or
    ``completions`` (a list of objects with ``is_correct``).
    """

    column: str
    unit: str
    n: int | None = None
    n_column: str | None = None
    made_by: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PublicSet:
    """A data set by its names on the hub.

    ``weak_to_strong`` names columns of counts, from the weakest model's to the strongest's, by
    which `holds_failures` decides what the counts count.
    """

    names: tuple[str, ...]
    rates: tuple[Rate, ...]
    source_column: str | None = None
    weak_to_strong: tuple[str, ...] = ()
    remark: str = ""


def _model(name: str, **settings: Any) -> dict[str, Any]:
    return {"model": name, **settings}


_R1 = "deepseek-ai/DeepSeek-R1-Distill-Qwen-{}B"
_SIZES = ("1.5", "7", "32")
_SKYWORK = "extra_info.model_difficulty.DeepSeek-R1-Distill-Qwen-{}B"
# The renamed columns spell the smallest model's name out and shorten the others'.
_PRIME_SKYWORK = tuple(
    f"info.difficulty_deepseek_r1_{name}b" for name in ("distill_qwen_1.5", "qwen_7", "qwen_32")
)
_LIME = _model("Qwen/Qwen2.5-Math-7B", temperature=0.6, top_p=0.9, max_tokens=4096)
_CORNELL = tuple(
    f"Cornell-AGI/{task}_size_qwen2.5_{size}_eval"
    for task in ("gsm8k", "math")
    for size in ("1.5b", "3b", "7b")
)
PUBLIC = (
    PublicSet(
        ("SynthLabsAI/Big-Math-RL-Verified",),
        (Rate("llama8b_solve_rate", "rate", made_by=_model("meta-llama/Llama-3.1-8B")),),
        "source",
    ),
    PublicSet(
        ("POLARIS-Project/Polaris-Dataset-53K",),
        (Rate("difficulty", "fraction", made_by=_model(_R1.format(7))),),
    ),
    PublicSet(
        ("Skywork/Skywork-OR1-RL-Data",),
        tuple(
            Rate(_SKYWORK.format(size), "count", 16, made_by=_model(_R1.format(size)))
            for size in _SIZES
        ),
        "data_source",
        tuple(_SKYWORK.format(size) for size in _SIZES),
    ),
    PublicSet(
        ("PrimeIntellect/Skywork-OR1-RL-Data",),
        tuple(
            Rate(column, "count", 16, made_by=_model(_R1.format(size)))
            for column, size in zip(_PRIME_SKYWORK, _SIZES, strict=True)
        ),
        "info.data_source",
        _PRIME_SKYWORK,
    ),
    PublicSet(
        ("justus27/skywork-difficult",),
        tuple(
            Rate(f"solve_rate_qwen_r1_distill_{short}b", "rate", made_by=_model(_R1.format(size)))
            for short, size in zip(("1", "7", "32"), _SIZES, strict=True)
        ),
    ),
    PublicSet(
        ("PrimeIntellect/INTELLECT-2-RL-Dataset",),
        (Rate("solve_rate_qwen_r1_distill_7b", "rate", made_by=_model(_R1.format(7))),),
    ),
    PublicSet(
        ("PrimeIntellect/INTELLECT-3-RL",),
        tuple(
            Rate(f"avg@8_qwen3_4b_{kind}_2507", "rate", 8, made_by=_model(f"Qwen/Qwen3-4B-{name}"))
            for kind, name in (("thinking", "Thinking-2507"), ("instruct", "Instruct-2507"))
        ),
    ),
    PublicSet(
        ("LLM360/guru-RL-92k",),
        (
            Rate("qwen2.5_7b_pass_rate", "rate"),
            Rate("qwen3_30b_pass_rate", "rate"),
        ),
        "data_source",
        remark="the column names the model without saying which of its variants it was: --model",
    ),
    PublicSet(
        ("nvidia/OpenMathReasoning",),
        (Rate("pass_rate_72b_tir", "rate", made_by=_model("Qwen/Qwen2.5-Math-72B-Instruct")),),
        "problem_source",
        remark="these rates are of a model that could run code, another policy than one without; "
        "its card says 32 generations each: --n 32 keeps them as counts",
    ),
    PublicSet(
        ("allenai/Dolci-Think-RL-7B",),
        (Rate("total_correct_rollouts", "count", n_column="total_rollouts"),),
        "dataset",
    ),
    PublicSet(
        tuple(f"lime-nlp/{n}_Difficulty" for n in ("MATH", "GSM8K", "DeepScaleR", "orz_math")),
        (Rate("difficulty", "percent-failures", 128, made_by=_LIME),),
    ),
    PublicSet(_CORNELL, (Rate("eval_", "numbered", made_by={"temperature": 1.0}),)),
    PublicSet(("MYCX/gendata_dapo",), (Rate("completions", "completions"),)),
)


def find_public(name: str) -> PublicSet | None:
    """Public data set of a hub id, whatever its case; a configuration after a colon is ignored."""
    wanted = name.partition(":")[0].lower()
    for entry in PUBLIC:
        if wanted in (known.lower() for known in entry.names):
            return entry
    return None


def sets_with(columns: Columns) -> list[str]:
    """Hub ids of the public data sets whose columns of rates are all in a row."""
    return [
        entry.names[0]
        for entry in PUBLIC
        if all(optional(columns, rate.column) is not None for rate in entry.rates)
    ]


def format_of(entry: PublicSet) -> Format:
    """The data set as a format."""

    def rows(some: Rows, options: Options, notes: Notes) -> Iterator[Record]:
        return _rows(entry, some, options, notes)

    takes = COMMON - {"reward_column"} | {"rate_column", "unit", "n"}
    if entry.weak_to_strong:
        takes |= {"direction"}
    return Format(entry.names[0], lambda columns: False, rows, takes=takes)


def _rows(entry: PublicSet, rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    rate: Rate | None = None
    failures = False
    for row in rows:
        if rate is None:
            rate = _rate(entry, row, options)
            notes.know(row.place, **rate.made_by)
            if entry.remark:
                notes.remark(entry.remark)
            if entry.weak_to_strong and rate.unit == "count":
                failures = holds_failures(rows, entry.weak_to_strong, options, notes)
        yield _record(row, rate, failures, entry, options)


def _rate(entry: PublicSet, row: Row, options: Options) -> Rate:
    """The column that the caller names, or the only one."""
    by_name = {rate.column: rate for rate in entry.rates}
    if options.rate_column is not None and options.rate_column not in by_name:
        return Rate(options.rate_column, options.unit or "rate", options.n)
    if options.rate_column is not None or len(entry.rates) == 1:
        rate = by_name.get(options.rate_column or entry.rates[0].column, entry.rates[0])
        _refuse_contradiction(rate, entry, options)
        return rate
    models = [rate.made_by.get("model", "which variant is unknown") for rate in entry.rates]
    listed = ", ".join(
        f"{rate.column} ({model})" for rate, model in zip(entry.rates, models, strict=True)
    )
    raise PassRatesError(
        f"{entry.names[0]} has the pass rates of several models: name one with --rate-column: "
        f"{listed}"
    )


def _refuse_contradiction(rate: Rate, entry: PublicSet, options: Options) -> None:
    """Refuse a unit or an n that the data set is known not to have."""
    known_n = rate.n if rate.n_column is None else f"in column {rate.n_column!r}"
    for name, given, known in (("unit", options.unit, rate.unit), ("n", options.n, known_n)):
        if given is not None and known is not None and given != known:
            raise PassRatesError(
                f"--{name} is given as {given}, and that of {rate.column!r} in {entry.names[0]} is "
                f"{known}: leave it out, or read a file of it with --format columns"
            )


def _record(row: Row, rate: Rate, failures: bool, entry: PublicSet, options: Options) -> Record:
    columns, place = row.columns, row.place
    key, prompt = key_and_prompt(columns, options, place, PROMPT_COLUMNS)
    rewards = None
    found = Measured()
    if rate.unit == "numbered":
        rewards = _numbered(columns, rate.column, place)
    elif rate.unit == "completions":
        rewards = [
            number(completion.get("is_correct"), place, "is_correct")
            for completion in value_of(columns, rate.column, place) or []
        ]
    else:
        n = options.n or rate.n
        if rate.n_column is not None:
            n = whole(value_of(columns, rate.n_column, place), place, rate.n_column)
        unit = "failures" if failures else rate.unit
        found = measured(value_of(columns, rate.column, place), unit, n, place, rate.column)
    return Record(
        place,
        key=key,
        prompt=prompt,
        rewards=rewards,
        successes=found.successes,
        n=found.n,
        rate=found.rate,
        source=source_of(columns, options, entry.source_column),
    )


def _numbered(columns: Columns, prefix: str, place: str) -> list[float | None]:
    """Rewards in the columns that are the prefix and a number."""
    names = [n for n in columns if n.startswith(prefix) and n[len(prefix) :].isdecimal()]
    if not names:
        raise PassRatesError(f"{place} has no columns {prefix}0, {prefix}1, …")
    return [number(columns[name], place, name) for name in names]
