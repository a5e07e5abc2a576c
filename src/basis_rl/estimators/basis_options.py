"""Options of `Basis`: presets, and which combinations mean something."""

from __future__ import annotations

from dataclasses import dataclass

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
    betas: object,
    missing: str,
    variance_floor: float,
) -> BasisOptions:
    """Fill the preset's choices in and refuse what does not go together.

    Raises
    ------
    ConfigError
        If a name is unknown, a number is out of range, or ``variant="shift"`` is asked for with a
        calibration on the grid.
    """
    _one_of("preset", preset, tuple(PRESETS))
    preset_variant, preset_calibration, preset_smoothing = PRESETS[preset]
    if calibration is None:
        calibration = "leave-one-out" if variant == "shift" else preset_calibration
    variant = preset_variant if variant is None else variant
    if variant == "shift" and calibration not in (None, "leave-one-out"):
        raise ConfigError(
            f"variant 'shift' is fitted by calibration 'leave-one-out' alone, not by "
            f"{calibration!r}: use variant='initial' for the tilted value with a beta of the grid"
        )
    _one_of("variant", variant, VARIANTS)
    _one_of("calibration", calibration, CALIBRATIONS)
    smoothing = preset_smoothing if smoothing is None else smoothing
    _one_of("smoothing", smoothing, SMOOTHINGS)
    _one_of("missing", missing, MISSING)
    if not 0 < epsilon < 0.5:
        raise ConfigError(f"epsilon is {epsilon!r}: give a number between 0 and 0.5, e.g. 1e-6")
    if not variance_floor > 0:
        raise ConfigError(f"variance_floor is {variance_floor!r}: give a positive number")
    grid = beta_grid() if betas is None else check_betas(betas)  # type: ignore[arg-type]
    return BasisOptions(variant, calibration, smoothing, epsilon, grid, missing, variance_floor)


def _one_of(what: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{what} is {value!r}{nearest(str(value), list(allowed))}")
