from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from random_qwen3 import save_model

from basis_rl import errors
from basis_rl.errors import BasisError, ConfigError
from basis_rl.passrates.build import build_cache
from basis_rl.prompts import Prompt
from basis_rl.rollouts import (
    Completion,
    Request,
    Rollouts,
    SamplingSettings,
    TransformersEngine,
    open_engine,
)
from basis_rl.rollouts.ray_engine import RayEngine
from basis_rl.rollouts.ray_worker import (
    Worker,
    error_text,
    requests_of,
    requests_text,
    rollouts_of,
    rollouts_text,
)
from basis_rl.verifiers import NamedVerifier

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

SETTINGS = SamplingSettings(max_tokens=8, stop=("9",))
LIMIT_S = 60


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """No test waits for Ray without end."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def plain(folder: str) -> TransformersEngine:
    return TransformersEngine.open(folder, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """A Ray that was there before the engine."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def open_ray(folder: str, **options: Any) -> RayEngine:
    return RayEngine.open(
        folder, dtype="float32", **{"engine": "transformers", "gpus_per_worker": 0, **options}
    )


ODD: list[Any] = [
    "plain",
    "",
    "half a pair \ud800, zero \0, \N{GRINNING FACE}, line\n",
    [{"role": "user", "content": "hi"}],
    [{"role": "user", "content": "hi", "name": None, "tags": {"a": [1, None, 2.5]}}],
    [{"role": "system", "content": "s", "x": {}}, {"role": "user", "content": "\ud800"}],
]


def test_two_workers_give_what_the_engine_gives_alone(
    folder: str, plain: TransformersEngine, started: None
) -> None:
    prompts: list[Any] = [
        "plain",
        [{"role": "user", "content": "hi", "name": None, "tags": {"a": [1, None, 2.5]}}],
        [{"role": "user", "content": "é"}],
        *(f"{i}+{i}=" for i in range(4)),
    ]
    requests = [Request(f"k{i}", prompt, i % 2, 2 + i) for i, prompt in enumerate(prompts)]
    blocks = [requests[i : i + 2] for i in range(0, len(requests), 2)]
    with open_ray(folder, workers=2, batch_size=2) as engine:
        engine.check(prompts, SETTINGS)
        finished = list(engine.stream(requests, SETTINGS, seed=3))
        assert list(engine.stream([], SETTINGS)) == []
    assert ray.is_initialized()  # it was there before
    alone = [
        [part for batch in plain.stream(block, SETTINGS, seed=3) for part in batch]
        for block in blocks
    ]
    assert finished == alone


def test_a_cache_is_that_of_the_engine_alone(
    folder: str, plain: TransformersEngine, started: None, tmp_path: Path
) -> None:
    """Rounding differs with the batch: a few of the 240 completions may be others."""
    prompts = [Prompt(f"k{i}", f"{i}+{i}=", None, {}) for i in range(6)]
    verifier = NamedVerifier("odd", "1", lambda text, _: float(len(text) % 2))
    with open_ray(folder, workers=2, batch_size=3) as engine:
        ours = build_cache(
            prompts, engine, verifier, tmp_path / "ray.parquet", n=40, settings=SETTINGS
        )
    alone = build_cache(
        prompts, plain, verifier, tmp_path / "alone.parquet", n=40, settings=SETTINGS
    )
    assert ours.provenance.extra["build"]["engine"] == "ray"
    assert ours.keys == alone.keys
    assert ours.n.tolist() == alone.n.tolist() == [40] * 6
    assert ours.successes is not None
    assert alone.successes is not None
    assert 0 < alone.successes.sum() < 240
    assert abs(ours.successes - alone.successes).sum() <= 3


def test_an_error_in_a_worker_comes_back_in_one_line_and_ends_the_workers(
    folder: str, started: None
) -> None:
    requests = [Request(f"k{i}", "p" * length) for i, length in enumerate([3, 300, 3, 3])]
    finished: list[list[Rollouts]] = []
    with open_ray(folder, workers=1, batch_size=1) as engine:
        with pytest.raises(ConfigError, match="has 300 tokens, with max_tokens 8") as caught:
            finished.extend(engine.stream(requests, SETTINGS))
        assert "\n" not in str(caught.value)
        assert [part.key for part in finished[0]] == ["k0"]
        assert len(finished) == 1
        while ray.available_resources().get("CPU", 0) < 2:
            time.sleep(0.1)


