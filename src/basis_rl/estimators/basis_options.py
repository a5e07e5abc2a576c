"""Options of `Basis`: presets, and which combinations mean something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from basis_rl.batch import FloatArray
from basis_rl.errors import ConfigError, nearest
from basis_rl.smoothing import SMOOTHINGS
from basis_rl.values import beta_grid, check_betas

VARIANTS = ("shift", "initial", "unb", "vop", "rvg")
CALIBRATIONS = (
    "leave-one-out",
    "whole-batch",
    "active-set",
    "previous-batch",
    "previous-batch-active-set",
)
MISSING = ("error", "prior")
VARIANCE_FLOOR = 1e-6
# preset -> variant, calibration, smoothing
PRESETS = {
    "robust": ("shift", "leave-one-out", "jeffreys"),
    "paper": ("unb", "whole-batch", "none"),
    "paper-literal": ("unb", "active-set", "none"),
}


@dataclass(frozen=True)
class BasisOptions:
    """Validated options of `Basis`."""

    variant: str
    calibration: str
    smoothing: str
    epsilon: float
    betas: FloatArray
    missing: str
    variance_floor: float

    @property
    def leave_one_out(self) -> bool:
        """Whether the shift is fitted by likelihood, not beta on a grid."""
        return self.calibration == "leave-one-out"

    @property
    def over_active_set(self) -> bool:
        """Whether the loss averages over the active set, as Eq. 5 is printed."""
        return self.calibration.endswith("active-set")

    @property
    def from_previous_batch(self) -> bool:
        """Whether beta comes from the batch before (Appendix D)."""
        return self.calibration.startswith("previous-batch")


def resolve_options(
    preset: str,
    *,
    variant: str | None,
    calibration: str | None,
    smoothing: str | None,
    epsilon: float,
    betas: Sequence[float] | npt.NDArray[np.float64] | None,
    missing: str,
    variance_floor: float | None,
    continuous: bool,
) -> BasisOptions:
    """Fill the preset's choices in and refuse what does not go together.

    Raises
    ------
    ConfigError
        If a name is unknown, a number is out of range, ``variant="shift"`` is asked for with a
        calibration on the grid, or an option would have no effect.
    """
    _one_of("preset", preset, tuple(PRESETS))
    preset_variant, preset_calibration, preset_smoothing = PRESETS[preset]
    if calibration is None:
        calibration = "leave-one-out" if variant == "shift" else preset_calibration
    variant = preset_variant if variant is None else variant
    _one_of("variant", variant, VARIANTS)
    _one_of("calibration", calibration, CALIBRATIONS)
    leave_one_out = calibration == "leave-one-out"
    if variant == "shift" and not leave_one_out:
        raise ConfigError(
            f"variant 'shift' is fitted by calibration 'leave-one-out' alone, not by "
            f"{calibration!r}: use variant='initial' for the tilted value with a beta of the grid"
        )
    smoothing = preset_smoothing if smoothing is None else smoothing
    _one_of("smoothing", smoothing, SMOOTHINGS)
    _one_of("missing", missing, MISSING)
    if betas is not None and leave_one_out:
        raise ConfigError(
            "betas has no effect with calibration 'leave-one-out', which fits the shift: leave it "
            "out, or use preset='paper'"
        )
    if variance_floor is not None and (leave_one_out or not continuous):
        raise ConfigError(
            "variance_floor has an effect on stored rewards with a beta of the grid alone: leave "
            "it out, or use PassRates.from_rewards with preset='paper'"
        )
    return BasisOptions(
        variant,
        calibration,
        smoothing,
        _number("epsilon", epsilon, below=0.5),
        beta_grid() if betas is None else check_betas(betas),
        missing,
        VARIANCE_FLOOR if variance_floor is None else _number("variance_floor", variance_floor),
    )


def _number(what: str, value: object, *, below: float = float("inf")) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-300 < value < below:
        limit = "" if below == float("inf") else f" below {below}"
        raise ConfigError(f"{what} is {value!r}: give a positive number{limit}, e.g. 1e-6")
    return float(value)


def _one_of(what: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{what} is {value!r}{nearest(str(value), list(allowed))}")
