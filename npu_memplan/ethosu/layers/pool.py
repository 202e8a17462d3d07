"""Window operations without weights: maxima, averages, means, sums, and the places of maxima and minima.

Invariant: every layer here refuses windows and sizes that the NPU's registers cannot hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..arch import Architecture, Language
from ..lower.emit import EmitContext, exact_window, reshape_operand
from ..lower.emit_u85 import find_maxima
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import NO_PADDING, LayerTensor, Operand, Output, Padding, Window
from ..lower.scaling import (
    UNITY,
    Scale,
    float32_value,
    mean_scale,
    quantise_multiplier,
    real_mean_scale,
    reciprocal_scale,
)
from ..reading import patterns as p
from ..reading.reader import (
    MAX_STRIDE,
    Composite,
    Described,
    DescribedCall,
    LayerPart,
    Match,
    Reader,
    Record,
    RejectedError,
    need_nhwc,
    padding_of,
    pair,
    plain,
    stride_of,
)
from ..stream.isa import PoolMode

_MAX_POOL = 256


class PoolKind(Enum):
    """The results that a pool can make of the values in a window."""

    MAX = "max"
    MIN = "min"  # of Ethos-U85
    AVERAGE = "average"
    VALID = "valid"  # averages of what is no padding, each without the zero point
    MEAN = "mean"  # sums with input and output scales, as TFLite's MEAN
    SUM = "sum"


_EXTREMES = {PoolKind.MAX: PoolMode.MAX, PoolKind.MIN: PoolMode.MIN}


@dataclass(frozen=True, slots=True, eq=False)
class PoolLayer(Layer):
    kind: PoolKind
    kernel: tuple[int, int]
    clamp: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING
    reduces: bool = False  # the window is whole axes, which the output may lack
    across: bool = False  # it is the channels: a kernel of [1, depth]
    stated: Scale | None = None  # of a sum; None: the tensors' scales say it

    limits: ClassVar[Limits] = Limits(one_image=True)

    @property
    def _keeps_stored_values(self) -> bool:
        """Whether results are stored values, or averages of them: TFLite rounds those, too."""
        return self.kind in (PoolKind.AVERAGE, *_EXTREMES)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        height, width = self.kernel
        if any(not 1 <= s <= MAX_STRIDE for s in self.stride):
            return f"its stride {self.stride[0]}x{self.stride[1]} is not within 1..{MAX_STRIDE}"
        if not self._keeps_stored_values and (height > _MAX_POOL or width > 4096 or height * width > 1 << 16):
            return f"it adds {height}x{width} elements; the NPU adds at most {_MAX_POOL} rows and 65536 elements"
        most = 8 if self.kind in (PoolKind.AVERAGE, PoolKind.VALID) and self.padding.is_padded else _MAX_POOL
        if (self._keeps_stored_values or self.kind is PoolKind.VALID) and (height > most or width > most):
            return f"its window {height}x{width} is larger than {most}x{most}"
        if self._keeps_stored_values and inputs[0].has_other_scale(output):
            return "its input and output have different scales"
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        if self.kind is PoolKind.MIN and target.language is not Language.U85:
            return "it looks for minima in windows, which only Ethos-U85 does"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Either layout, where the axes stay what they are."""
        if self.across:
            return StorageTraits(dense=True, keeps_scale=self._keeps_stored_values)
        bricks = self.inputs if self.reduces else (*self.inputs, self.output)
        return StorageTraits(bricks=bricks, keeps_scale=self._keeps_stored_values)

    def emit(self, context: EmitContext) -> None:
        ifm = context.operand(self.inputs[0], raw=self._keeps_stored_values)
        ofm = context.operand(self.output, raw=self._keeps_stored_values)
        by_channels = context.builder.accelerator.language is Language.U85 and self.kind not in _EXTREMES
        if self.across and by_channels:
            ofm = reshape_operand(ofm, (ifm.shape.height, ifm.shape.width, 1))
            context.builder.pool(PoolMode.REDUCE_SUM, ifm, ofm, Window(), self._output(context))
            return
        if self.across:
            pixels, depth = ifm.shape.height * ifm.shape.width, ifm.shape.depth
            ifm, ofm = reshape_operand(ifm, (pixels, depth, 1)), reshape_operand(ofm, (pixels, 1, 1))
        rows = (ifm.shape.height - self.kernel[0]) // self.stride[0] + 1
        if self.reduces and ofm.shape.height != rows:
            ofm = replace(ofm, view=ofm.view.permute((1, 0, 2)))  # its rows, without the width that was reduced
        window = exact_window(Window(self.kernel, self.stride, padding=self.padding), ifm, ofm)
        if self.kind in _EXTREMES:
            context.builder.pool(_EXTREMES[self.kind], ifm, ofm, window, Output(self.clamp, UNITY))
            return
        context.builder.pool(PoolMode.AVERAGE, ifm, ofm, window, self._output(context))

    def _output(self, context: EmitContext) -> Output:
        """Sums with the scale that makes of them what the kind is."""
        count = self.kernel[0] * self.kernel[1]
        source, result = context.tensors[self.inputs[0]], context.tensors[self.output]
        if self.kind is PoolKind.AVERAGE:
            # with padding the NPU divides by the number of valid elements itself
            scale = UNITY if self.padding.is_padded else reciprocal_scale(count)
        elif self.kind is PoolKind.VALID:
            scale = UNITY
        elif self.kind is PoolKind.MEAN:
            scale = (real_mean_scale if context.real else mean_scale)(source.scale, result.scale, count)
        else:
            scale = self.stated or quantise_multiplier(float32_value(source.scale) / float32_value(result.scale))
        return context.output(self.clamp, scale)


