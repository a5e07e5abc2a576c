"""Chats as texts, through the tokenizer's template."""

from __future__ import annotations

from typing import Any

from basis_rl.errors import ConfigError


def too_long(prompt: Any, tokens: int, max_tokens: int, limit: int) -> ConfigError:
    """Error of a prompt that leaves no room for a completion."""
    return ConfigError(
        f"prompt {prompt!r:.80} has {tokens} tokens, with max_tokens {max_tokens} more than the "
        f"model's {limit}: lower max_tokens or leave the prompt out"
    )


def goes_on(messages: Any) -> bool:
    """Whether the completion goes on with the last message, which is the assistant's."""
    return bool(messages[-1].get("role") == "assistant")


def chat_text(tokenizer: Any, messages: Any, *, model: str) -> str:
    """Text of a chat in the tokenizer's template, up to where the completion begins.

    Raises
    ------
    ConfigError
        If the tokenizer has no template, or the template refuses the messages.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"the tokenizer of {model!r} has no chat template: use text prompts, or an "
            "instruction-tuned model"
        )
    from jinja2 import TemplateError

    open_end = goes_on(messages)
    try:
        text: str = tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            add_generation_prompt=not open_end,
            continue_final_message=open_end,
        )
    except (TemplateError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the chat template of {model!r} refuses prompt {messages!r:.80} ({error}): change "
            "its roles or contents"
        ) from error
    return text


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """Text before the first of the stop texts."""
    ends = [text.find(s) for s in stop if s in text]
    return text[: min(ends)] if ends else text
