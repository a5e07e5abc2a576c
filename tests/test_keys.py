from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_rl.errors import PassRatesError
from basis_rl.passrates import prompt_key
from basis_rl.passrates.keys import canonical

CHAT = [{"role": "user", "content": "What is 2+2?"}]
LONGER_CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
]
# Computed with sha256sum from the canonical form in the documentation; they must never change.
GOLDEN: list[tuple[Any, str]] = [
    ("What is 2+2?", "bdc62cec4d6fb381eb6f466bad1e2206"),
    ("", "e45c35f14bd7f2173ce90a9e771112b6"),
    ("Größe: 5 µm → ?", "722d8ecbf1dd66b3f658135fec473fde"),
    ("\ud800", "4aa118035a9880fe0bd503a397f43ff6"),
    (" What is 2+2?\n", "3bc3f52882ae9a754b08c77c3a341f5f"),
    (CHAT, "299b9bbb34e888c8a8de9cead7978205"),
    ([{"role": "user", "content": " What is 2+2?\n"}], "911dfbc520966ed33b23456e478c6cd8"),
    (LONGER_CHAT, "dc308eda50851d25d391f5f8523f407d"),
]


@pytest.mark.parametrize(("prompt", "key"), GOLDEN)
def test_golden_values(prompt: Any, key: str) -> None:
    assert prompt_key(prompt) == key


def test_the_documented_form_gives_the_key() -> None:
    form = json.dumps(["text", "What is 2+2?"], separators=(",", ":"))
    assert prompt_key("What is 2+2?") == hashlib.sha256(form.encode()).hexdigest()[:32]


def test_keys_are_the_same_in_a_process_with_another_hash_seed() -> None:
    program = (
        "import json, sys; from basis_rl.passrates import prompt_key;"
        "print(json.dumps([prompt_key(p) for p in json.load(sys.stdin)]))"
    )
    prompts = [prompt for prompt, _ in GOLDEN]
    result = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(prompts),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
    )
    assert json.loads(result.stdout) == [key for _, key in GOLDEN]


@pytest.mark.parametrize(
    "same",
    [
        tuple(CHAT),
        np.array(CHAT, dtype=object),
        [{"content": "What is 2+2?", "role": "user"}],
        [{"role": "user", "content": "What is 2+2?", "tool_calls": None, "name": None}],
        [{"role": np.str_("user"), "content": np.str_("What is 2+2?")}],
    ],
)
def test_forms_that_data_set_libraries_make_of_one_chat(same: Any) -> None:
    assert prompt_key(same) == prompt_key(CHAT)


def test_none_is_dropped_inside_content_parts() -> None:
    padded = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi", "image": None}]},
    ]
    assert prompt_key(padded) == prompt_key(LONGER_CHAT)
    as_arrays = [padded[0], {"role": "user", "content": np.array(padded[1]["content"])}]
    assert prompt_key(as_arrays) == prompt_key(LONGER_CHAT)


@pytest.mark.parametrize(
    "other",
    [
        "What is 2+2?",
        [{"role": "system", "content": "What is 2+2?"}],
        [{"role": "user", "content": "What is 2+2? "}],
        [*CHAT, *CHAT],
        [{"role": "user", "content": "What is 2+2?", "name": ""}],
    ],
)
def test_other_prompts_have_other_keys(other: Any) -> None:
    assert prompt_key(other) != prompt_key(CHAT)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (None, "None"),
        (3, "3 (int)"),
        (b"bytes", "bytes"),
        ([], "no messages"),
        (["text"], "prompt[0] is 'text'"),
        ([{"role": "user", "content": object()}], "prompt[0]['content']"),
        ([{"role": "user", "content": float("nan")}], "prompt[0]['content']"),
        ([{3: "user"}], "the name 3"),
        (
            [{"role": "user", "content": [{"image": b"\x89PNG"}]}],
            "prompt[0]['content'][0]['image']",
        ),
    ],
)
def test_prompts_without_a_canonical_form(prompt: Any, words: str) -> None:
    with pytest.raises(PassRatesError) as caught:
        prompt_key(prompt)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    messages=st.lists(
        st.fixed_dictionaries({"role": st.text(), "content": st.text()}), min_size=1, max_size=4
    )
)
def test_plain_chats_have_a_fast_path_to_the_same_form(messages: list[dict[str, str]]) -> None:
    naive = json.dumps(["chat", messages], sort_keys=True, separators=(",", ":"))
    assert canonical(messages) == naive
    assert canonical(tuple(messages)) == naive  # the slow path
    assert canonical([{**message, "name": None} for message in messages]) == naive