# ---------------------------------------------------------------------- in Relax


def _max_patterns() -> Iterator[p.Pattern]:
    pooled = p.op("nn.max_pool2d", p.anything())
    yield pooled
    yield p.clip(pooled)
    yield from p.of_real("nn.max_pool2d")


def _integer_average_patterns() -> Iterator[p.Pattern]:
    pooled = p.op("nn.avg_pool2d", p.op("astype", p.anything()))
    for result in (pooled, p.clip(pooled)):
        stored = p.op("astype", result)
        yield stored
        yield p.clip(stored)


def _max_pool(reader: Reader, root: Any) -> Match:
    """max_pool2d on stored values, or between dequantize and quantize of equal scales."""
    clip = reader.call(root, "clip")
    if reader.call(root if clip is None else clip.args[0], "quantize") is not None:
        call, out, clamp, (source,) = reader.of_real(root, "nn.max_pool2d")
        if (source[0].scale, source[0].zero_point) != (out.scale, out.zero_point):
            raise RejectedError("its input and output have different scales")
    else:
        call, clamp = reader.read_clipped(root, "nn.max_pool2d")
        source, out = (plain(call.args[0], "0"), call.args[0]), plain(call, "out")
    return Match.for_layer(_pool(call, out, PoolKind.MAX, clamp), out, source)


def _integer_average(reader: Reader, root: Any) -> Match:
    """astype(int32), avg_pool2d, astype(int8): TFLite's average pool as TVM imports it."""
    call, clamp = reader.read_clipped(root, "astype")
    inner, inner_clamp = reader.read_clipped(call.args[0], "nn.avg_pool2d")
    clamp = (max(clamp[0], inner_clamp[0]), min(clamp[1], inner_clamp[1]))
    variable = reader.need(inner.args[0], "astype").args[0]
    out = plain(call, "out")
    _need_average(inner)
    return Match.for_layer(_pool(inner, out, PoolKind.AVERAGE, clamp), out, (plain(variable, "0"), variable))


def _real_average(reader: Reader, root: Any) -> Match:
    """avg_pool2d between dequantize and quantize; equal scales average the stored values, others are a mean."""
    call, out, clamp, (source,) = reader.of_real(root, "nn.avg_pool2d")
    _need_average(call)
    layer = _pool(call, out, PoolKind.AVERAGE, clamp)
    if (source[0].scale, source[0].zero_point) != (out.scale, out.zero_point):
        if layer.padding.is_padded:
            raise RejectedError("its input and output have different scales and it is padded")
        layer = _pool(call, out, PoolKind.MEAN, clamp)
    return Match.for_layer(layer, out, source)


def _need_average(call: Any) -> None:
    if bool(call.attrs.count_include_pad) and padding_of(call.attrs.padding).is_padded:
        raise RejectedError("it counts its padding; the NPU averages valid elements only")


def _pool(call: Any, out: LayerTensor, kind: PoolKind, clamp: tuple[int, int]) -> PoolLayer:
    need_nhwc(str(call.attrs.layout))
    if any(int(d) != 1 for d in call.attrs.dilation):
        raise RejectedError("its window is dilated")
    if out.dtype.startswith("float"):
        raise RejectedError(f"its tensor of type {out.dtype} is not quantised")
    least, most = out.limits
    return PoolLayer(
        kind.value,
        ("0",),
        "out",
        kind,
        pair(call.attrs.pool_size),
        (max(clamp[0], least), min(clamp[1], most)),
        stride_of(call.attrs.strides, out),
        padding_of(call.attrs.padding),
    )


