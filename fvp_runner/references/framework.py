"""References that are other frameworks running the model's file.

Invariant: inputs are checked against the file before the framework sees them; outputs are numpy arrays in the file's
order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.sizes import counted

from .base import ReferenceRunError

_DRAWS = 4  # of steps up and down

Slot = tuple[str, tuple[int, ...], str]  # an input's name, shape and numpy type


class FrameworkReference(ABC):
    what: str  # for reports
    package: str  # the distribution that has it

    def __init__(self, name: str, inputs: Sequence[Slot]) -> None:
        self.name = name
        self._inputs = tuple(inputs)

    @abstractmethod
    def _compute(self, inputs: Sequence[NDArray[Any]]) -> Any:
        """One result, or a sequence of them, of inputs that fit; each has `numpy()`."""

    def reset(self) -> None:
        """Graphs of these frameworks keep nothing between inferences."""
        return

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """The next inference of a sequence: the same as any other."""
        return self.run(inputs)

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`; `ReferenceRunError` for inputs that do not fit."""
        if len(inputs) != len(self._inputs):
            raise ReferenceRunError(f"{self.name} takes {counted(len(self._inputs), 'input')}, but got {len(inputs)}")
        for (name, shape, dtype), value in zip(self._inputs, inputs, strict=True):
            if value.shape != shape or value.dtype.name != dtype:
                raise ReferenceRunError(
                    f"input {name} of {self.name} must be {dtype}{list(shape)}, but is {value.dtype}{list(value.shape)}"
                )
        found = self._compute([np.ascontiguousarray(value) for value in inputs])
        results = [found] if hasattr(found, "numpy") else list(found)
        return tuple(np.array(r.numpy()) for r in results)


class RealReference(FrameworkReference):
    """One whose quantised operators are computed in real numbers, so that results may be a step away."""

    def change_by_steps(self, inputs: Sequence[NDArray[Any]]) -> tuple[float, ...]:
        """How far each output moves at most where every quantised value is one step up or down: of some draws."""
        expected, rng = self.run(inputs), np.random.default_rng(0)
        compute, most = self._with_steps(), [0.0] * len(expected)
        for _ in range(_DRAWS):
            found = compute(inputs, rng)
            results = [found] if hasattr(found, "numpy") else found
            for index, (one, wanted) in enumerate(zip(results, expected, strict=True)):
                moved = np.abs(one.numpy().astype(np.float64) - wanted.astype(np.float64))
                most[index] = max(most[index], float(moved.max(initial=0.0)))
        return tuple(most)

    @abstractmethod
    def _with_steps(self) -> Callable[[Sequence[NDArray[Any]], np.random.Generator], Any]:
        """What `_compute` does, with each value a step up or down, as drawn, before it is quantised."""
