"""What the libraries under a command may say on the terminal."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning once, in one line without path and source."""
    with warnings.catch_warnings():
        warnings.showwarning = _one_line_printer()
        warnings.simplefilter("ignore", FutureWarning)  # for the authors of trainers, not users
        yield


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep bars and notes of transformers off the terminal, its errors aside."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _one_line_printer() -> Callable[..., None]:
    """A `warnings.showwarning` that prints each text once, in one line."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            click.echo(f"warning: {text}", err=True)

    return show
