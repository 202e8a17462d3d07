"""An ExecuTorch program as data: methods, their values and instructions, the bytes of their delegates.

Invariant: every index in a method (of values, operators, delegates, instructions) is in range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...errors import NpuMemplanError


class MethodNameError(NpuMemplanError):
    """A program has no method of that name."""


# enum ScalarType -> numpy's name (bfloat16: PyTorch's) and bytes of an element.
ELEMENT_TYPES: Mapping[int, tuple[str, int]] = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8), 5: ("float16", 2),
    6: ("float32", 4), 7: ("float64", 8), 8: ("complex32", 4), 9: ("complex64", 8), 10: ("complex128", 16),
    11: ("bool", 1), 12: ("int8", 1), 13: ("uint8", 1), 14: ("int32", 4), 15: ("bfloat16", 2), 16: ("uint8", 1),
    17: ("uint8", 1), 22: ("uint16", 2), 27: ("uint16", 2), 28: ("uint32", 4), 29: ("uint64", 8),
}  # fmt: skip


VIEW = "executorch_prim::et_view.default"  # gives its output the memory of its input


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """Where memory planning put a tensor: a byte of the buffer called `memory_id` (1 is the first)."""

    memory_id: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ValueTensor:
    """A tensor of a method. It is a constant, or planned, or gets its memory from the caller (`place` None)."""

    dtype: str
    element_bytes: int
    shape: tuple[int, ...]  # of a dynamic tensor: its upper bound
    dim_order: tuple[int, ...]  # outermost first; empty: in the order of the shape
    place: PlannedPlace | None = None
    data: memoryview | None = field(default=None, repr=False)  # what it starts with; all of it, for a constant
    name: str = ""  # fully qualified, where the file gives one
    is_dynamic: bool = False
    has_data: bool = False  # also where the bytes are in a `.ptd` file that was not given

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.element_bytes

    @property
    def is_constant(self) -> bool:
        """Whether nothing writes it."""
        return self.has_data and self.place is None


@dataclass(frozen=True, slots=True)
class ValueList:
    """A list of other values, by index; -1 is None."""

    items: tuple[int, ...]


Scalar: TypeAlias = "int | float | bool | str | tuple[float | bool, ...] | None"
MethodValue: TypeAlias = "ValueTensor | ValueList | Scalar"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """An operator that the CPU runs; `name` as it is registered, such as `quantized_decomposed::add.out`."""

    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A call of a delegate: its inputs, then its outputs."""

    delegate: int
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """A value takes the place of another."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Goes on at `destination` where `condition` does not hold."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """The end of a tensor whose memory the runtime made."""

    value: int


MethodInstruction: TypeAlias = "KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall"


@dataclass(frozen=True, slots=True, eq=False)
class Delegate:
    """What a backend made of a part of the method."""

    backend: str  # such as EthosUBackend
    data: memoryview = field(repr=False)
    file_offset: int  # of `data` in the program
    inline: bool  # in the flatbuffer; else a segment of its own
    specs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """One entry point."""

    name: str
    values: tuple[MethodValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[MethodInstruction, ...]
    delegates: tuple[Delegate, ...]
    planned_bytes: Mapping[int, int]  # size of each planned buffer, by its memory id

    def tensors_in(self, index: int) -> Iterator[int]:
        """The tensors that value `index` is or holds."""
        value = self.values[index]
        if isinstance(value, ValueTensor):
            yield index
        elif isinstance(value, ValueList):
            for item in value.items:
                if item >= 0 and isinstance(self.values[item], ValueTensor):
                    yield item

    def tensor(self, index: int) -> ValueTensor | None:
        """Value `index` where it is a tensor."""
        value = self.values[index]
        return value if isinstance(value, ValueTensor) else None


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorchProgram:
    """A `.pte` file."""

    name: str
    file_bytes: int
    methods: tuple[Method, ...]
    named_data: Mapping[str, memoryview] = field(default_factory=dict, repr=False)
    bundled: bool = False  # a bundled program held it, with inputs and expected outputs

    def method(self, name: str) -> Method:
        """The method called `name`, the first for an empty name; `MethodNameError` when there is none."""
        for method in self.methods:
            if name in ("", method.name):
                return method
        raise MethodNameError(f"{self.name} has no method {name!r}; it has {', '.join(m.name for m in self.methods)}")


def values_of(instruction: MethodInstruction) -> tuple[int, ...]:
    """The values that an instruction names."""
    if isinstance(instruction, (KernelCall, DelegateCall)):
        return instruction.arguments
    if isinstance(instruction, MoveCall):
        return instruction.source, instruction.target
    return (instruction.condition if isinstance(instruction, JumpFalseCall) else instruction.value,)
