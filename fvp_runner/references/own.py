"""The user's own operators, run by the NumPy references that were registered with them.

Invariant: what a reference returns has the types and sizes of the operator's outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.models.network import CpuOperator
from npu_memplan.process.ending import raise_outside_cause

from .base import KeptStates, ReferenceRunError, fitting_inputs

WHAT = "own NumPy references"


def own_reference(operator: CpuOperator) -> Callable[..., Any] | None:
    """The NumPy reference of an operator of the user's own; None: it is no such operator, or has none.

    Imports TVM, which networks without operators of the user's own do without.
    """
    if not operator.is_custom:
        return None
    from npu_memplan.frontend.host_ops.own import numpy_reference

    return numpy_reference(operator.name)


class OwnReference(KeptStates):
    """Operators of the user's own, one after another. Their states are their references' matter."""

    what = WHAT
    package = "numpy"

    def reset(self) -> None:
        return

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        values = self.layers(inputs)
        return tuple(values[index] for index in self.network.outputs)

    def layers(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        tensors = self.network.tensors
        values = {i: tensor.array() for i, tensor in enumerate(tensors) if tensor.data is not None}
        values |= dict(zip(self.network.inputs, fitting_inputs(self.network, inputs), strict=True))
        for operator in self.network.cpu_operators:
            made = self._run(operator, [values[i] for i in operator.inputs if i >= 0])
            values |= dict(zip(operator.outputs, made, strict=True))
        return {i: values[i] for o in self.network.operators for i in o.outputs}

    def _run(self, operator: CpuOperator, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        reference = own_reference(operator)
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
