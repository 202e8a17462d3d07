"""What every layer says of itself: what the NPU can do of it, how it touches memory, and its operations.

Invariant: a layer for which `problem` returns None is one that `emit` can put on the NPU, on every accelerator but
those for which `unsupported_by` has a reason. Limits are the hardware's register widths and the rules of its block
engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..arch import Architecture, Language
from .emit_context import EmitContext
from .tensors import LayerTensor
from .views import TensorView

_MAX_EXTENT = 1 << 16
_TYPES = ("int8", "uint8", "int16")
ANY_TYPES = frozenset(_TYPES)


@dataclass(frozen=True, slots=True)
class Limits:
    """What of the NPU's limits concerns a layer."""

    mixed: frozenset[str] = frozenset()  # types that may be mixed with one another
    results: frozenset[str] = frozenset()  # types that only its output may have
    chooser: tuple[int, frozenset[str]] = (-1, frozenset())  # the input that chooses elements, and what types it has
    tables: bool = False  # it looks values up: 8 bits only
    one_image: bool = False  # windows do not cross from one image of a batch to the next


@dataclass(frozen=True, slots=True)
class StorageTraits:
    """How a layer's tensors may be stored in memory: by itself, each densely in a buffer of its own."""

    bricks: tuple[str, ...] = ()  # tensors that it reads or writes in NHCWB16 as well
    dense: bool = False  # it sees its tensors in another shape: their bytes may have no gaps
    flat: bool = False  # it sees its input in another shape, so that one is not made inside a larger tensor
    moves: bool = False  # it only moves stored values: its output is made nowhere but in a place of its own or `view`
    keeps_scale: bool = False  # its stored values mean the same before and after
    view: Callable[[TensorView], TensorView | None] | None = None  # its output as a part or another shape of its input
    begin: Callable[[int], tuple[int, ...]] | None = None  # where in its output input i begins, and may be made
    gathers: bool = False  # such an input may have other readers
    updates: tuple[str, ...] = ()  # inputs it changes in place; they keep their content between runs


@dataclass(frozen=True, slots=True, eq=False)
class Layer(ABC):
    """Base of all layers: what it reads, what it makes, and how it is called in reports."""

    name: str
    inputs: tuple[str, ...]
    output: str

    limits: ClassVar[Limits]
    traits: ClassVar[StorageTraits]  # of layers whose tensors are stored alike whatever they are
    only_u85: ClassVar[str] = ""  # why other NPUs cannot compute it; "": they can
    takes_tables: ClassVar[bool] = False  # it is one operation of `EmitContext.output`, which may look its results up

    @property
    def source(self) -> str:
        """The tensor whose producer in the source model its cycles are reported under."""
        return self.output

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """Why the NPU cannot compute this layer, beyond `limits`; None when it can."""
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """Why one NPU cannot compute what others can; None when it can."""
        return None if target.language is Language.U85 else self.only_u85 or None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """How its tensors, which are among `tensors`, may be stored in memory: as its `traits` say, if it has them."""
        return self.traits

    @abstractmethod
    def emit(self, context: EmitContext) -> None:
        """Append its operations; moves that are views append nothing."""


def problem(layer: Layer, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
    """Why `layer` cannot run on the NPU; None when it can."""
    tensors, limits = (*inputs, output), layer.limits
    chooser, choosing = limits.chooser
    if choosing and inputs[chooser].dtype not in choosing:
        return f"its input {chooser} is {inputs[chooser].dtype}; the NPU chooses by {' and '.join(sorted(choosing))}"
    for place, tensor in enumerate(tensors):
        others = limits.results if tensor is output else choosing if place == chooser else frozenset[str]()
        if tensor.dtype not in _TYPES and tensor.dtype not in others:
            return f"its tensor of type {tensor.dtype} is neither 8 nor 16 bits"
        if len(tensor.shape) > 4:
            return f"its tensor has {len(tensor.shape)} dimensions; the NPU walks at most 4"
        if any(extent < 1 or extent > _MAX_EXTENT for extent in tensor.shape):
            return f"an extent of its shape {list(tensor.shape)} is outside 1..65536"
    types = {t.dtype for t in tensors} - limits.results - choosing
    if len(types) > 1 and not types <= limits.mixed:
        return f"its tensors are of different types: {', '.join(sorted(types))}"
    if "int16" in types and limits.tables:
        return "its tensors are int16; the NPU's tables are for 8 bits"
    odd = next((t.zero_point for t in tensors if t.dtype == "int16" and t.zero_point), 0)
    if odd:
        return f"its int16 tensor has zero point {odd}; only 0 fits"
    batch = next((t.shape[0] for t in tensors if len(t.shape) == 4 and t.shape[0] != 1), 1)
    if batch != 1 and limits.one_image:
        return f"its batch is {batch}; windows need batch 1"
    return layer.unsupported_reason(inputs, output)
