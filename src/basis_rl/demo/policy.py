"""The demo's language model: loading it, and where its answers end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis_rl.errors import ConfigError
from basis_rl.rollouts import SamplingSettings, TransformersEngine

# Three digits, the end of the line, and one to spare.
ANSWER_TOKENS = 5
SAMPLING = SamplingSettings(temperature=1.0, max_tokens=ANSWER_TOKENS)


@dataclass(frozen=True)
class Policy:
    """A model on disk.

    Attributes
    ----------
    name : str
        What reports and provenance call it.
    folder : str
        What `from_pretrained` is given.
    """

    name: str
    folder: str

    def engine(self, weights: Path | None = None) -> TransformersEngine:
        """Load it for sampling, in bfloat16; ``weights`` is a folder with trained ones."""
        engine = TransformersEngine.open(str(weights) if weights else self.folder, dtype="bfloat16")
        end_with_the_line(engine.network, engine.tokenizer)
        return TransformersEngine(engine.network, engine.tokenizer, name=self.name)

    def for_training(self) -> tuple[Any, Any]:
        """Load model (float32) and tokenizer for training.

        Raises
        ------
        ConfigError
            If it cannot be loaded.
        """
        engine = TransformersEngine.open(self.folder, dtype="float32", device="cpu")
        model, tokenizer = engine.network, engine.tokenizer
        end_with_the_line(model, tokenizer)
        model.config._name_or_path = self.name  # the pass rates' provenance has this name
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return model, tokenizer


def end_with_the_line(model: Any, tokenizer: Any) -> None:
    """Make every token with a line end an end token, besides the model's own.

    Raises
    ------
    ConfigError
        If the tokenizer has no such token.
    """
    ids = range(len(tokenizer))
    texts = tokenizer.batch_decode([[token] for token in ids], clean_up_tokenization_spaces=False)
    lines = [token for token, text in zip(ids, texts, strict=True) if "\n" in text]
    if not lines:
        raise ConfigError("the model's tokenizer has no token for a line end: use another --model")
    own = model.generation_config.eos_token_id
    own = own if isinstance(own, list) else [own]
    found = {*own, tokenizer.eos_token_id, *lines} - {None}
    model.generation_config.eos_token_id = sorted(found)
