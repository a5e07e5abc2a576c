"""``python -m basis_rl``: the command line, for launchers such as torchrun."""

from __future__ import annotations

from basis_rl.cli import main

if __name__ == "__main__":
    main()
