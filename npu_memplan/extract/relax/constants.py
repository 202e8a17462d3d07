"""Constants as storages, for programs that keep them in pools, all or some.

Invariant: equal bytes on one device are one storage, whatever their shapes and dtypes; a constant's content is
known when the program is compiled and is never written. Only what a PrimFunc reads is a storage:
a constant that is a result, or an argument of another call, stays a Relax constant. What an NPU function takes as
resident is a storage of its own kind, whatever becomes of the others.
"""

from __future__ import annotations

import hashlib

from tvm import DataType

from ...names import Names
from ...problem import BufferKind
from ..program import Fixed, RelaxTensor, View


class Constants:
    """Hands out the storage of each constant; new ones are appended to `tensors`."""

    def __init__(self, names: Names, tensors: list[RelaxTensor], pooled: bool) -> None:
        """`pooled`: all constants are storages, otherwise those alone that are resident."""
        self.names = names
        self.tensors = tensors
        self.pooled = pooled
        self.known: dict[tuple[bytes, int, BufferKind], RelaxTensor] = {}

    def view(self, constant: Fixed, wanted: str, device: int, resident: bool) -> View | Fixed:
        """The storage of `constant` on `device`, called `wanted` if it is new; sub-byte elements stay what they are."""
        if not resident and not self.pooled:
            return constant
        kind = BufferKind.RESIDENT if resident else BufferKind.CONSTANT
        dtype = str(constant.expr.ty.dtype)
        if dtype != "bool" and DataType(dtype).bits < 8:
            return constant
        values = constant.expr.value.numpy()
        content = values.tobytes()
        key = (hashlib.sha256(content).digest(), device, kind)
        shape = tuple(int(extent) for extent in values.shape)
        if key not in self.known:
            tensor = RelaxTensor(self.names.unique(wanted), shape, dtype, len(content), kind)
            tensor.content, tensor.device = content, device
            self.tensors.append(tensor)
            self.known[key] = tensor
        return View(self.known[key], shape, dtype)
