"""The demo from beginning to end: pass rates, training, test before and after, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from basis_rl import __version__, verifiers
from basis_rl.batch import FloatArray
from basis_rl.demo import evaluate, report, smollm2, tasks
from basis_rl.demo.display import Display
from basis_rl.demo.policy import SAMPLING, Policy
from basis_rl.demo.settings import DemoSettings
from basis_rl.demo.stages import Stages
from basis_rl.demo.training import METHODS, WEIGHTS, Method, train
from basis_rl.messages import one_line_warnings, quiet_transformers
from basis_rl.passrates import PassRates
from basis_rl.passrates.build import build_cache

WORK = "work"
TABLE = "pass-rates.parquet"
_CONVERTED = "converted"


class Demo:
    """A run of the demo; `run` goes through its stages.

    Parameters
    ----------
    settings : DemoSettings
    display : Display, optional
    """

    def __init__(self, settings: DemoSettings, display: Display | None = None) -> None:
        self.settings = settings
        self.methods = {
            name: method for name, method in METHODS.items() if name == "basis" or settings.compare
        }
        self.prompts = tasks.split(
            settings.tasks, train=settings.train, test=settings.test, seed=settings.seed
        )
        self.verifier = verifiers.create("exact")
        # model, pass rates, test before, report; training and test after of each method
        self.display = display or Display(4 + 2 * len(self.methods))
        self.seconds: dict[str, float] = {}
        self._stages = Stages(settings.out / WORK)
        self._settings_so_far: dict[str, Any] = {"basis-rl": __version__}

    def run(self) -> dict[str, Any]:
        """Run all stages that are not done, and write the report.

        Returns
        -------
        dict
            The content of report.json.

        Raises
        ------
        ConfigError
            If the model cannot be loaded.
        KeyboardInterrupt
            After Ctrl-C; what is done by then is kept.
        """
        with quiet_transformers(), one_line_warnings():
            import torch

            torch.set_num_threads(self.settings.processor_threads)
            policy = self._model()
            table = self._pass_rates(policy)
            before = self._test(policy, "test before", None)
            runs = {
                name: self._train_and_test(name, method, policy, table, before)
                for name, method in self.methods.items()
            }
        self.display.stage("report")
        numbers = report.collect(self.settings, policy, self.prompts, table, runs, self.seconds)
        table.save(self.settings.out / TABLE)
        for path in [*report.write(numbers, self.settings.out), self.settings.out / TABLE]:
            self.display.say(f"      {path}")
        return numbers

    def _model(self) -> Policy:
        if self.settings.model is not None:
            self.display.stage(f"model: {self.settings.model}")
            self._settings_so_far["model"] = self.settings.model
            return Policy(self.settings.model, self.settings.model)
        weights = smollm2.find_weights()
        self.display.stage(f"model: {smollm2.NAME} from {smollm2.PACKAGE}")
        name = f"{smollm2.NAME} ({smollm2.PACKAGE} {smollm2.VERSION})"

        def work(folder: Path) -> dict[str, Any]:
            smollm2.convert(weights, folder / _CONVERTED)
            return {}

        folder = self._stage("model", {"model": name}, work, outputs=[_CONVERTED])[1]
        return Policy(name, str(folder / _CONVERTED))

    def _pass_rates(self, policy: Policy) -> PassRates:
        settings = self.settings
        prompts = self.prompts["train"]
        count = len(prompts) * settings.reference_rollouts
        self.display.stage(f"pass rates of the reference policy: {count} rollouts")

        def work(folder: Path) -> dict[str, Any]:
            with self.display.bar(len(prompts), "prompts") as update:
                build_cache(
                    prompts,
                    policy.engine(),
                    self.verifier,
                    folder / TABLE,
                    n=settings.reference_rollouts,
                    settings=SAMPLING,
                    seed=settings.seed,
                    progress=lambda now: update(now.prompts_done, f"mean reward {now.mean:.2f}"),
                    extra={"data": f"demo tasks {', '.join(settings.tasks)}, seed {settings.seed}"},
                )
            return {}

        own = {
            "tasks": list(settings.tasks),
            "train": settings.train,
            "test": settings.test,
            "seed": settings.seed,
            "rollouts": settings.reference_rollouts,
        }
        folder = self._stage("pass-rates", own, work, outputs=[TABLE])[1]
        table = PassRates.load(folder / TABLE)
        for task in settings.tasks:
            known = table.rows([prompt.key for prompt in prompts if prompt.source == task])
            if not table.means[known].any():
                self.display.say(
                    f"      warning: the model never solves {task}; there is nothing to learn from"
                )
        return table

    def _train_and_test(
        self, name: str, method: Method, policy: Policy, table: PassRates, before: FloatArray
    ) -> dict[str, Any]:
        settings = self.settings
        group = method.rollouts_per_prompt
        self.display.stage(
            f"training with {method.label}: {settings.steps} steps of {settings.batch_size} "
            f"rollouts, {group} per prompt"
        )
        own = {
            "method": name,
            "steps": settings.steps,
            "batch_size": settings.batch_size,
            "learning_rate": settings.learning_rate,
        }

        def work(folder: Path) -> dict[str, Any]:
            return train(
                method,
                policy,
                self.prompts["train"],
                table,
                self.verifier,
                settings,
                folder,
                self.display,
            )

        shared = dict(self._settings_so_far)
        result, folder = self._stage(f"train {name}", own, work, outputs=[WEIGHTS])
        after = self._test(policy, f"test after {name}", folder / WEIGHTS)
        self._settings_so_far = shared  # the next method does not build on this one
        return report.run_entry(
            method, result["history"], evaluate.by_task(self.prompts["test"], before, after)
        )

    def _test(self, policy: Policy, stage: str, weights: Path | None) -> FloatArray:
        settings = self.settings
        prompts = self.prompts["test"]
        self.display.stage(f"{stage}: {len(prompts)} prompts, {settings.samples} completions each")

        def work(folder: Path) -> dict[str, Any]:
            engine = policy.engine(weights)
            with self.display.bar(len(prompts), "prompts") as update:
                rewards = evaluate.rewards(
                    engine,
                    prompts,
                    self.verifier,
                    SAMPLING,
                    samples=settings.samples,
                    seed=settings.seed,
                    progress=lambda done, _, mean: update(done, f"accuracy {mean:.2f}"),
                )
            return {"rewards": rewards.tolist()}

        own = {"samples": settings.samples, "weights": weights is not None}
        return np.array(self._stage(stage, own, work)[0]["rewards"])

    def _stage(
        self, name: str, own: dict[str, Any], work: Any, *, outputs: Sequence[str] = ()
    ) -> tuple[dict[str, Any], Path]:
        """Result and folder of a stage; its settings include those of the stages before it."""
        self._settings_so_far[name] = own
        settings = dict(self._settings_so_far)
        done = self._stages.run(name.replace(" ", "-"), settings, work, outputs=outputs)
        self.seconds[name] = done.seconds
        if done.reused:
            self.display.say("      done before, with the same settings")
        return done.result, done.folder
