"""The Ray cluster that the Ray engine works on: connecting to it, and what it has room for."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from basis_rl.errors import ConfigError


def connect(address: str | None) -> bool:
    """Make sure that Ray runs.

    Parameters
    ----------
    address : str, optional
        By default that of ``RAY_ADDRESS``, or a new cluster on this machine.

    Returns
    -------
    bool
        Whether it was started, or connected to, here.

    Raises
    ------
    ConfigError
        If Ray Data is missing or there is no cluster at the address.
    """
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ConfigError(
            f"engine 'ray' needs Ray Data ({error}): pip install 'ray[data]', or install "
            "basis-rl with its extra [ray]"
        ) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        return False
    local = {} if address else {"include_dashboard": False}
    try:
        with _quiet():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"cannot connect to Ray at {address or 'this machine'} ({lines[0]}): name the address "
            "of a running cluster, or none"
        ) from error
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Start Ray without its core's messages, unless the user has chosen a level for them."""
    name = "RAY_BACKEND_LOG_LEVEL"
    is_set = name in os.environ
    os.environ.setdefault(name, "fatal")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]


def disconnect(owns_ray: bool) -> None:
    """Shut Ray down if it was started here."""
    if owns_ray:
        import ray

        ray.shutdown()


def worker_needs(gpus: float | None, cpus: float, workers: int) -> dict[str, float]:
    """What one worker takes, by Ray's names.

    Parameters
    ----------
    gpus : float, optional
        Of one worker; by default 1 if the cluster has GPUs, else 0.
    cpus : float
    workers : int

    Raises
    ------
    ConfigError
        If the workers need more than the cluster has, which Ray would wait for.
    """
    import ray

    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    if gpus is None:
        gpus = 1 if there.get("GPU") else 0
    for name, each, kind in (("cpus", cpus, "CPU"), ("gpus", gpus, "GPU")):
        if each * workers > there.get(kind, 0):
            raise ConfigError(
                f"{workers} workers with {each} {kind}s each need more than the {kind}s of the "
                f"Ray cluster ({there.get(kind, 0):g}): lower workers or {name}_per_worker"
            )
    return {"num_cpus": cpus, "num_gpus": gpus}
