"""Loading models and tokenizers of a folder or the hub."""

from __future__ import annotations

from typing import Any

from basis_rl.errors import ConfigError

DTYPES = ("auto", "bfloat16", "float16", "float32")


def check_dtype(dtype: str) -> None:
    """Refuse an unknown number type.

    Raises
    ------
    ConfigError
        Naming those that are known.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}: use one of {', '.join(DTYPES)}")


def load_tokenizer(model: str, revision: str | None = None) -> Any:
    """Tokenizer of a model.

    Raises
    ------
    ConfigError
        If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    return _load(AutoTokenizer, model, revision=revision)


def load_network(model: str, revision: str | None = None, dtype: str = "auto") -> Any:
    """Causal language model, on the CPU.

    Raises
    ------
    ConfigError
        If the dtype is unknown or the model cannot be loaded.
    """
    check_dtype(dtype)
    from transformers import AutoModelForCausalLM

    return _load(AutoModelForCausalLM, model, revision=revision, dtype=dtype)


def load_longest(model: str, revision: str | None = None) -> int | None:
    """Tokens that prompt and completion may have together, without loading weights.

    Raises
    ------
    ConfigError
        If the model's configuration cannot be loaded.
    """
    from transformers import AutoConfig

    return longest(_load(AutoConfig, model, revision=revision))


def longest(config: Any) -> int | None:
    """Tokens that a model's configuration allows; None where it names no limit."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    return limit


def _load(kind: Any, model: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(model, **options)
    except (OSError, ValueError, KeyError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"cannot load model {model!r} ({lines[0]}): name a folder that holds a model and "
            "its tokenizer, or a model of the hub that can be reached"
        ) from error
