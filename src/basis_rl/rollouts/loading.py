"""Loading models and tokenizers of a folder or the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from basis_rl.errors import ConfigError

_CONFIGS = ("config.json", "adapter_config.json")
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.spm", "*.tiktoken", "tekken.json")
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


def check_packages() -> None:
    """Refuse to go on without torch and transformers.

    Raises
    ------
    ConfigError
        Naming the one that is missing.
    """
    try:
        import torch as _torch  # noqa: F401
        import transformers as _transformers  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"engine 'transformers' needs torch and transformers ({error}): pip install torch "
            "transformers, or install basis-rl with its extra [trl]"
        ) from error


def load_tokenizer(model: str, revision: str | None = None) -> Any:
    """Tokenizer of a model.

    Raises
    ------
    ConfigError
        If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    check_folder(model)
    _check_tokenizer(model)
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

    check_folder(model)
    return _load(AutoModelForCausalLM, model, revision=revision, dtype=dtype)


def load_longest(model: str, revision: str | None = None) -> int | None:
    """Tokens that prompt and completion may have together, without loading weights.

    Raises
    ------
    ConfigError
        If the model's configuration cannot be loaded.
    """
    from transformers import AutoConfig

    check_folder(model)
    return longest(_load(AutoConfig, model, revision=revision))


def longest(config: Any) -> int | None:
    """Tokens that a model's configuration allows; None where it names no limit."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    return limit


def check_folder(model: str) -> None:
    """Refuse a path that is no folder, or a folder without a model.

    What may be the name of a model of the hub is left to the hub.

    Raises
    ------
    ConfigError
        Naming it.
    """
    folder = Path(model)
    if folder.is_file():
        raise ConfigError(f"cannot load model {model!r} (it is a file): name the folder it is in")
    if folder.is_dir():
        if not any((folder / name).exists() for name in _CONFIGS):
            raise ConfigError(
                f"cannot load model {model!r} (the folder has no model, there is no config.json): "
                "name one that model.save_pretrained has written"
            )
    elif _is_path(model):
        raise ConfigError(
            f"cannot load model {model!r} (there is no such folder): correct the path, which is "
            f"looked for from {Path.cwd()}"
        )


def _check_tokenizer(model: str) -> None:
    folder = Path(model)
    if folder.is_dir() and not any(path for name in _TOKENIZER_FILES for path in folder.glob(name)):
        raise ConfigError(
            f"cannot load model {model!r} (the folder has no tokenizer): save it there with "
            "tokenizer.save_pretrained"
        )


def _is_path(model: str) -> bool:
    """Whether it is no name of the hub, which is as model or owner/model."""
    return model.startswith((".", "/", "~", "\\")) or model.endswith("/") or model.count("/") > 1


def _load(kind: Any, model: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(model, **options)
    except (OSError, ValueError, KeyError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"cannot load model {model!r} ({lines[0]}): name a folder that holds a model and "
            "its tokenizer, or a model of the hub that can be reached"
        ) from error
