"""All settings of a run as the paper has it, in verl's words, under headings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from basis_rl.errors import ConfigError, nearest
from basis_rl.verl.paper.baselines import BASELINES, EQ5, Baseline
from basis_rl.verl.paper.gpus import PAPER_GPU, Sizing, memory_of, sizing_settings, spread
from basis_rl.verl.paper.models import MODELS, PaperModel
from basis_rl.verl.paper.objectives import OBJECTIVES, Objective
from basis_rl.verl.paper.setting import Group, Setting, Value

ROLLOUTS = 512  # of a step
_ACTOR = "actor_rollout_ref.actor."
_ROLLOUT = "actor_rollout_ref.rollout."
_MODEL = "actor_rollout_ref.model."
_BASIS = "+algorithm.basis."
# The environment of Ray's processes, which on a cluster is not that of the script.
METRICS_FILE = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH"
_TOO_MUCH = 1e6 + 1  # of steps, GPUs, GB: a slip of the hand
# Mini-batch by rollouts of a prompt; verl counts prompts too, and multiplies by them.
_MINI_BATCH = {1: 256, 8: 32}


@dataclass(frozen=True)
class Choice:
    """What is to be trained, and on what.

    Attributes
    ----------
    model, objective, baseline : str
        Names of `MODELS`, `OBJECTIVES`, `BASELINES`.
    preset : {"paper", "paper-literal"}
        How the published estimator reads Eq. 5.
    gpus, nodes : int
        GPUs of a machine, and machines.
    gpu : str
        Name of the GPU; not used with ``memory``.
    memory : float, optional
        GB of a GPU.
    steps : int, optional
        Training steps; by default the paper's.
    offline : int, optional
        Rollouts of a prompt behind its pass rate; by default the paper's.

    Raises
    ------
    ConfigError
        If a name is unknown, a number is not positive, or the run does not fit the GPUs.
    """

    model: str
    objective: str = "grpo"
    baseline: str = "basis-unb"
    preset: str = "paper"
    gpus: int = 4
    nodes: int = 1
    gpu: str = PAPER_GPU
    memory: float | None = None
    steps: int | None = None
    offline: int | None = None

    def __post_init__(self) -> None:
        _known("--model", self.model, MODELS)
        _known("--objective", self.objective, OBJECTIVES)
        _known("--baseline", self.baseline, BASELINES)
        _known("--preset", self.preset, EQ5)
        for name in ("gpus", "nodes", "memory", "steps", "offline"):
            value = getattr(self, name)
            if value is not None and not 0 < value < _TOO_MUCH:
                option = {"memory": "--gpu-memory", "offline": "--n"}.get(name, f"--{name}")
                raise ConfigError(f"{option} is {value}: give a positive number, not above 1e6")
        if self.preset != "paper" and self.of_baseline.variant is None:
            raise ConfigError(
                f"--preset {self.preset} is for basis-unb, basis-vop and basis-rvg, not for "
                f"{self.baseline}: leave it out"
            )
        if self.offline is not None and not self.of_baseline.pass_rates:
            raise ConfigError(f"--n has no effect: {self.baseline} uses no pass rates")
        self.sizing()

    @property
    def of_model(self) -> PaperModel:
        """The model."""
        return MODELS[self.model]

    @property
    def of_objective(self) -> Objective:
        """The objective."""
        return OBJECTIVES[self.objective]

    @property
    def of_baseline(self) -> Baseline:
        """The baseline."""
        return BASELINES[self.baseline]

    @property
    def name(self) -> str:
        """Name of the run: objective and baseline."""
        if self.of_baseline.estimator is None:
            return f"{self.objective}-{self.of_baseline.rollouts}"
        suffix = "-literal" if self.preset == "paper-literal" else ""
        return f"{self.objective}-{self.baseline}{suffix}"

    @property
    def total_steps(self) -> int:
        """Training steps."""
        return int(self.of_baseline.steps.value) if self.steps is None else self.steps

    @property
    def offline_rollouts(self) -> Setting:
        """Rollouts behind a pass rate."""
        if self.offline is None:
            return self.of_model.offline
        return Setting("--n", self.offline, f"--n; the paper has {self.of_model.offline.value}")

    @property
    def gpu_memory(self) -> float:
        """GB of a GPU."""
        return memory_of(self.gpu) if self.memory is None else self.memory

    def sizing(self) -> Sizing:
        """How the model is spread over the GPUs."""
        return spread(self.of_model, gpus=self.gpus, nodes=self.nodes, memory=self.gpu_memory)


def _known(option: str, name: str, names: dict[str, Any]) -> None:
    if name not in names:
        raise ConfigError(f"{option} {name} is not known{nearest(name, list(names))}")


def common_groups(choice: Choice) -> list[Group]:
    """Settings that training and evaluation share."""
    sizing = sizing_settings(choice.sizing(), gpus=choice.gpus, nodes=choice.nodes)
    return [
        Group("Model and data", _data(choice)),
        Group("Rewards: the verifier that the pass rates are made with", _reward()),
        Group("Sampling", choice.of_model.sampling),
        Group("Size (rules: recipes/README.md)", sizing),
        Group("Run", _run(choice)),
    ]


def training_groups(choice: Choice) -> list[Group]:
    """Settings of training alone."""
    return [
        Group(f"Baseline: {choice.of_baseline.title}", _baseline(choice)),
        Group(f"Objective: {choice.of_objective.title}", choice.of_objective.settings),
        Group("Policy optimization", _optimization(choice)),
        Group("Steps and checkpoints", _steps(choice)),
    ]


def _data(choice: Choice) -> tuple[Setting, ...]:
    model, rollouts = choice.of_model, choice.of_baseline.rollouts
    share = "one rollout a prompt" if rollouts == 1 else f"{rollouts} rollouts a prompt"
    return (
        Setting(f"{_MODEL}path", "$model", "Section 5.2", expands=True),
        Setting("data.train_files", "$train", "written by basis-rl verl prepare", expands=True),
        Setting(
            "data.val_files",
            "$train",
            "verl wants a file here; not used",
            expands=True,
        ),
        Setting(
            "data.train_batch_size",
            ROLLOUTS // rollouts,
            f"Section 5.2, Appendix D: {ROLLOUTS} rollouts a step, {share}",
        ),
        model.max_prompt,
        model.max_response,
        *model.chat,
        Setting("data.filter_overlong_prompts", True, "assumed: longer prompts are left out"),
        Setting("data.truncation", "error", "assumed: verl's default"),
        Setting("data.seed", 42, "assumed: all baselines see the prompts in one order"),
    )


def _reward() -> tuple[Setting, ...]:
    return (
        Setting(
            "reward.custom_reward_function.path",
            "pkg://basis_rl.verifiers.verl_reward",
            "assumed: the paper does not name its verifier",
        ),
        Setting("reward.custom_reward_function.name", "math_score", "assumed: math-verify, 0 or 1"),
    )


def _run(choice: Choice) -> tuple[Setting, ...]:
    return (
        Setting("critic.enable", False, "Abstract: critic-free"),
        Setting("trainer.project_name", f"basis-{choice.model}", "assumed"),
        Setting("trainer.experiment_name", choice.name, "assumed"),
        Setting("trainer.default_local_dir", "$run", "assumed", expands=True),
        Setting("trainer.logger", "[console,file]", "assumed: add wandb if you have it"),
    )


def _baseline(choice: Choice) -> tuple[Setting, ...]:
    baseline, source = choice.of_baseline, "Section 5.2"
    rollouts = Setting(f"{_ROLLOUT}n", baseline.rollouts, f"{source}: rollouts of a prompt")
    if baseline.estimator is None:
        return (rollouts, *_group(choice))
    settings = [rollouts, baseline.estimator]
    if not baseline.stock:
        settings.append(Setting(f"{_MODEL}external_lib", "basis_rl.verl", "this package's plug-in"))
    if baseline.variant is not None:
        settings.append(Setting(f"{_BASIS}preset", choice.preset, EQ5[choice.preset]))
    if baseline.pass_rates:
        settings.append(
            Setting(
                f"{_BASIS}pass_rates",
                "$pass_rates",
                "Section 4: of the reference policy",
                expands=True,
            )
        )
    return (*settings, *baseline.settings)


def _group(choice: Choice) -> tuple[Setting, ...]:
    """The objective's own estimator with several rollouts."""
    name = choice.of_objective.group_estimator
    chosen = Setting("algorithm.adv_estimator", name, "Section 5.2: the group mean is the baseline")
    if name == "gpg":
        why = "assumed: verl's own gpg, which multiplies by rollouts / nonzero rewards"
        return (Setting(chosen.key, chosen.value, f"{chosen.source}; {why}"),)
    divided = Setting(
        "algorithm.norm_adv_by_std_in_grpo", True, "assumed: verl's default, as in GRPO's paper"
    )
    return (chosen, divided)


