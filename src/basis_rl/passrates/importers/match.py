"""Which prompt of a data set a dump's prompt is.

Dumps hold prompts as the model saw them, with a chat template's marks around; the key of such a
text is not that of the data set's prompt. Prompts are matched by the same prompt, then by the same
text, then through the template: what stands before and after the data set's text is the same in
all prompts of a dump, so the commonest pair of such surroundings is the template, and a prompt
matches if it is that pair around exactly one prompt's text. A text that merely contains another
one (``1+1=`` in ``11+1=``) does not match.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from basis_rl.errors import PassRatesError
from basis_rl.passrates.importers.record import Prompt as Content
from basis_rl.passrates.keys import prompt_key
from basis_rl.prompts import Prompt
from basis_rl.prompts.columns import required_value

_WIDTH = 16  # characters by which places in a text are looked up
_ENOUGH = 500  # prompts that show what the template is
_EARLIER = "\0"  # stands for the earlier messages of a prompt


class Template(NamedTuple):
    """What a chat template writes before and after the last message of a prompt."""

    before: str
    after: str


class Matcher:
    """Finds the data set's prompt of a dump's prompt.

    Parameters
    ----------
    prompts : sequence of Prompt
        Of the data set.
    column : str, optional
        Column of its rows that is compared instead of the prompt.

    Raises
    ------
    BasisError
        If a row does not have the column.
    """

    def __init__(self, prompts: Sequence[Prompt], column: str | None = None) -> None:
        self.column = column
        self.by_content: dict[str, list[Prompt]] = defaultdict(list)
        self.by_text: dict[str, list[Prompt]] = defaultdict(list)
        for prompt in prompts:
            content = self._content(prompt)
            self.by_content[prompt_key(content)].append(prompt)
            self.by_text[_last_text(content)].append(prompt)
        self.by_text.pop("", None)
        self._starts: dict[str, list[str]] = defaultdict(list)
        for text in self.by_text:
            self._starts[text[:_WIDTH]].append(text)
        self._widths = sorted({min(len(text), _WIDTH) for text in self.by_text})

    def _content(self, prompt: Prompt) -> Content:
        """What of a data set's row is compared."""
        if self.column is None:
            return prompt.prompt
        place = f"the row of prompt {prompt.key!r}"
        content = required_value(prompt.columns, self.column, where=place)
        if not isinstance(content, str | list) or not content:
            raise PassRatesError(
                f"{place}: column {self.column!r} is {content!r:.60}: name one with a text or "
                "messages"
            )
        return content

    def learn(self, contents: Iterable[Content]) -> Template | None:
        """The template of a dump: the commonest surroundings of the data set's texts.

        Of equally common ones the shortest. None if no prompt contains a text of the data set.
        """
        votes: Counter[Template] = Counter()
        for number, content in enumerate(contents):
            if number == _ENOUGH:
                break
            votes.update({template for template, _ in self._candidates(content)})
        if not votes:
            return None
        return min(votes, key=lambda t: (-votes[t], len(t.before) + len(t.after), t))

    def find(self, content: Content, template: Template | None, place: str) -> Prompt | None:
        """The data set's prompt, None if it has none like it.

        Raises
        ------
        PassRatesError
            If several prompts of the data set fit.
        """
        found = self.by_content.get(prompt_key(content), [])
        found = found or self.by_text.get(_last_text(content), [])
        if not found and template is not None:
            found = [p for other, p in self._candidates(content) if other == template]
        if len(found) > 1:
            raise PassRatesError(
                f"{place}: prompt {_last_text(content)!r:.60} fits {len(found)} prompts of the "
                f"data set, with the keys {found[0].key!r} and {found[1].key!r}: leave one of them "
                "out, or import without --match"
            )
        return found[0] if found else None

    def _candidates(self, content: Content) -> Iterator[tuple[Template, Prompt]]:
        """Data-set prompts whose text stands in a text, with what is around it."""
        if not isinstance(content, str):
            return
        for start in range(len(content)):
            for width in self._widths:
                for text in self._starts.get(content[start : start + width], ()):
                    if min(len(text), _WIDTH) == width and content.startswith(text, start):
                        for prompt in self.by_text[text]:
                            before, after = content[:start], content[start + len(text) :]
                            own = self._content(prompt)
                            if not _cuts_number(before, text) and not _cuts_number(text, after):
                                yield Template(_before(before, own), after), prompt


def _cuts_number(one: str, other: str) -> bool:
    """Whether a number goes on over the end of a text: no template's mark ends there.

    A word may: Llama 3's marks without their special tokens are ``assistant`` right behind a text.
    """
    return one[-1:].isdecimal() and other[:1].isdecimal()


def _before(before: str, content: Content) -> str:
    """What stands before a prompt's last message, its own earlier messages marked."""
    if isinstance(content, str):
        return before
    for message in content[:-1]:
        text = str(message.get("content", "")).strip()
        if text:
            before = before.replace(text, _EARLIER, 1)
    return before


def _last_text(content: Any) -> str:
    """Text of a prompt, or of its last message; blanks at the ends do not count."""
    if isinstance(content, str):
        return content.strip()
    return str(content[-1].get("content", "")).strip()
