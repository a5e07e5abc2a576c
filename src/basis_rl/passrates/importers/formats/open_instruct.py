"""open-instruct: ``<run>_rollouts_<shard>.jsonl`` of ``rollouts_save_path``.

Prompts are token ids. With a tokenizer they are decoded, special tokens included; without one the
key is a hash of the ids (`token_key`). Files are appended to: of a step that a resumed run made
again, the later rollouts hold (step and sample_idx name a rollout).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.format import COMMON, Format, Rows, has, identity, source_of
from basis_rl.passrates.importers.record import Notes, Options, Record
from basis_rl.passrates.importers.values import number, value_of, whole


def token_key(tokens: Sequence[int]) -> str:
    """Key of a prompt that is known by its token ids alone, 32 hexadecimal digits.

    The start of the SHA-256 of the JSON text ``["tokens",[1,2,3]]``.
    """
    text = json.dumps(["tokens", list(tokens)], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _rows(rows: Rows, options: Options, notes: Notes) -> Iterator[Record]:
    tokenizer = _tokenizer(options.tokenizer) if options.tokenizer else None
    column = options.reward_column or "reward"
    for row in rows:
        columns, place = row.columns, row.place
        tokens = value_of(columns, "prompt_tokens", place)
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise PassRatesError(f"{place}: prompt_tokens is {tokens!r:.60}: it should list ids")
        step = whole(value_of(columns, "step", place), place, "step")
        prompt = tokenizer.decode(tokens) if tokenizer else None
        about = identity(columns, options, place, prompt)
        if about["key"] is None and about["prompt"] is None:
            about["key"] = token_key(tokens)
        yield Record(
            place,
            **about,
            rewards=[number(value_of(columns, column, place), place, column)],
            step=step,
            source=source_of(columns, options, "dataset"),
            rollout=(step, columns.get("sample_idx")),
        )


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:150]
        raise PassRatesError(f"cannot load the tokenizer {name!r} ({reason})") from None


def _known(files: Sequence[Path], notes: Notes) -> None:
    """Model of the run's ``<run>_metadata.jsonl``; a run that is resumed has a new name."""
    runs = dict.fromkeys(file.name.rsplit("_rollouts_", 1)[0] for file in files)
    if len(runs) > 1:
        notes.remark(
            f"files of {len(runs)} runs, {', '.join(runs)}: of a step that several made, the last "
            "one's rollouts hold; name a folder with one run unless one resumes the other"
        )
    for file in files:
        metadata = file.with_name(f"{file.name.rsplit('_rollouts_', 1)[0]}_metadata.jsonl")
        if "_rollouts_" not in file.name or not metadata.exists():
            continue
        try:
            name = json.loads(metadata.read_text().splitlines()[0])["model_name"]
        except (ValueError, KeyError, TypeError, IndexError):
            continue
        notes.know(str(metadata), model=None if name == "unknown" else name)


FORMAT = Format(
    "open-instruct",
    has("prompt_tokens", "response_tokens", "reward", "step"),
    _rows,
    known=_known,
    takes=COMMON | {"tokenizer"},
)