def _optimization(choice: Choice) -> tuple[Setting, ...]:
    mini = _MINI_BATCH[choice.of_baseline.rollouts]
    default = "assumed: verl's default"
    values: list[tuple[str, Value, str]] = [
        (f"{_ACTOR}ppo_mini_batch_size", mini, "Appendix D (in prompts): 2 inner updates a step"),
        (f"{_ACTOR}ppo_epochs", 1, "Appendix D: 2 inner updates, so once through the rollouts"),
        (f"{_ACTOR}optim.lr", 1e-6, "Appendix D"),
        (f"{_ACTOR}optim.lr_scheduler_type", "constant", default),
        (f"{_ACTOR}optim.lr_warmup_steps", -1, f"{default}: no warm-up"),
        (f"{_ACTOR}optim.weight_decay", 0.01, default),
        (f"{_ACTOR}optim.clip_grad", 1.0, default),
        (f"{_ACTOR}entropy_coeff", 0, default),
        (f"{_ACTOR}use_kl_loss", False, "Appendix D: no KL regularization"),
        ("algorithm.use_kl_in_reward", False, "Appendix D: no KL regularization"),
    ]
    return tuple(Setting(*each) for each in values)


def _steps(choice: Choice) -> tuple[Setting, ...]:
    said = choice.of_baseline.steps
    if choice.steps is not None and choice.steps != said.value:
        said = Setting(said.key, choice.steps, f"--steps; {said.source}")
    every = "assumed: a checkpoint for each evaluation (Figures 6 and 7: steps 50 to 300)"
    return (
        said,
        Setting("trainer.total_epochs", 1000, "assumed: the steps decide"),
        Setting("trainer.save_freq", 50, every),
        Setting("trainer.test_freq", -1, "assumed: evaluated afterwards, from the checkpoints"),
        Setting("trainer.val_before_train", False, "assumed: the same"),
        Setting("trainer.resume_mode", "auto", "the same command goes on from the last checkpoint"),
    )


def variables(choice: Choice, *, out: str = "runs") -> dict[str, str]:
    """Variables of the script with their values."""
    folder = f"{out}/{choice.model}"
    return {
        "model": choice.of_model.hub,
        "folder": folder,
        "train": f"{folder}/train.parquet",
        "pass_rates": f"{folder}/pass-rates.parquet",
        "run": f"{folder}/{choice.name}",
    }


def overrides(choice: Choice, *, out: str = "runs") -> list[str]:
    """Overrides of `verl.trainer.main_ppo` for training, as the script has them.

    Parameters
    ----------
    out : str
        Folder of all runs.
    """
    filled = variables(choice, out=out)
    groups = [*common_groups(choice), *training_groups(choice)]
    return [each.override(filled) for group in groups for each in group.settings]
