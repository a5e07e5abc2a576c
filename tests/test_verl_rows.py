"""Keys and sources of rows, with columns inside columns as verl's data have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from basis_rl.adapters.rows import RowNames, shorten
from basis_rl.errors import BatchError, ConfigError
from basis_rl.passrates import prompt_key
from basis_rl.verl.option_names import VERL

CHAT = [{"role": "user", "content": "2+2="}]
ROW = {"prompt": CHAT, "raw_prompt": CHAT, "extra_info": {"index": 7}, "data_source": "toy"}


def names(key: str | None = None, source: str | None = None, prompt: str = "prompt") -> RowNames:
    return RowNames(key, source, prompt, words=VERL)


def one_line(error: Any, *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_a_row_has_the_key_of_its_column_or_of_its_prompt() -> None:
    assert names().key(ROW) == prompt_key(CHAT)
    assert names(prompt="raw_prompt").key(ROW) == prompt_key(CHAT)
    assert names("extra_info.index", "data_source").name(ROW) == ("7", "toy")
    assert names("id").key({"id": np.int64(3)}) == "3"
    assert names().name(ROW)[1] is None
    assert names("extra_info.index", "data_source").needed == ["data_source", "extra_info.index"]


@pytest.mark.parametrize("value", [None, "", 1.5, True, float("nan"), ["a"]])
def test_an_entry_that_is_no_id_is_shown_with_its_prompt(value: Any) -> None:
    with pytest.raises(BatchError) as caught:
        names("extra_info.index").key({"prompt": CHAT, "extra_info": {"index": value}})
    one_line(caught, "'extra_info.index'", repr(value), "'2+2='")


@pytest.mark.parametrize("extra", [None, {}, {"split": "train"}])
def test_a_field_that_a_row_lacks_is_missing_and_never_zero(extra: Any) -> None:
    with pytest.raises(BatchError) as caught:
        names("extra_info.index").key({"prompt": CHAT, "extra_info": extra})
    one_line(caught, "is None", "'2+2='")


def test_columns_that_are_not_there_are_named_with_verls_option() -> None:
    names("extra_info.index", "data_source").check(list(ROW))
    for bad in (names("nr"), names("nr.index"), names(None, "nr")):
        with pytest.raises(ConfigError) as caught:
            bad.check(list(ROW))
        one_line(caught, "+algorithm.basis.prompt_", "'nr", "data_source")
    with pytest.raises(ConfigError) as caught:
        names(prompt="question").check(list(ROW))
    one_line(caught, "no column 'question'", "data.prompt_key")
    with pytest.raises(ConfigError) as caught:
        names().check([*ROW, "images"])
    one_line(caught, "'images'", "prompt_key_column")
    names("extra_info.index").check([*ROW, "images"])


def test_one_key_for_different_prompts_is_refused() -> None:
    other = [{"role": "user", "content": "3+3="}]
    by_index = names("extra_info.index")
    by_index.check_distinct(["0", "1", "0"], [CHAT, other, np.array(CHAT)])
    with pytest.raises(ConfigError) as caught:
        by_index.check_distinct(["0", "1", "0"], [CHAT, other, other])
    one_line(caught, "'0'", "both", "'2+2='", "'3+3='", "rows 0 and 2 of 3")
    with pytest.raises(ConfigError) as caught:
        by_index.check_distinct(["0", "0"], [CHAT, other])
    one_line(caught, "for all of these prompts")
    by_index.check_distinct(["0", "0"], [[{"role": "user", "content": object}]] * 2)


def test_a_prompt_is_shown_in_one_short_line() -> None:
    assert shorten(np.array(CHAT)) == "'2+2='"
    assert shorten("a\nb " * 40, width=10) == "'a b a b a…'"
    assert shorten([]) == "'[]'"
