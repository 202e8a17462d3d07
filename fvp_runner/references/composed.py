"""A network operator by operator: each by the kernels that its claim is of, the user's own by their NumPy references.

Invariant: every other operator is run alone by the kernels that would run it in its network, its states kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.exactness import MICRO
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.process.ending import raise_outside_cause

from .base import KeptStates, ReferenceRunError, fitting_inputs
from .litert import WHAT as LITERT
from .single_operator import ReferenceOperator


def has_own_operators(network: Network) -> bool:
    """Whether a NumPy reference is there for an operator of `network`."""
    return any(o.is_custom and _own_reference(o.name) is not None for o in network.cpu_operators)


def _own_reference(name: str) -> Callable[..., Any] | None:
    """The NumPy reference of an operator of the user's own. Imports TVM, which other networks do without."""
    from npu_memplan.frontend.host_ops.own import numpy_reference

    return numpy_reference(name)


class ComposedReference(KeptStates):
    """Each operator by the reference that has it."""

    package = "tflite-micro"

    def __init__(self, model: bytes, network: Network) -> None:
        super().__init__(model, network)
        own = "own NumPy references" if has_own_operators(network) else LITERT
        self.what = f"{MICRO} and {own}, operator by operator"
        self._others: dict[int, ReferenceOperator] = {}
        for operator in network.cpu_operators:
            if _own_reference(operator.name) is None:
                self._others[operator.index] = ReferenceOperator(model, network, operator)

    def reset(self) -> None:
        """Those of own operators are their references' matter."""
        for other in self._others.values():
            other.reset()

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        values = self._values(inputs)
        return tuple(values[index] for index in self.network.outputs)

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        values = self._values(inputs)
        return {i: values[i] for o in self.network.operators for i in o.outputs if i >= 0}

    def _values(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        tensors = self.network.tensors
        values = {i: tensor.array() for i, tensor in enumerate(tensors) if tensor.data is not None}
        values |= dict(zip(self.network.inputs, fitting_inputs(self.network, inputs), strict=True))
        for operator in self.network.cpu_operators:
            other = self._others.get(operator.index)
            if other is None:
                made = self._own(operator, [values[i] for i in operator.inputs if i >= 0])
                values |= dict(zip(operator.outputs, made, strict=True))
            else:
                made = list(other.step([values[i] for i in other.network.inputs]))
                values |= dict(zip(other.network.outputs, made, strict=True))
        return values

    def _own(self, operator: CpuOperator, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        reference = _own_reference(operator.name)
        assert reference is not None
        try:
            found = reference(*inputs, **operator.custom_options())
        except Exception as error:  # it is the user's own code
            raise_outside_cause(error)
            raise ReferenceRunError(
                f"the NumPy reference of {operator.name} failed: {type(error).__name__}: {error}; it gets the inputs "
                "as arrays and the options by name"
            ) from error
        made = [found] if isinstance(found, np.ndarray) else list(found)
        wanted = [self.network.tensors[i] for i in operator.outputs]
        if [(m.dtype.name, m.size) for m in made] != [(t.dtype, math.prod(t.shape)) for t in wanted]:
            raise ReferenceRunError(
                f"the NumPy reference of {operator.name} gave {[f'{m.dtype}{list(m.shape)}' for m in made]}, but "
                f"operator {operator.index} has the outputs {[f'{t.dtype}{list(t.shape)}' for t in wanted]}"
            )
        return [m.reshape(t.shape) for m, t in zip(made, wanted, strict=True)]
