"""Completions from several GPUs or machines by Ray Data, one engine in each of its actors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from basis_rl.errors import BasisError, ConfigError, nearest
from basis_rl.rollouts.create import ENGINES, check_options
from basis_rl.rollouts.engine import Engine, Request, Rollouts
from basis_rl.rollouts.loading import check_dtype, load_longest, load_tokenizer
from basis_rl.rollouts.options import FIELDS, TEXT, real, whole
from basis_rl.rollouts.prompt_tokens import PromptTokens
from basis_rl.rollouts.ray_cluster import connect, disconnect, worker_needs
from basis_rl.rollouts.ray_worker import Worker, requests_text, rollouts_of
from basis_rl.rollouts.settings import Prompts, SamplingSettings

_LOCAL = ("transformers", "vllm")  # engines that have the model's tokenizer


class RayEngine(Engine):
    """Samples with one engine in each worker of a Ray cluster; make one with `open`.

    Prompts go to the workers in blocks. A block's rollouts come when all of them are done, and
    blocks come in their order, so that a restart makes the same ones.

    Parameters
    ----------
    model : str
    opening : mapping
        Arguments of `open_engine` in the workers, besides engine and model.
    engine : str
    workers : int
    worker_needs : mapping
        Of one worker: ``num_cpus``, ``num_gpus``.
    batch_size : int
    owns_ray : bool
        Whether `close` shuts Ray down.
    """

    name: ClassVar[str] = "ray"
    values: ClassVar = {
        "engine": TEXT,
        "workers": whole(1),
        "gpus_per_worker": real(),
        "cpus_per_worker": real(),
        "batch_size": whole(1),
        "address": TEXT,
        "engine_options": FIELDS,
    }

    def __init__(
        self,
        model: str,
        opening: Mapping[str, Any],
        *,
        engine: str,
        workers: int,
        worker_needs: Mapping[str, float],
        batch_size: int,
        owns_ray: bool,
    ) -> None:
        self.model = model
        self.revision = opening["revision"]
        self.dtype = None if opening["dtype"] == "auto" else opening["dtype"]
        self.version = _versions(engine)
        self.engine = engine
        self.workers = workers
        self.worker_needs: dict[str, Any] = dict(worker_needs)
        self.batch_size = batch_size
        self._opening = dict(opening)
        self._owns_ray = owns_ray
        self._tokens: PromptTokens | None = None

    @classmethod
    def open(  # type: ignore[override]
        cls,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        engine: str = "vllm",
        workers: int = 1,
        gpus_per_worker: float | None = None,
        cpus_per_worker: float = 1,
        batch_size: int = 64,
        address: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> RayEngine:
        """Connect to a Ray cluster, or start one on this machine.

        A Ray that runs in this process already is used and left running.

        Parameters
        ----------
        model : str
            Folder or hub id, to be had on every machine.
        revision : str, optional
        dtype : str
            auto, bfloat16, float16 or float32.
        engine : str
            What samples in each worker: vllm, transformers or openai.
        workers : int
        gpus_per_worker : float, optional
            By default 1 if the cluster has GPUs, else 0.
        cpus_per_worker : float
        batch_size : int
            Prompts in a block: what a worker samples at a time, and what is lost of its work if
            all is stopped. Fewer blocks than workers leave some idle.
        address : str, optional
            Of the cluster; by default that of ``RAY_ADDRESS``, or a new one on this machine.
        engine_options : mapping, optional
            Options of the engine in the workers.

        Raises
        ------
        ConfigError
            If Ray is missing, an option is wrong, or the cluster has no room for the workers.
        """
        check_dtype(dtype)
        cls.check_options(
            {
                "engine": engine,
                "workers": workers,
                "gpus_per_worker": gpus_per_worker,
                "cpus_per_worker": cpus_per_worker,
                "batch_size": batch_size,
                "address": address,
                "engine_options": engine_options,
            }
        )
        owns_ray = connect(address)
        try:
            needs = worker_needs(gpus_per_worker, cpus_per_worker, workers)
        except ConfigError:
            disconnect(owns_ray)
            raise
        opening = {"revision": revision, "dtype": dtype, "options": dict(engine_options or {})}
        return cls(
            model,
            opening,
            engine=engine,
            workers=workers,
            worker_needs=needs,
            batch_size=batch_size,
            owns_ray=owns_ray,
        )

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse wrong options, also those of the engine in the workers.

        Raises
        ------
        ConfigError
            Naming the option.
        """
        super().check_options(options)
        engine = options.get("engine", "vllm")
        inner = sorted(set(ENGINES) - {cls.name})
        if engine not in inner:
            raise ConfigError(
                f"no engine {engine!r} for the workers of Ray{nearest(engine, inner)}"
            )
        check_options(engine, options.get("engine_options") or {})

    def check(self, prompts: Prompts, settings: SamplingSettings) -> None:
        """Refuse prompts that cannot be sampled, by the tokenizer alone.

        Raises
        ------
        ConfigError
            If a prompt has no tokens or is too long for the model, its template refuses a chat, or
            the tokenizer cannot be loaded.
        """
        if self.engine not in _LOCAL:
            return
        if self._tokens is None:
            limit = self._opening["options"].get("max_model_len")
            self._tokens = PromptTokens(
                load_tokenizer(self.model, self.revision),
                self.model,
                limit or load_longest(self.model, self.revision),
            )
        self._tokens.encode(prompts, settings.max_tokens)

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Sample in the workers, which open their engine in every call.

        Yields
        ------
        list of Rollouts
            One block.

        Raises
        ------
        BasisError
            A worker's own; if a worker dies again and again.
        """
        if not requests:
            return
        blocks = [
            requests_text(requests[start : start + self.batch_size])
            for start in range(0, len(requests), self.batch_size)
        ]
        from ray.exceptions import RayError

        # The workers' current folder is that of the cluster's start.
        model = os.path.abspath(self.model) if os.path.isdir(self.model) else self.model
        batches = self._batches(blocks, (self.engine, model, self._opening, settings, seed))
        try:
            for batch in batches:
                for text in batch["rollouts"].to_pylist():
                    yield rollouts_of(text)
        except RayError as error:
            lines = str(error).strip().splitlines() or [""]
            raise BasisError(
                f"Ray failed ({type(error).__name__}: {lines[-1]}): look at a worker's log, and "
                "give workers more memory or fewer prompts at a time"
            ) from error
        finally:
            # Ends the workers.
            batches.close()

    def _batches(self, blocks: Sequence[str], arguments: tuple[Any, ...]) -> Any:
        import ray

        with warnings.catch_warnings():  # about the names of its own entries
            warnings.simplefilter("ignore", DeprecationWarning)
            context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.execution_options.preserve_order = True
        with ray.data.DataContext.current(context):
            dataset = ray.data.from_items(
                [{"requests": text} for text in blocks], override_num_blocks=len(blocks)
            ).map_batches(
                Worker,
                fn_constructor_args=arguments,
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(
                    size=min(self.workers, len(blocks)), max_tasks_in_flight_per_actor=2
                ),
                **self.worker_needs,
            )
        # Prefetching would hold a block back until the next one is done.
        yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)

    def close(self) -> None:
        """Shut Ray down, if it was started here."""
        disconnect(self._owns_ray)
        self._owns_ray = False


def _versions(engine: str) -> str:
    inner = "unknown"
    with suppress(PackageNotFoundError):
        inner = version(engine)
    return f"{version('ray')} with {engine} {inner}"
