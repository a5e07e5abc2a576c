"""Gradients as short random sketches that keep inner products."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from basis_rl.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_WIDTH = 65536
_MOST_SLOTS = 1024
_PIECE = 2**24  # numbers of a gradient in float32 at a time


class GradientSketch:
    r"""Count sketch of a gradient that arrives parameter by parameter.

    A parameter is cut into rows of d numbers. Number j of row r goes with the sign ``u_r v_j`` to
    entry ``(j + shift_r) mod d`` of the sketch; u, v and the shifts are random, drawn anew for
    each parameter from the seed and its name. Two numbers that meet in an entry come from
    different rows, whose signs are independent: inner products of sketches are those of the
    gradients in expectation over the seeds, with variance about
    ``(|g|^2 |h|^2 + <g, h>^2) / d``, so a relative error of ``sqrt(2 / d)`` of a squared norm.
    What is held is a few numbers a row, never a matrix of size d by the number of parameters.

    Parameters
    ----------
    sizes : mapping of str to int
        Numbers of each parameter, by name.
    width : int
        d, from 2 to 65536.
    seed : int
    device : torch.device
        Where the gradients are.

    Raises
    ------
    ConfigError
        If the width is out of range.

    References
    ----------
    M. Charikar, K. Chen, M. Farach-Colton, Finding frequent items in data streams, 2002.
    """

    def __init__(
        self, sizes: Mapping[str, int], *, width: int = 4096, seed: int = 0, device: Any = "cpu"
    ) -> None:
        import torch

        if not 2 <= width <= _LARGEST_WIDTH:
            raise ConfigError(
                f"the sketch's width is {width}: use 2 to {_LARGEST_WIDTH}, e.g. 4096"
            )
        self.width, self._seed, self._device = width, seed, device
        self._rows = {name: -(-size // width) for name, size in sizes.items()}
        slots = min(width, _MOST_SLOTS)
        shifts = torch.from_numpy(self._random("").permutation(width)[:slots])
        self._index = (torch.arange(width)[None, :] - shifts[:, None]).remainder(width).to(device)
        # Rows with the same shift are added up first; they are shifted once, at the end.
        self._sums = torch.zeros(slots, width, device=device)
        self._square = torch.zeros((), dtype=torch.float64, device=device)
        self._numbers: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def add(self, name: str, gradient: Tensor) -> None:
        """Take in the gradient of one parameter, in its own shape and number type."""
        columns, signs, slots = self._numbers_of(name)
        flat = gradient.detach().reshape(-1)
        step = max(_PIECE // self.width, 1)
        for row in range(0, self._rows[name], step):
            piece = flat[row * self.width : (row + step) * self.width].float()
            self._square += piece.square().sum().double()
            block = self._whole_rows(piece) * columns
            block *= signs[row : row + step, None]
            self._sums.index_add_(0, slots[row : row + step], block)

    def take(self) -> tuple[npt.NDArray[np.float32], float]:
        """Sketch of what was added, shape (d,), and its exact squared norm; starts anew."""
        sketch = self._sums.gather(1, self._index).sum(0).cpu().numpy()
        square = float(self._square)
        self._sums.zero_()
        self._square.zero_()
        return sketch, square

    def _whole_rows(self, piece: Tensor) -> Tensor:
        missing = -len(piece) % self.width
        if missing:
            import torch

            piece = torch.nn.functional.pad(piece, (0, missing))
        return piece.view(-1, self.width)

    def _numbers_of(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Signs of the columns (d,), signs and slots of the rows (R,)."""
        import torch

        if name not in self._numbers:
            random, rows = self._random(name), self._rows[name]
            arrays = (
                random.choice(np.array([-1, 1], dtype=np.float32), self.width),
                random.choice(np.array([-1, 1], dtype=np.float32), rows),
                random.integers(len(self._sums), size=rows),
            )
            columns, signs, slots = (torch.from_numpy(a).to(self._device) for a in arrays)
            self._numbers[name] = columns, signs, slots
        return self._numbers[name]

    def _random(self, name: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed}\0{name}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))
