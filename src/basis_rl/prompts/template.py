"""From a row's columns to the prompt that the model sees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

from basis_rl.errors import PromptsError
from basis_rl.prompts.columns import column_value, required_value

Message = dict[str, Any]
# {{ and }} are literal braces, {name} is a column of any name, and a brace alone is a mistake.
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_LETTERS = ":letters"
_LITERAL = "(write {{ and }} for braces that the model is to see)"


def fill(template: str, columns: Mapping[str, Any], *, where: str) -> str:
    r"""Template with each ``{column}`` replaced by the row's value.

    ``{{`` and ``}}`` stand for literal braces (LaTeX's ``\frac{{1}}{{2}}``); an empty ``{}`` (as in
    ``\boxed{}``) stays. Everything else in braces is the name of a column, blanks included;
    ``{options.0}`` is the first item of a list, and ``{options:letters}`` all of them, a line each:
    ``A. …``, ``B. …``.

    Raises
    ------
    PromptsError
        If a named column is missing, its value is neither text nor a number, or a brace has no
        partner.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            if len(match.group(0)) == 1:
                before = template[max(match.start() - 20, 0) : match.end()]
                raise PromptsError(f"the template has a lone brace at {before!r} {_LITERAL}")
            return match.group(0)[0]
        if not name:
            return match.group(0)
        return _text(columns, name, where)

    return _FIELD.sub(value_of, template)


def _text(columns: Mapping[str, Any], name: str, where: str) -> str:
    """What a field of a template stands for."""
    items = _lettered(columns, name)
    if items is not None:
        return items
    try:
        value = required_value(columns, name, where=where)
    except PromptsError as error:
        raise PromptsError(f"template field {{{name}}}: {error} {_LITERAL}") from None
    if _is_plain(value):
        return str(value)
    remedy = "use a column of text or numbers"
    if isinstance(value, list):
        remedy += f", {{{name}.0}} for one item, or {{{name}{_LETTERS}}} for lines A., B., …"
    raise PromptsError(
        f"{where}: the template's {{{name}}} is {value!r:.60} ({type(value).__name__}): {remedy}"
    )


def _lettered(columns: Mapping[str, Any], name: str) -> str | None:
    """Lines of ``{options:letters}``; None if the field is something else."""
    if name in columns or not name.endswith(_LETTERS):
        return None
    try:
        items = column_value(columns, name.removesuffix(_LETTERS))
    except KeyError:
        return None
    if not isinstance(items, list) or len(items) > len(ascii_uppercase):
        return None
    if not items or not all(map(_is_plain, items)):
        return None
    letters = ascii_uppercase[: len(items)]
    return "\n".join(f"{letter}. {item}" for letter, item in zip(letters, items, strict=True))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def as_prompt(value: Any, *, where: str, column: str) -> str | list[Message]:
    """Text or chat messages, checked.

    Raises
    ------
    PromptsError
        If the value is empty, or neither text nor a list of messages.
    """
    if isinstance(value, str):
        if not value.strip():
            raise PromptsError(f"{where}: column {column!r} is empty: drop the row or fill it")
        return value
    if isinstance(value, list) and value and all(_is_message(item) for item in value):
        # Arrow fills a struct's absent fields with None; they are no part of the message.
        return [{k: v for k, v in item.items() if v is not None} for item in value]
    raise PromptsError(
        f"{where}: column {column!r} is {value!r:.60} ({type(value).__name__}): a prompt is a "
        "text, or a list of messages with role and content"
    )


def _is_message(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and isinstance(item.get("role"), str)
        and isinstance(item.get("content"), str)
    )


def with_system(
    prompt: str | list[Message], *, system: str | None, chat: bool | None, where: str
) -> str | list[Message]:
    """Prompt as chat messages or raw text.

    Parameters
    ----------
    prompt : str or list of messages
    system : str, optional
        First message; makes a text prompt a chat prompt.
    chat : bool, optional
        True turns a text into one user message, False insists on raw text, None keeps the kind.
    where : str
        How an error names the row.

    Raises
    ------
    PromptsError
        If messages meet ``chat=False`` or there are two system messages.
    """
    if chat is False:
        if isinstance(prompt, list):
            raise PromptsError(
                f"{where}: the prompt is chat messages: set chat to true or leave it"
            )
        return prompt
    if isinstance(prompt, str):
        if not chat and system is None:
            return prompt
        prompt = [{"role": "user", "content": prompt}]
    if system is None:
        return prompt
    if prompt[0]["role"] == "system":
        raise PromptsError(f"{where}: the prompt has a system message of its own: drop yours")
    return [{"role": "system", "content": system}, *prompt]
