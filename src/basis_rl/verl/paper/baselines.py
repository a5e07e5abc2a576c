"""The baselines that the paper compares, and the two of this package that it does not have."""

from __future__ import annotations

from dataclasses import dataclass

from basis_rl.verl.paper.setting import Setting

_BASIS = "+algorithm.basis."
EQ5 = {
    "paper": "assumed: Eq. 5 with its mean over the whole batch; as printed it is degenerate",
    "paper-literal": "Eq. 5 as printed: its mean is taken over the active set",
}


@dataclass(frozen=True)
class Baseline:
    """How a run estimates its advantages.

    Attributes
    ----------
    title : str
        For people.
    steps : Setting
        Training steps.
    estimator : Setting or None
        None for the objective's own estimator in verl.
    settings : tuple of Setting
        Options of the estimator.
    rollouts : int
        Rollouts of a prompt in a step.
    pass_rates : bool
        Whether it uses the offline pass rates.
    variant : str or None
        Of the published estimator: the preset decides how Eq. 5 is read.
    stock : bool
        Whether the estimator is verl's own, and this package's plug-in stays out.
    """

    title: str
    steps: Setting
    estimator: Setting | None
    settings: tuple[Setting, ...] = ()
    rollouts: int = 1
    pass_rates: bool = False
    variant: str | None = None
    stock: bool = False


def _estimator(name: str, source: str) -> Setting:
    return Setting("algorithm.adv_estimator", name, source)


def _steps(value: int, source: str) -> Setting:
    return Setting("trainer.total_training_steps", value, source)


_HALF = _steps(150, "Section 5.2: BASIS is trained for only 150 steps")
_FULL = _steps(300, "Section 5.2: all baseline algorithms for 300 steps")
_PLAIN = Setting(
    f"{_BASIS}normalize_advantages",
    "none",
    "assumed: Section 5.2 changes the baseline alone; verl's default for others",
)
_BASIS_PLAIN = Setting(
    f"{_BASIS}normalize_advantages", "none", "Algorithm 1, line 9: A = r - b, not divided"
)


def _published(variant: str, where: str) -> Baseline:
    return Baseline(
        f"BASIS-{variant.upper()}",
        _HALF,
        _estimator("basis", "Section 4"),
        (
            Setting(f"{_BASIS}variant", variant, where),
            Setting(f"{_BASIS}epsilon", 1e-6, "Appendix D: the active set's threshold"),
            _BASIS_PLAIN,
        ),
        pass_rates=True,
        variant=variant,
    )


_OURS = "not in the paper: this package's"
BASELINES = {
    "basis-unb": _published("unb", "Section 4, Eq. 2 and 3"),
    "basis-vop": _published("vop", "Appendix B, Proposition 3"),
    "basis-rvg": _published("rvg", "Appendix B"),
    "robust": Baseline(
        "BASIS, preset robust",
        _HALF,
        _estimator("basis", _OURS),
        (Setting(f"{_BASIS}preset", "robust", f"{_OURS} default"), _BASIS_PLAIN),
        pass_rates=True,
    ),
    "online": Baseline(
        "basis-online",
        _HALF,
        _estimator("basis-online", f"{_OURS} estimator that follows prompts over steps"),
        (_BASIS_PLAIN,),
        pass_rates=True,
    ),
    "vanilla": Baseline(
        "vanilla, one rollout",
        _FULL,
        _estimator("zero", "Section 5.2: its vanilla version, which uses a zero baseline"),
        (_PLAIN,),
    ),
    "reinforce++": Baseline(
        "REINFORCE++",
        _FULL,
        _estimator("batch-mean", "Appendix A: the reward mean within the current batch"),
        (_PLAIN,),
    ),
    "reinforce++-verl": Baseline(
        "REINFORCE++, verl's own",
        _FULL,
        _estimator(
            "reinforce_plus_plus",
            "assumed: verl's estimator of that name, whitened over tokens; Appendix A has the mean",
        ),
        stock=True,
    ),
    "grpo-8": Baseline(
        "the group mean",
        _FULL,
        None,
        rollouts=8,
        stock=True,
    ),
}
