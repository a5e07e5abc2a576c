"""The device that a model is put on."""

from __future__ import annotations

from basis_rl.errors import ConfigError


def usable_device(device: str | None = None) -> str:
    """Name of a device that torch can use here.

    Parameters
    ----------
    device : str, optional
        By default the GPU if there is one, else the CPU.

    Raises
    ------
    ConfigError
        If torch does not know it, or cannot use it here.
    """
    import torch

    there = torch.cuda.is_available()
    if device is None:
        return "cuda" if there else "cpu"
    try:
        # AssertionError: a build of torch without CUDA.
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        said = " ".join(str(error).split())
        gpus = f"cuda ({torch.cuda.device_count()} here)" if there else "no GPU can be used here"
        raise ConfigError(f"device is {device!r} ({said:.120}): use cpu; {gpus}") from error
    return device
