"""Write the recipes: each is what `basis-rl verl command` prints.

python recipes/write.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from click.testing import CliRunner

from basis_rl.cli.verl_command import command

RECIPES = {
    "qwen3-4b/grpo-basis-unb.sh": "--model qwen3-4b",
    "qwen3-4b/grpo-basis-unb-literal.sh": "--model qwen3-4b --preset paper-literal",
    "qwen3-4b/grpo-robust.sh": "--model qwen3-4b --baseline robust",
    "qwen3-4b/grpo-online.sh": "--model qwen3-4b --baseline online",
    "qwen3-4b/grpo-vanilla.sh": "--model qwen3-4b --baseline vanilla",
    "qwen3-4b/grpo-reinforce++.sh": "--model qwen3-4b --baseline reinforce++",
    "qwen3-4b/grpo-8.sh": "--model qwen3-4b --baseline grpo-8",
    "qwen3-4b/gpg-basis-unb.sh": "--model qwen3-4b --objective gpg",
    "qwen3-4b/gpg-8.sh": "--model qwen3-4b --objective gpg --baseline grpo-8",
    "qwen3-4b/gspo-basis-unb.sh": "--model qwen3-4b --objective gspo",
    "qwen3-4b/gspo-8.sh": "--model qwen3-4b --objective gspo --baseline grpo-8",
    "qwen2.5-math-7b/grpo-basis-unb.sh": "--model qwen2.5-math-7b",
    "qwen2.5-math-7b/grpo-basis-vop.sh": "--model qwen2.5-math-7b --baseline basis-vop",
    "qwen2.5-math-7b/grpo-basis-rvg.sh": "--model qwen2.5-math-7b --baseline basis-rvg",
    "qwen2.5-math-7b/grpo-8.sh": "--model qwen2.5-math-7b --baseline grpo-8",
    "section-5.1/grpo-math.sh": "--study section-5.1",
}


def text(options: str) -> str:
    """What the command prints."""
    return CliRunner().invoke(command, options.split(), catch_exceptions=False).output


def write(folder: Path) -> None:
    """Write all recipes."""
    for name, options in RECIPES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(options))
        path.chmod(0o755)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