def reduction(
    name: str, kind: PoolKind, shape: tuple[int, ...], along: Iterable[int], clamp: tuple[int, int]
) -> PoolLayer:
    """A reduction of a tensor of `shape` over height, width or both, or over the channels."""
    rank = len(shape)
    axes = sorted({axis % rank for axis in along})
    across = axes == [rank - 1]
    if not across and rank == 4 and shape[0] != 1:
        raise RejectedError(f"its batch is {shape[0]}; windows need batch 1")
    if not across and (rank not in (3, 4) or not set(axes) <= {rank - 3, rank - 2}):
        raise RejectedError(f"its axes are {axes} of {rank}; only height and width, or the channels, fit the NPU")
    height, width = (shape[axis] if axis in axes else 1 for axis in (rank - 3, rank - 2))
    kernel = (1, shape[-1]) if across else (height, width)
    return PoolLayer(name, ("0",), "out", kind, kernel, clamp, reduces=True, across=across)


def _parse_reduction(name: str, kind: PoolKind, reader: Reader, root: Any) -> Match:
    call, out, clamp, (source,) = reader.of_real(root, name)
    axes = (int(axis) for axis in call.attrs.axis)
    return Match.for_layer(reduction(name, kind, source[0].shape, axes, clamp), out, source)


POOL_RECORD = Record(
    (PoolLayer,),
    (
        Composite("mean", partial(p.unary_patterns, "mean"), partial(_parse_reduction, "mean", PoolKind.MEAN)),
        Composite("sum", partial(p.unary_patterns, "sum"), partial(_parse_reduction, "sum", PoolKind.SUM)),
        Composite("reduce_max", partial(p.unary_patterns, "max"), partial(_parse_reduction, "max", PoolKind.MAX)),
        Composite("reduce_min", partial(p.unary_patterns, "min"), partial(_parse_reduction, "min", PoolKind.MIN)),
        Composite("max_pool", _max_patterns, _max_pool),
        Composite("average_pool", _integer_average_patterns, _integer_average),
        Composite("real_average_pool", partial(p.of_real, "nn.avg_pool2d"), _real_average),
    ),
)


_MAX_ELEMENTS = 1 << 13


@dataclass(frozen=True, slots=True, eq=False)
class ArgMax(Layer):
    """The first place of the maximum along `axis`, as int32; of the minimum where `smallest`."""

    axis: int
    smallest: bool = False

    limits: ClassVar[Limits] = Limits(results=frozenset(("int32",)))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its input is seen with the axis as columns
    only_u85: ClassVar[str] = "it looks for places of maxima, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if output.dtype != "int32" or inputs[0].dtype == "int16":
            return f"its places in {inputs[0].dtype} are {output.dtype}; int32 of 8 bits fits the NPU"
        elements = inputs[0].shape[self.axis]
        if elements > _MAX_ELEMENTS:
            return f"it compares {elements} elements; the NPU compares at most {_MAX_ELEMENTS}"
        return None

    def emit(self, context: EmitContext) -> None:
        shape = context.tensors[self.inputs[0]].shape
        rows, count, inner = math.prod(shape[: self.axis]), shape[self.axis], math.prod(shape[self.axis + 1 :])
        ifm = reshape_operand(context.operand(self.inputs[0], raw=True), (rows, count, inner))
        if self.smallest:
            ifm = self._reverse_order(context, ifm)
        ofm = reshape_operand(context.operand(self.output, raw=True), (rows, 1, inner))
        find_maxima(context.builder, ifm, ofm)

    def _reverse_order(self, context: EmitContext, ifm: Operand) -> Operand:
        """The least value as the largest, and so on."""
        least, most = context.tensors[self.inputs[0]].limits
        made = context.builder.temporary(f"{self.output}_backwards", ifm.view.shape, ifm.dtype)
        table = np.arange(most, least - 1, -1, dtype=np.int64)
        context.builder.pool(PoolMode.AVERAGE, ifm, made, Window(), Output((least, most), UNITY, table=table))
        return made


def _parse_argmax(call: DescribedCall) -> LayerPart:
    layer = ArgMax("arg_max", ("0",), "out", int(call.layer["axis"]), bool(call.layer["smallest"]))
    return LayerPart.for_layer(layer, call.output(), call.activation("input"))


ARGMAX_RECORD = Record((ArgMax,), (Described("arg_max", _parse_argmax),))