def test_the_cluster_has_no_room(folder: str, started: None) -> None:
    with pytest.raises(ConfigError, match=r"3 workers with 1 CPUs each need more .* \(2\)"):
        open_ray(folder, workers=3)
    with pytest.raises(ConfigError, match="lower workers or gpus_per_worker"):
        open_ray(folder, gpus_per_worker=999)
    assert ray.is_initialized()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "ray"}, "no engine 'ray' for the workers"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"engine_options": {"batch_sise": 1}}, "did you mean 'batch_size'"),
        ({"workers": 0}, "workers is 0"),
        ({"batch_size": "many"}, "batch_size is 'many'"),
        ({"gpus_per_worker": -1}, "gpus_per_worker is -1"),
        ({"cpus_per_worker": "1"}, "cpus_per_worker is '1'"),
        ({"gpus_per_worker": float("nan")}, "gpus_per_worker is nan"),
        ({"workers": True}, "workers is True"),
        ({"engine_options": {"batch_size": 0}}, "batch_size is 0"),
        ({"engine": "openai"}, "needs the address of a server"),
        ({"engine": "vllm", "engine_options": {"max_num_seqs": 1.5}}, "max_num_seqs is 1.5"),
    ],
)
def test_wrong_options_are_refused_before_ray_starts(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: pytest.fail("Ray was asked for"))
    with pytest.raises(ConfigError) as caught:
        open_ray("none", **options)
    assert words in str(caught.value)
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        open_engine("ray", "none", dtype="int8")


def test_prompts_are_checked_without_a_worker(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = {"revision": None, "dtype": "auto", "options": {}}
    needs: dict[str, Any] = {"workers": 1, "worker_needs": {}, "batch_size": 1, "owns_ray": False}
    engine = RayEngine(folder, opening, engine="transformers", **needs)
    engine.check(["p"], SETTINGS)
    with pytest.raises(ConfigError, match="has 300 tokens"):
        engine.check(["p" * 300], SETTINGS)
    short = RayEngine(folder, {**opening, "options": {"max_model_len": 9}}, engine="vllm", **needs)
    with pytest.raises(ConfigError, match="more than the model's 9"):
        short.check(["pp"], SETTINGS)
    # A server's tokenizer is not here.
    RayEngine("none", opening, engine="openai", **needs).check(["p" * 300], SETTINGS)


def worker(model: str) -> Worker:
    return Worker("transformers", model, {"dtype": "float32"}, SETTINGS, 0)


def sampled(of: Worker, requests: list[Request]) -> list[Rollouts]:
    return rollouts_of(of({"requests": [requests_text(requests)]})["rollouts"][0])


def test_a_worker_without_ray(folder: str, plain: TransformersEngine, tmp_path: Path) -> None:
    requests = [Request("k", "p", 3, 2)]
    assert sampled(worker(folder), requests) == next(plain.stream(requests, SETTINGS))
    with pytest.raises(ConfigError, match="cannot load model"):
        sampled(worker(str(tmp_path / "none")), requests)


def test_requests_and_rollouts_travel_unchanged() -> None:
    requests = [Request(f"k\ud800{i}", prompt, i, i + 1) for i, prompt in enumerate(ODD)]
    text = requests_text(requests)
    assert requests_of(text) == requests
    text.encode("ascii")
    rollouts = [Rollouts("\ud800", 3, (Completion("\0\ud800\n", 5, True), Completion("", 1)))]
    assert rollouts_of(rollouts_text(rollouts)) == rollouts
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        requests_text([Request("k", [{"role": "user", "content": b"x"}])])  # type: ignore[list-item]


def test_errors_travel_as_one_line() -> None:
    with pytest.raises(errors.PromptsError, match=r"^line 3$"):
        rollouts_of(error_text(errors.PromptsError("line 3")))
    with pytest.raises(BasisError, match=r"^a worker failed: KeyError: 'a b'$") as caught:
        rollouts_of(error_text(KeyError("a b")))
    assert "KeyError" in str(caught.value.__cause__)
    assert "Traceback" not in json.loads(error_text(BasisError("x")))


def test_workers_find_a_folder_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's workers have the current folder of the cluster's start."""
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []

    def no_batches(self: RayEngine, blocks: Any, arguments: tuple[Any, ...]) -> Iterator[Any]:
        asked.append(arguments[1])
        yield from ()

    monkeypatch.setattr(RayEngine, "_batches", no_batches)
    for name in ("model", "owner/model"):
        opening = {"revision": None, "dtype": "auto", "options": {}}
        engine = RayEngine(
            name,
            opening,
            engine="transformers",
            workers=1,
            worker_needs={},
            batch_size=1,
            owns_ray=False,
        )
        assert list(engine.stream([Request("k", "p", 0, 1)], SETTINGS)) == []
        assert engine.model == name  # as given, in a table's provenance
    assert asked == [str(tmp_path / "model"), "owner/model"]
