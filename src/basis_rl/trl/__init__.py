"""BASIS in TRL: `BasisConfig` for `GRPOConfig`, `BasisTrainer` for `GRPOTrainer`."""

from __future__ import annotations

try:
    import trl as _trl  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"basis_rl.trl needs TRL ({error}): install basis-rl with its extra [trl]"
    ) from error

from basis_rl.trl.config import BasisConfig
from basis_rl.trl.trainer import BasisTrainer

__all__ = ["BasisConfig", "BasisTrainer"]
