"""One emitter for each layer type: a layer and its operands to NPU operations.

Invariant: the numbers an emitter produces are the ones that the graph's arithmetic defines: those of TFLite's
reference kernels, or real numbers rounded once; data movements use zero point 0 and no scale, so they copy bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from ..schedule.blocks import part_kernel_first
from ..stream.isa import ElementwiseMode, PoolMode, Rounding, Upscale
from .composed import lower_prelu, lower_squared_difference
from .emit import Builder, LoweringError
from .graph import (
    Abs,
    Arithmetic,
    Binary,
    BinaryKind,
    Concat,
    Conv,
    Graph,
    Layer,
    Lookup,
    Pad,
    Padding,
    Pool,
    PoolKind,
    Prelu,
    Requantize,
    Reshape,
    Resize,
    SequenceLstm,
    Slice,
    Softmax,
    Squash,
    Tensor,
    Transpose,
)
from .lstm import Place, SequenceLowering
from .operands import Operand, Output, Window
from .resize import lower_resize
from .scaling import (
    UNITY,
    Scale,
    add_scales,
    conv_scale,
    double,
    mean_scale,
    mul_scale,
    quantise_multiplier,
    real_mean_scale,
    reciprocal_scale,
    rounded_once,
    squash_scale,
)
from .softmax import lower_softmax
from .storage import Storage, offset_in
from .views import View

_MODES = {
    BinaryKind.ADD: ElementwiseMode.ADD,
    BinaryKind.SUB: ElementwiseMode.SUB,
    BinaryKind.MUL: ElementwiseMode.MUL,
    BinaryKind.MIN: ElementwiseMode.MIN,
    BinaryKind.MAX: ElementwiseMode.MAX,
}


class Emitter:
    """Lowers the layers of one graph into `builder`."""

    def __init__(self, builder: Builder, graph: Graph, storage: Storage) -> None:
        self.builder = builder
        self.graph = graph
        self.storage = storage
        self.real = graph.arithmetic is Arithmetic.REAL

    def emit(self, layer: Layer) -> None:
        """Append the operations of one layer; moves that are views append nothing."""
        getattr(self, f"_{type(layer).__name__.lower()}")(layer)

    # ------------------------------------------------------------------ operands

    def _tensor(self, name: str) -> Tensor:
        return self.graph.tensors[name]

    def _view(self, name: str) -> View:
        tensor = self._tensor(name)
        if tensor.data is not None:
            return self.builder.constant_view(tensor.data.astype(tensor.dtype))
        return self.storage.views[name]

    def _operand(self, name: str, *, raw: bool = False) -> Operand:
        """A tensor as [H, W, C]; `raw` without its zero point."""
        view = self._view(name).hwc()
        if view is None:
            raise LoweringError(f"tensor {name} has strides {self._view(name).strides} that the NPU cannot walk")
        tensor = self._tensor(name)
        return Operand(view, tensor.dtype, 0 if raw else tensor.zero_point)

    def _output(self, clamp: tuple[int, int], scale: Scale | None = None) -> Output:
        """A rescaled result, rounded as the graph's arithmetic wants."""
        return Output(clamp, scale, Rounding.NATURAL if self.real else Rounding.TFL)

    # ------------------------------------------------------------------ layers with weights

    def _conv(self, layer: Conv) -> None:
        ifm, ofm = self._operand(layer.inputs[0]), self._operand(layer.output)
        source, result = self._tensor(layer.inputs[0]), self._tensor(layer.output)
        if layer.fully_connected:
            rows, depth = int(np.prod(source.shape)) // layer.weights.shape[3], layer.weights.shape[3]
            ifm, ofm = _as(ifm, (rows, 1, depth)), _as(ofm, (rows, 1, len(layer.bias)))
        single = source.dtype == "uint8" and not layer.fully_connected
        scales = [conv_scale(source.scale, s, result.scale, single=single) for s in layer.weight_scales]
        output = self._output(layer.clamp)
        if layer.fully_connected and source.dtype == "uint8":  # LiteRT's kernel rounds these once
            output = replace(output, rounding=Rounding.NATURAL)
        if layer.wide:
            scales, output = [rounded_once(s) for s in scales], Output(layer.clamp, rounding=Rounding.NATURAL)
        kernel = cast("tuple[int, int]", layer.weights.shape[1:3])
        window = _window(Window(kernel, layer.stride, layer.dilation, layer.padding, layer.upscale), ifm, ofm)
        self.builder.weighted(
            ifm,
            ofm,
            window,
            output,
            layer.weights,
            layer.bias,
            scales,
            depthwise=layer.depthwise,
            part_kernel=part_kernel_first(ifm.shape.depth, ifm.bits, kernel[0] * kernel[1]),
        )

    # ------------------------------------------------------------------ pools

    def _pool(self, layer: Pool) -> None:
        raw = layer.kind in (PoolKind.MAX, PoolKind.AVERAGE)  # averages round the stored values, as TFLite does
        ifm, ofm = self._operand(layer.inputs[0], raw=raw), self._operand(layer.output, raw=raw)
        if layer.across:
            pixels, depth = ifm.shape.height * ifm.shape.width, ifm.shape.depth
            ifm, ofm = _as(ifm, (pixels, depth, 1)), _as(ofm, (pixels, 1, 1))
        rows = (ifm.shape.height - layer.kernel[0]) // layer.stride[0] + 1
        if layer.reduces and ofm.shape.height != rows:
            ofm = replace(ofm, view=ofm.view.permuted((1, 0, 2)))  # its rows, without the width that was reduced
        window = _window(Window(layer.kernel, layer.stride, padding=layer.padding), ifm, ofm)
        count = layer.kernel[0] * layer.kernel[1]
        if layer.kind is PoolKind.MAX:
            self.builder.pool(PoolMode.MAX, ifm, ofm, window, Output(layer.clamp, UNITY))
        elif layer.kind is PoolKind.AVERAGE:
            # with padding the NPU divides by the number of valid elements itself
            scale = UNITY if layer.padding.any else reciprocal_scale(count)
            self.builder.pool(PoolMode.AVERAGE, ifm, ofm, window, self._output(layer.clamp, scale))
        else:
            source, result = self._tensor(layer.inputs[0]), self._tensor(layer.output)
            scale = quantise_multiplier(double(source.scale) / double(result.scale))
            if layer.kind is PoolKind.MEAN:
                scale = (real_mean_scale if self.real else mean_scale)(source.scale, result.scale, count)
            self.builder.pool(PoolMode.AVERAGE, ifm, ofm, window, self._output(layer.clamp, scale))

    def _resize(self, layer: Resize) -> None:
        ifm, ofm = self._operand(layer.inputs[0], raw=True), self._operand(layer.output, raw=True)
        lower_resize(self.builder, layer, ifm, ofm)

    # ------------------------------------------------------------------ elementwise

    def _binary(self, layer: Binary) -> None:
        first, second = layer.inputs
        a, b, out = self._tensor(first), self._tensor(second), self._tensor(layer.output)
        swap = _needs_swap(a, b, out)
        if swap:
            first, second, a, b = second, first, b, a
        ifm, ofm = self._operand(first), self._operand(layer.output)
        ifm2 = self._second(second, ofm)
        if layer.kind is BinaryKind.SQUARED_DIFFERENCE:
            lower_squared_difference(self.builder, layer.output, ifm, ifm2, ofm, (a, b, out), layer.clamp)
            return
        mode = _MODES[layer.kind]
        if layer.kind in (BinaryKind.ADD, BinaryKind.SUB):
            scales = add_scales(a.scale, b.scale, out.scale, ofm.bits)
            # the mode counts operands after the swap
            scaled = 3 - scales.scaled if swap else scales.scaled
            self.builder.elementwise(
                mode,
                ifm,
                ifm2,
                ofm,
                self._output(layer.clamp, scales.ofm),
                operand_scales=(scales.operand.register, 0),
                scaled_operand=scaled,
                swap=swap,
            )
        elif layer.kind is BinaryKind.MUL:
            scale = mul_scale(a.scale, b.scale, out.scale)
            self.builder.elementwise(mode, ifm, ifm2, ofm, self._output(layer.clamp, scale), swap=swap)
        else:
            self.builder.elementwise(mode, ifm, ifm2, ofm, Output(layer.clamp, UNITY), swap=swap)

    def _second(self, name: str, ofm: Operand) -> Operand:
        """The second operand, with the leading dimensions that it lacks."""
        operand = self._operand(name)
        shape = operand.view.shape
        if any(mine not in (1, whole) for mine, whole in zip(shape, ofm.view.shape, strict=True)):
            raise LoweringError(f"tensor {name} of shape {shape} cannot be broadcast to {ofm.view.shape}")
        return operand

    def _prelu(self, layer: Prelu) -> None:
        x, slopes, out = (self._tensor(n) for n in (*layer.inputs, layer.output))
        above = quantise_multiplier(double(x.scale) / double(out.scale))
        below = quantise_multiplier(double(x.scale) * double(slopes.scale) / double(out.scale))
        ifm, ofm = self._operand(layer.inputs[0]), self._operand(layer.output)
        lower_prelu(self.builder, layer.output, ifm, self._second(layer.inputs[1], ofm), ofm, above, below)

    def _abs(self, layer: Abs) -> None:
        source, result = self._tensor(layer.inputs[0]), self._tensor(layer.output)
        scale = quantise_multiplier(double(source.scale) / double(result.scale))
        ifm, ofm = self._operand(layer.inputs[0]), self._operand(layer.output)
        self.builder.elementwise(ElementwiseMode.ABS, ifm, None, ofm, self._output(layer.clamp, scale))

    def _lookup(self, layer: Lookup) -> None:
        ifm, ofm = self._operand(layer.inputs[0], raw=True), self._operand(layer.output, raw=True)
        output = Output(self._tensor(layer.inputs[0]).limits, UNITY, table=np.array(layer.table, np.int64))
        self.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)

    def _squash(self, layer: Squash) -> None:
        ifm, ofm = self._operand(layer.inputs[0]), self._operand(layer.output)
        scale = squash_scale(self._tensor(layer.inputs[0]).scale)
        output = Output(self._tensor(layer.output).limits, scale, function=layer.function)
        self.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)

    def _requantize(self, layer: Requantize) -> None:
        source, result = self._tensor(layer.inputs[0]), self._tensor(layer.output)
        scale = quantise_multiplier(double(source.scale) / double(result.scale))
        ifm, ofm = self._operand(layer.inputs[0]), self._operand(layer.output)
        self.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), self._output(layer.clamp, scale))

    def _softmax(self, layer: Softmax) -> None:
        source = self._tensor(layer.inputs[0])
        depth = source.shape[-1]
        rows = int(np.prod(source.shape)) // depth
        ifm, ofm = (_as(self._operand(name), (rows, 1, depth)) for name in (layer.inputs[0], layer.output))
        lower_softmax(self.builder, layer.output, ifm, ofm, source.scale, layer.beta)

    def _sequencelstm(self, layer: SequenceLstm) -> None:
        places = (Place(self._tensor(name), self._view(name)) for name in (*layer.inputs, layer.output))
        SequenceLowering(self.builder, layer, *places).emit()

    # ------------------------------------------------------------------ moves

    def _copy(self, source: View, target: View, dtype: str) -> None:
        """Move elements: a 1x1 maximum has no arithmetic."""
        a, b = source.hwc(), target.hwc()
        if a is None or b is None or a.shape != b.shape:
            raise LoweringError(f"no NPU operation moves {source} to {target}")
        info = np.iinfo(dtype)
        output = Output((int(info.min), int(info.max)), UNITY)
        self.builder.pool(PoolMode.MAX, Operand(a, dtype), Operand(b, dtype), Window(), output)

    def _reshape(self, layer: Reshape) -> None:
        if layer.output in self.storage.copies:
            source, target = self._view(layer.inputs[0]), self._view(layer.output)
            shape = self._tensor(layer.inputs[0]).shape
            seen = target.reshaped(shape)
            assert seen is not None  # an own buffer is dense
            self._copy(source, seen, self._tensor(layer.output).dtype)

    def _slice(self, layer: Slice) -> None:
        if layer.output in self.storage.copies:
            source = self._view(layer.inputs[0]).box(layer.begin, self._tensor(layer.output).shape, layer.step)
            if source is None:
                raise LoweringError(f"slice {layer.name} steps through channels, which the NPU cannot")
            self._copy(source, self._view(layer.output), self._tensor(layer.output).dtype)

    def _transpose(self, layer: Transpose) -> None:
        """One copy for each channel of the side that has fewer: the NPU's maps have contiguous channels."""
        source, target = self._view(layer.inputs[0]), self._view(layer.output)
        dtype = self._tensor(layer.output).dtype
        if source.shape[-1] < target.shape[-1]:
            order = tuple(layer.axes.index(axis) for axis in range(len(layer.axes)))
            target = target.permuted(order)
        else:
            source = source.permuted(layer.axes)
        for channel in range(source.shape[-1]):
            self._copy(source.channel(channel), target.channel(channel), dtype)

    def _concat(self, layer: Concat) -> None:
        whole, out = self._view(layer.output), self._tensor(layer.output)
        for index, name in enumerate(layer.inputs):
            if self.storage.embedded.get(name) == layer.output:
                continue
            tensor = self._tensor(name)
            target = whole.box(offset_in(self.graph, layer, index), tensor.shape)
            assert target is not None  # concatenations are dense
            if (tensor.scale, tensor.zero_point) == (out.scale, out.zero_point):
                self._copy(self._view(name), target, out.dtype)
            else:
                inner = target.hwc()
                assert inner is not None
                scale = quantise_multiplier(double(tensor.scale) / double(out.scale))
                output = self._output(out.limits, scale)
                ofm = Operand(inner, out.dtype, out.zero_point)
                self.builder.pool(PoolMode.AVERAGE, self._operand(name), ofm, Window(), output)

    def _pad(self, layer: Pad) -> None:
        whole, out, pad = self._view(layer.output), self._tensor(layer.output), layer.padding
        source = self._tensor(layer.inputs[0])
        _, height, width, depth = out.shape
        inner_height, inner_width = source.shape[1:3]
        if self.storage.embedded.get(layer.inputs[0]) != layer.output:
            target = whole.box(offset_in(self.graph, layer, 0), source.shape)
            assert target is not None
            self._copy(self._view(layer.inputs[0]), target, out.dtype)
        borders = (
            ((0, 0, 0, 0), (1, pad.top, width, depth)),
            ((0, height - pad.bottom, 0, 0), (1, pad.bottom, width, depth)),
            ((0, pad.top, 0, 0), (1, inner_height, pad.left, depth)),
            ((0, pad.top, pad.left + inner_width, 0), (1, inner_height, pad.right, depth)),
        )
        for begin, shape in borders:
            if all(shape):
                target = whole.box(begin, shape)
                assert target is not None
                border = np.full(shape, layer.value, out.dtype)
                self._copy(self.builder.constant_view(border), target, out.dtype)


def _window(window: Window, ifm: Operand, ofm: Operand) -> Window:
    """The window with the padding that is really read: the NPU derives the input's extent from it."""
    scale = 1 if window.upscale is Upscale.NONE else 2
    padding = window.padding

    def behind(axis: int, before: int) -> int:
        extent = (ofm.view.shape[axis] - 1) * window.stride[axis] + window.dilated[axis]
        return max(extent - before - scale * ifm.view.shape[axis], 0)

    exact = Padding(padding.top, padding.left, behind(0, padding.top), behind(1, padding.left))
    return replace(window, padding=exact)


def _as(operand: Operand, shape: tuple[int, int, int]) -> Operand:
    """A dense operand under another shape."""
    view = operand.view.reshaped(shape)
    if view is None:
        raise LoweringError(f"the bytes of {operand.view} are not dense: they cannot be read as {shape}")
    return replace(operand, view=view)


def _needs_swap(a: Tensor, b: Tensor, out: Tensor) -> bool:
    """IFM has to be the operand in full size and in memory."""
    return a.data is not None or (a.shape != out.shape and b.shape == out.shape and a.hwc != out.hwc)
