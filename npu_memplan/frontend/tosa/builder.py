"""Shapes of tensors with more dimensions than layers have, and permutations in steps that layers take.

Invariant: a tensor in another shape here has the same elements in the same order.

A layer graph of a TOSA file while it grows, one operator after another.

Invariant: a tensor that operators read with several zero points is one view for each; what is built passed every limit
of the NPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.arch import Architecture
from ...ethosu.layers.activation import Lookup
from ...ethosu.layers.elementwise import OfTwo
from ...ethosu.layers.movement import Concat, Reshape, Slice
from ...ethosu.lower.layer import Layer, problem
from ...ethosu.lower.operands import LayerTensor
from ...ethosu.reading.reader import RejectedError
from ...models.tosa import TosaGraph, TosaOperator
from ...names import Names

Shape = tuple[int, ...]
MOST = 4  # dimensions of a layer's tensor


def stored_shape(shape: Shape) -> Shape:
    """In one to four dimensions: the first ones are one, where there are more."""
    return shape or (1,) if len(shape) <= MOST else (prod(shape[: 1 - MOST]), *shape[1 - MOST :])


def image_shape(shape: Shape) -> Shape:
    """As one image: all but the last two dimensions are its rows."""
    return (1, prod(shape[:-2]), *(1,) * (2 - len(shape)), *shape[-2:])


def around(shape: Shape, axes: Sequence[int]) -> Shape:
    """In three dimensions: those before `axes`, which are neighbours, these, and those after."""
    first, after = min(axes), max(axes) + 1
    return prod(shape[:first]), prod(shape[first:after]), prod(shape[after:])


def joined(shape: Shape, axes: Shape) -> tuple[Shape, Shape]:
    """The same permutation without extents of 1, where dimensions that stay neighbours are one."""
    long = [axis for axis in axes if shape[axis] > 1]
    rank = {axis: place for place, axis in enumerate(sorted(long))}  # among those that are not 1 long
    begins = [i for i, axis in enumerate(long) if i == 0 or rank[axis] != rank[long[i - 1]] + 1]
    runs = [long[a:b] for a, b in pairwise((*begins, len(long)))]
    ordered = sorted(runs)
    return tuple(prod(shape[axis] for axis in run) for run in ordered), tuple(ordered.index(run) for run in runs)


def swaps(shape: Shape, axes: Shape) -> list[tuple[Shape, Shape]]:
    """The permutation as one after the other, each of two neighbours inside at most four dimensions."""
    order, found = list(range(len(axes))), []
    for place, axis in enumerate(axes):
        at = order.index(axis)
        if at == place:
            continue
        front, inner = prod(shape[a] for a in order[:place]), prod(shape[a] for a in order[at + 1 :])
        sizes = (front, prod(shape[a] for a in order[place:at]), shape[axis], inner)
        found.append(joined(sizes, (0, 2, 1, 3)))
        order.insert(place, order.pop(at))
    return found


STORED = frozenset(("int8", "int16"))  # types that a tensor between layers may have
EVERY_BYTE: NDArray[np.int64] = np.arange(-128, 128, dtype=np.int64)  # that an int8 tensor may have

Clamp = tuple[int, int]


@dataclass(slots=True, eq=False)
class GraphBuilder:
    """`zero_points` are of tensors by index; tensors that are moved into each other have the same."""

    graph: TosaGraph
    target: Architecture
    made_by: Mapping[int, TosaOperator]  # tensor -> the operator that makes it
    zero_points: Mapping[int, int]
    tensors: dict[str, LayerTensor] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    operator_of: dict[str, int] = field(default_factory=dict)  # a layer's output -> operator of the file
    _names: Names = field(default_factory=Names)
    _known: dict[tuple[int, int], str] = field(default_factory=dict)  # tensor and zero point -> name

    def read(self, index: int, zero: int | None = None) -> str:
        """The name of a tensor as a reader sees it: with the zero point `zero`, or with that which it has."""
        own = self.zero_points.get(index, 0)
        zero = own if zero is None else zero
        if (index, zero) in self._known:
            return self._known[index, zero]
        constant = self.graph.constants.get(index)
        if constant is not None:
            return self.declare(index, zero, constant)
        if zero != own:
            source = self.read(index)
            name = self.declare(index, zero)
            self.layers.append(Reshape(f"reshape:{name}", (source,), name))
            return name
        if index not in self.graph.network.inputs:
            raise RejectedError(f"it reads {self.graph.tensor(index).name!r}, of which no layer makes 8 bits")
        return self.declare(index, zero)

    def moved(self, index: int) -> str:
        """The name of a tensor that is moved as it is stored; `RejectedError` for a constant."""
        if index in self.graph.constants:
            raise RejectedError(f"it moves the constant {self.graph.tensor(index).name!r}")
        return self.read(index)

    def declare(self, index: int, zero: int, data: Any = None) -> str:
        """A name for a tensor with this zero point, from now on."""
        tensor = self.graph.tensor(index)
        name = self._names.unique(tensor.name or f"tensor{index}")
        data = data if data is None else data.reshape(stored_shape(tensor.shape))
        self.tensors[name] = LayerTensor(name, stored_shape(tensor.shape), tensor.dtype, 1.0, zero, data)
        self._known[index, zero] = name
        return name

    def add(self, operator: TosaOperator, layer: Layer, zero: int | None = None) -> None:
        """Append `layer`, which makes the output of `operator`, with the zero point `zero` if it states one."""
        index = operator.outputs[0]
        own = self.zero_points.get(index, 0)
        name = self.declare(index, own if zero is None else zero)
        self._append(operator, replace(layer, name=f"{layer.name}:{name}", output=name))
        if zero is not None and zero != own:
            view = self.declare(index, own)
            self.layers.append(Reshape(f"reshape:{view}", (name,), view))

    def _append(self, operator: TosaOperator, layer: Layer) -> None:
        inputs = tuple(self.tensors[i] for i in layer.inputs)
        reason = problem(layer, inputs, self.tensors[layer.output]) or layer.unsupported_by(self.target, inputs)
        if reason and (isinstance(layer, OfTwo) or layer.limits.one_image) and self._has_images(layer):
            self._append_images(operator, layer)
            return
        if reason:
            raise RejectedError(reason)
        self.layers.append(layer)
        self.operator_of[layer.output] = operator.index

    def _has_images(self, layer: Layer) -> bool:
        """Whether the output of a layer is several images, of each of which every input has one, or one for all."""
        shapes = [self.tensors[name].shape for name in (layer.output, *layer.inputs)]
        count = shapes[0][0]
        return count > 1 and all(len(shape) == MOST and shape[0] in (1, count) for shape in shapes)

    def _append_images(self, operator: TosaOperator, layer: Layer) -> None:
        """The layer once for each image, and the results one after the other."""
        made = self.tensors[layer.output]
        images = [self._image(made, index, None) for index in range(made.shape[0])]
        for index, image in enumerate(images):
            names = []
            for name in layer.inputs:
                whole = self.tensors[name]
                if whole.shape[0] == 1:
                    names.append(name)
                    continue
                part = self._image(whole, index, whole.data)
                names.append(part)
                if whole.data is None:
                    self.layers.append(Slice(f"slice:{part}", (name,), part, (index, 0, 0, 0), (1,) * MOST))
            self._append(operator, replace(layer, name=f"{layer.name}:{image}", inputs=tuple(names), output=image))
        self._append(operator, Concat(f"concat:{made.name}", tuple(images), made.name, -MOST))

    def _image(self, whole: LayerTensor, index: int, data: NDArray[Any] | None) -> str:
        name = self._names.unique(f"{whole.name}_{index}")
        values = None if data is None else data[index : index + 1]
        self.tensors[name] = replace(whole, name=name, shape=(1, *whole.shape[1:]), data=values)
        return name

    def looked_up(self, operator: TosaOperator, index: int, zero: int, table: NDArray[np.int64]) -> str:
        """The name of an int8 tensor whose values are looked up for `operator`, with the zero point `zero`."""
        if np.array_equal(table, EVERY_BYTE):
            return self.read(index, zero)
        name = self.tensor_like(index, zero)
        self._append(operator, Lookup(f"table:{name}", (self.read(index),), name, tuple(int(v) for v in table)))
        return name

    def tensor_like(
        self, index: int, zero: int, values: NDArray[np.int64] | None = None, shape: tuple[int, ...] = ()
    ) -> str:
        """The name of a tensor of its own of the type of tensor `index`, in its shape or another, with these values."""
        tensor = self.graph.tensor(index)
        shape, dtype = shape or stored_shape(tensor.shape), tensor.dtype if tensor.dtype in STORED else "int8"
        name = self._names.unique(f"{tensor.name or f'tensor{index}'}_{dtype}")
        data = None if values is None else values.astype(dtype).reshape(shape)
        self.tensors[name] = LayerTensor(name, shape, dtype, 1.0, zero, data)
        return name

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """The name of the same values in another shape."""
        tensor = self.tensors[name]
        if tensor.shape == shape:
            return name
        view = self._names.unique(f"{name}_reshaped")
        self.tensors[view] = replace(tensor, name=view, shape=shape, data=None)
        self.layers.append(Reshape(f"reshape:{view}", (name,), view))
        return view

    def add_reshaped(
        self, operator: TosaOperator, layer: Layer, shape: tuple[int, ...], zero: int | None = None
    ) -> None:
        """Append `layer`, which makes the output of `operator` in another shape, with the zero point it states."""
        if shape == stored_shape(self.shape(operator.outputs[0])):
            self.add(operator, layer, zero)
        else:
            own = self.zero_points.get(operator.outputs[0], 0) if zero is None else zero
            self.add(operator, Reshape("reshape", (self.between(operator, layer, own, shape),), ""), zero)

    def between(self, operator: TosaOperator, layer: Layer, zero: int, shape: tuple[int, ...]) -> str:
        """Append `layer`, whose output has the type of that of `operator` and another shape; the name of that."""
        name = self.tensor_like(operator.outputs[0], zero, None, shape)
        self._append(operator, replace(layer, name=f"{layer.name}:{name}", output=name))
        return name

    def beside(self, operator: TosaOperator, layer: Layer, name: str, shape: tuple[int, ...]) -> str:
        """Append `layer`, whose output is as the tensor `name` but for its shape; the name of that."""
        made = self._names.unique(f"{name}_moved")
        self.tensors[made] = replace(self.tensors[name], name=made, shape=shape, data=None)
        self._append(operator, replace(layer, name=f"{layer.name}:{made}", output=made))
        return made

    def shape(self, index: int) -> tuple[int, ...]:
        return self.graph.tensor(index).shape

    def dtype(self, index: int) -> str:
        return self.graph.tensor(index).dtype

    def limits(self, index: int) -> tuple[int, int]:
        """The least and the largest value of a tensor's type."""
        if self.dtype(index) == "bool":
            return 0, 1
        info = np.iinfo(self.dtype(index))
        return int(info.min), int(info.max)

    def producer(self, index: int, *kinds: str) -> TosaOperator:
        """The operator that makes a tensor; `RejectedError` where it is of none of these kinds."""
        made = self.made_by.get(index)
        if made is None or made.kind not in kinds:
            what = "no operator makes" if made is None else f"{made.kind} makes"
            raise RejectedError(f"{what} its operand {self.graph.tensor(index).name!r}; {' or '.join(kinds)} may")
        return made

    def constant(self, index: int) -> Any:
        """The values of a constant; `RejectedError` of what is none."""
        values = self.graph.constants.get(index)
        if values is None:
            raise RejectedError(f"its operand {self.graph.tensor(index).name!r} is no constant")
        return values

    def scalar(self, index: int) -> int:
        """The value of a constant of one element."""
        values = self.constant(index).reshape(-1)
        if len(values) != 1:
            raise RejectedError(f"its operand {self.graph.tensor(index).name!r} has {len(values)} elements, not one")
        return int(values[0])


Emitter = Callable[[GraphBuilder, TosaOperator, Clamp], None]
"""Adds the layer that makes the output of an operator, of which a CLAMP may limit the results."""
