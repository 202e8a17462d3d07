"""What a layer's emitter works with: its tensors as operands of NPU operations, and the operations that moves share.

Invariant: an operand is in [height, width, channels] and carries its zero point, unless its stored values are wanted
`raw`; data movements use zero point 0 and no scale, so they copy bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...fixed_point.multiplier import joined_uint8
from ..stream.isa import PoolMode, Rounding, Upscale
from .emit import Builder, LoweringError
from .operands import Operand, Output, Window
from .scaling import UNITY, Scale, double, quantise_multiplier
from .tensors import LayerTensor, Padding
from .views import Storage, TensorView, images


@dataclass(frozen=True, slots=True)
class EmitContext:
    """One graph on its way into `builder`."""

    builder: Builder
    tensors: Mapping[str, LayerTensor]
    storage: Storage
    real: bool  # results are real numbers rounded once, not TFLite's fixed point
    for_cycles: bool = False  # time is worth more than bytes
    table: NDArray[np.int64] | None = None  # looked up by the operation of a layer that `takes_tables`

    def view(self, name: str) -> TensorView:
        """Where a tensor's bytes are; those of constants are added to the program."""
        tensor = self.tensors[name]
        if tensor.data is not None:
            return self.builder.constant_view(tensor.data.astype(tensor.dtype))
        return self.storage.views[name]

    def operand(self, name: str, *, raw: bool = False) -> Operand:
        """A tensor as [H, W, C]; `raw` without its zero point."""
        view = self.view(name).hwc()
        if view is None:
            raise LoweringError(f"tensor {name} has strides {self.view(name).strides} that the NPU cannot walk")
        tensor = self.tensors[name]
        if tensor.stored is not None and name not in self.storage.copies:
            return Operand(view, *tensor.stored)
        return Operand(view, tensor.dtype, 0 if raw else tensor.zero_point)

    def second(self, name: str, ofm: Operand) -> Operand:
        """The second operand of an elementwise operation, broadcast where it is smaller than `ofm`."""
        tensor = self.tensors[name]
        if tensor.data is not None and tensor.data.size == 1 and tensor.stored is None:
            return self.builder.scalar(int(tensor.data.item()), tensor.dtype, tensor.zero_point)
        operand = self.operand(name)
        shape = operand.view.shape
        if any(mine not in (1, whole) for mine, whole in zip(shape, ofm.view.shape, strict=True)):
            raise LoweringError(f"tensor {name} of shape {shape} cannot be broadcast to {ofm.view.shape}")
        return operand

    def output(self, clamp: tuple[int, int], scale: Scale | None = None) -> Output:
        """A rescaled result, rounded as the graph's arithmetic wants."""
        return Output(clamp, scale, Rounding.NATURAL if self.real else Rounding.TFL, self.table)

    def rescaled(self, source: str, result: str, clamp: tuple[int, int]) -> Output:
        """Values of tensor `source` in the scale of `result`."""
        ratio = double(self.tensors[source].scale) / double(self.tensors[result].scale)
        return self.output(clamp, quantise_multiplier(ratio))

    def copy(self, source: TensorView, target: TensorView, dtype: str, clamp: tuple[int, int] | None = None) -> None:
        """Move elements, `clamp`ed where that is given: a 1x1 maximum has no arithmetic."""
        info = np.iinfo(dtype)
        output = Output(clamp or (int(info.min), int(info.max)), UNITY)
        for a, b in _images(source, target):
            self.builder.pool(PoolMode.MAX, Operand(a, dtype), Operand(b, dtype), Window(), output)

    def rescale(self, name: str, target: TensorView, result: str) -> None:
        """Put tensor `name` into `target`, a part of tensor `result`, in the scale of that."""
        source, out = self.tensors[name], self.tensors[result]
        output, base = self.rescaled(name, result, out.limits), (source.zero_point, out.zero_point)
        if source.dtype == "uint8" and not self.real:  # no rounding of the NPU is that of the reference's float32
            entries = joined_uint8((source.scale, source.zero_point), (out.scale, out.zero_point))
            output, base = Output(source.limits, UNITY, table=np.array(entries, np.int64)), (0, 0)
        whole = self.view(name)
        for a, b in _images(whole, target):
            ifm = self.operand(name) if whole.hwc() == a else Operand(a, source.dtype, source.zero_point)
            ifm = replace(ifm, zero_point=ifm.zero_point - source.zero_point + base[0])
            self.builder.pool(PoolMode.AVERAGE, ifm, Operand(b, out.dtype, base[1]), Window(), output)


def _images(source: TensorView, target: TensorView) -> list[tuple[TensorView, TensorView]]:
    found = images(source, target)
    if found is None:
        raise LoweringError(f"no NPU operation moves {source} to {target}")
    return found


def exact_window(window: Window, ifm: Operand, ofm: Operand) -> Window:
    """The window with the padding that is really read: the NPU derives the input's extent from it."""
    scale = 1 if window.upscale is Upscale.NONE else 2
    padding = window.padding

    def padding_after(axis: int, before: int) -> int:
        extent = (ofm.view.shape[axis] - 1) * window.stride[axis] + window.dilated[axis]
        return max(extent - before - scale * ifm.view.shape[axis], 0)

    exact = Padding(padding.top, padding.left, padding_after(0, padding.top), padding_after(1, padding.left))
    return replace(window, padding=exact)


def reshaped(operand: Operand, shape: tuple[int, int, int]) -> Operand:
    """A dense operand under another shape."""
    view = operand.view.reshaped(shape)
    if view is None:
        raise LoweringError(f"the bytes of {operand.view} are not dense: they cannot be read as {shape}")
    return replace(operand, view=view)
