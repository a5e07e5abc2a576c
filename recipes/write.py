"""Write the files of the recipes again.

python recipes/write.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from basis_rl.verl.command.files import recipe_files


def write(folder: Path) -> None:
    """Write all files."""
    for name, text in recipe_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
