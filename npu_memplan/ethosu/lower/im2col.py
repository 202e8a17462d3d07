"""Convolutions of few channels as two: one that gathers elements of the window into channels, and one over those.

Invariant: the same sums, element by element: the first convolution copies stored values (its weights are 0 and 1, its
scale is 1), the second has the weights of the original in another order; the multipliers take eight channels at a time
whether there are eight or one. It is done where both together take fewer cycles by the estimate of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ..arch import Architecture
from ..layers.convolution import Conv
from ..schedule.prefetch.least_work import port_cycles
from ..schedule.regions import place_of
from ..time import MemoryMap
from ..time.estimate import cycles_in_a_row
from .emit import Builder
from .emit_context import EmitContext
from .graph import LayerGraph
from .layer import Layer
from .storage import assign
from .tensors import Arithmetic, LayerTensor, Padding

_FEW = 4  # channels: half of what the multipliers take at a time
_MOST = 32  # channels that are gathered


@dataclass(frozen=True, slots=True, eq=False)
class Gather(Conv):
    """Elements of each window as channels of one position; `reported` is the tensor it is counted for."""

    reported: str = ""

    @property
    def source(self) -> str:
        """The convolution that it is a part of."""
        return self.reported


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis of both convolutions: tap i of the original is tap i // group (of `taps`), channel i % group."""

    group: int  # elements gathered
    step: int  # of the gathering window
    before: int  # padding before the gathered
    size: int  # positions that are gathered
    taps: int  # of the second convolution
    stride: int
    dilation: int
    front: int  # padding before the second

    def fits(self, made: int) -> bool:
        """No window of the second is wholly in its padding: that is not what the hardware's padding is made for."""
        extent = (self.taps - 1) * self.dilation + 1
        after = (made - 1) * self.stride + extent - self.front - self.size
        return self.front < extent and after < extent


def im2col(graph: LayerGraph, accelerator: Architecture, memory_map: MemoryMap) -> LayerGraph:
    layers: list[Layer] = []
    tensors = dict(graph.tensors)
    for layer in graph.layers:
        if isinstance(layer, Conv) and _fits(layer, tensors):
            found = [((layer,), tensors), *forms(layer, tensors)]
            costs = [_cycles(form, known, graph.arithmetic, accelerator, memory_map) for form, known in found]
            form, tensors = found[costs.index(min(costs))]
            layers += form
        else:
            layers.append(layer)
    return replace(graph, layers=tuple(layers), tensors=tensors)


Form = tuple[tuple[Layer, ...], dict[str, LayerTensor]]


def _fits(conv: Conv, tensors: dict[str, LayerTensor]) -> bool:
    source = tensors[conv.inputs[0]]
    plain = conv.dilation == (1, 1) and not conv.depthwise and not conv.upscale and not conv.wide
    return plain and source.element_bytes == 1 and source.hwc[2] <= _FEW


def forms(conv: Conv, tensors: dict[str, LayerTensor]) -> Iterator[Form]:
    """The convolution in two, with the tensor between."""
    source, result = tensors[conv.inputs[0]], tensors[conv.output]
    padding, kernel = conv.padding, conv.weights.shape[1:3]
    sides = (padding.top, padding.left)
    axes = [tuple(_axes(source.hwc[i], result.hwc[i], kernel[i], conv.stride[i], sides[i])) for i in range(2)]
    for y, x in product(*axes):
        fits = y.fits(result.hwc[0]) and x.fits(result.hwc[1])
        if fits and 1 < y.group * x.group <= _MOST // source.hwc[2]:
            yield _gathered(conv, tensors, y, x)


def _axes(size: int, made: int, kernel: int, stride: int, before: int) -> Iterator[_Axis]:
    """Ways to gather one axis: not, two or as many as the stride, the whole kernel."""
    yield _Axis(1, 1, 0, size, kernel, stride, 1, before)
    if stride > 1:
        front, rest = divmod(before, stride)
        yield _cut(
            _Axis(stride, stride, rest, (size - 1 + rest) // stride + 1, -(-kernel // stride), 1, 1, front), made
        )
    elif kernel > 2:
        rest = min(before, 1)
        yield _cut(_Axis(2, 1, rest, size + rest, -(-kernel // 2), 1, 2, before - rest), made)
    yield _Axis(kernel, stride, before, made, 1, 1, 1, 0)


def _cut(axis: _Axis, made: int) -> _Axis:
    """Without positions that no window reads."""
    return replace(axis, size=min(axis.size, made + (axis.taps - 1) * axis.dilation - axis.front))


def _gathered(conv: Conv, tensors: dict[str, LayerTensor], y: _Axis, x: _Axis) -> Form:
    source = tensors[conv.inputs[0]]
    depth = source.hwc[2]
    channels = y.group * x.group * depth
    between = replace(
        source, name=f"{conv.output}_windows", shape=(1, y.size, x.size, channels), data=None, stored=None
    )
    gather = Gather(
        conv.name,
        conv.inputs,
        between.name,
        weights=np.eye(channels, dtype=np.int16).reshape(channels, y.group, x.group, depth),
        bias=np.zeros(channels, np.int64),
        weight_scales=(1.0,),
        clamp=source.limits,
        stride=(y.step, x.step),
        padding=Padding(y.before, x.before),
        reported=conv.output,
    )
    made, height, width, _ = conv.weights.shape
    weights = np.zeros((made, y.taps * y.group, x.taps * x.group, depth), conv.weights.dtype)
    weights[:, :height, :width] = conv.weights
    parts = weights.reshape(made, y.taps, y.group, x.taps, x.group, depth).transpose(0, 1, 3, 2, 4, 5)
    second = replace(
        conv,
        inputs=(between.name,),
        weights=parts.reshape(made, y.taps, x.taps, channels),
        stride=(y.stride, x.stride),
        dilation=(y.dilation, x.dilation),
        padding=Padding(y.front, x.front),
    )
    return (gather, second), {**tensors, between.name: between}


def _cycles(
    layers: tuple[Layer, ...],
    tensors: dict[str, LayerTensor],
    arithmetic: Arithmetic,
    accelerator: Architecture,
    memory_map: MemoryMap,
) -> float:
    """Of the kernels with constants copied to the NPU's own memory, and of their way there."""
    graph = LayerGraph("im2col", tensors, layers[0].inputs, (layers[-1].output,), layers, arithmetic)
    builder = Builder(accelerator, memory_map.with_constants_near())
    storage = assign(builder, graph)
    context = EmitContext(builder, tensors, storage, arithmetic is Arithmetic.REAL)
    for layer in layers:
        layer.emit(context)
    program, constants = builder.finish(graph.name, [storage.views[name].buffer for name in graph.outputs])
    roles = {buffer.name: buffer.role for buffer in program.buffers}
    near = memory_map.with_constants_near()
    kernels = (o.placed(lambda name: place_of(roles[name], near)) for o in program.operations)
    return sum(cycles_in_a_row(k, accelerator, near) for k in kernels) + port_cycles(
        len(constants), accelerator, memory_map
    )
