"""Calls of exact host code that says what it does: their tensors, as the NPU's layers want them.

Invariant: every number comes from the call's constants and from the description in `LAYER`, which the code was
made with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lower.tensors import LayerTensor
from .reader import Reader, RejectedError, is_variable, shape_of


class DescribedCall:
    """Arguments of a described host call by the names of its parameters."""

    def __init__(self, reader: Reader, root: Any) -> None:
        call, layer = reader.need(root, "call_tir"), reader.layer
        if layer is None:
            raise RejectedError("it is host code that does not say what it does")
        self.layer = layer
        self._reader, self._type = reader, call.ty
        names = [str(n) for n in layer["parameters"]]
        arguments = reader.value(call.args[1]).fields
        self._arguments = dict(zip(names, arguments, strict=False))  # the outputs are no arguments
        self._scales = dict(zip(names, (float.fromhex(str(s)) for s in layer["scales"]), strict=True))
        self._zero_points = dict(zip(names, (int(z) for z in layer["zero_points"]), strict=True))

    def has(self, parameter: str) -> bool:
        return parameter in self._arguments

    def activation(self, parameter: str, name: str) -> tuple[LayerTensor, Any]:
        """An input: its tensor, and its variable."""
        variable = self._arguments[parameter]
        if not is_variable(variable):
            raise RejectedError(f"its {parameter} is a constant")
        return self._tensor(parameter, name, variable.ty), variable

    def operand(self, parameter: str, name: str) -> tuple[LayerTensor, Any]:
        """An input or a constant: its tensor with its values, and its variable (None for a constant)."""
        argument = self._arguments[parameter]
        if is_variable(argument):
            return self.activation(parameter, name)
        return replace(self._tensor(parameter, name, argument.ty), data=self._reader.array(argument)), None

    def output(self) -> LayerTensor:
        return self._tensor("output", "out", self._type)

    def _tensor(self, parameter: str, name: str, typed: Any) -> LayerTensor:
        scale, zero_point = self._scales[parameter], self._zero_points[parameter]
        return LayerTensor(name, shape_of(typed), str(typed.dtype), scale, zero_point)

    def constant(self, parameter: str) -> NDArray[Any]:
        values = self._reader.array(self._arguments[parameter])
        if values is None:
            raise RejectedError(f"its {parameter} is no constant")
        return values.astype(np.int64)

    def scale(self, parameter: str) -> float:
        return self._scales[parameter]
