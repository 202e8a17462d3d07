"""The interface of host lowerings, and the table of them.

Invariant: an operator is either lowered to a PrimFunc that equals TFLite Micro's reference kernel bit for bit, or
refused with a reason; there is no third way. `unsupported_reason` runs the very lowering, so the two can never
disagree. An operator is refused for an access outside of a tensor only where that access happens: an unconditional
access, at indices made of loop variables alone, is evaluated for the first and last iterations of its loops. Accesses
that depend on conditions or data are checked by the lowering of each operator. A C text is complete, or follows those
that it needs; it undefines the macros that it defines.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, tirx

from ...errors import NpuMemplanError, RefusalError, describe_error
from ...fixed_point import ScaleError
from ...models.network import CpuOperator, Network
from ...models.tensor import Tensor
from ...process.ending import raise_lack_of_memory
from ...process.incidents import report_fault
from ...vocabulary import C_SOURCES, KERNEL, ONLY_READ
from .tir import Buffer, Expr, Function

_MOST_CORNERS = 256  # of the loops around one access
_BINARY: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Min: min,
    tirx.Max: max,
}
_Loops = Mapping[Any, int]  # the last value of each loop's variable


def outside(primfunc: Any) -> tuple[str, tuple[int, ...], int] | None:
    """(name, shape, element) of the first access that is outside of its buffer; None without one."""
    for buffer, indices, loops in _accesses(primfunc.body, {}):
        shape = tuple(int(extent) for extent in buffer.shape)
        element = _outside(indices, shape, loops)
        if element is not None:
            return str(buffer.name), shape, element
    return None


def _accesses(statement: Any, loops: _Loops) -> Iterator[tuple[Any, Sequence[Any], _Loops]]:
    if isinstance(statement, tirx.SeqStmt):
        for inner in statement.seq:
            yield from _accesses(inner, loops)
    elif isinstance(statement, tirx.For):
        if isinstance(statement.extent, tirx.IntImm) and int(statement.extent.value) > 0:
            last = int(statement.extent.value) - 1
            yield from _accesses(statement.body, {**loops, statement.loop_var: last})
    elif isinstance(statement, tirx.BufferStore):
        yield statement.buffer, list(statement.indices), loops
        loads: list[Any] = []
        choices: list[Any] = []
        tvm_ffi.structural_walk(statement.value, (ir.TensorLoad, loads.append), order="pre")
        tvm_ffi.structural_walk(statement.value, (tirx.Select, choices.append), order="pre")
        if not choices:
            yield from ((load.source, list(load.indices), loops) for load in loads)


def _outside(indices: Sequence[Any], shape: Sequence[int], loops: _Loops) -> int | None:
    """The element that the first or last iterations of the loops access outside of the buffer."""
    used = [variable for variable in loops if any(_names(index, variable) for index in indices)]
    size = math.prod(shape)
    corners = itertools.product(*((0, loops[variable]) for variable in used))
    for corner in itertools.islice(corners, _MOST_CORNERS):
        known = dict(zip(used, corner, strict=True))
        element = 0
        for index, extent in zip(indices, shape, strict=True):
            value = _value(index, known)
            if value is None:
                return None
            element = element * extent + value
        if not 0 <= element < size:
            return element
    return None


def _names(index: Any, variable: Any) -> bool:
    if hasattr(index, "a") and hasattr(index, "b"):
        return _names(index.a, variable) or _names(index.b, variable)
    return bool(variable.same_as(index))


def _value(index: Any, known: Mapping[Any, int]) -> int | None:
    """The value of an index; None where it is more than arithmetic on loop variables."""
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    if type(index) in _BINARY:
        a, b = _value(index.a, known), _value(index.b, known)
        if a is None or b is None or (b == 0 and isinstance(index, (tirx.FloorDiv, tirx.FloorMod))):
            return None
        return _BINARY[type(index)](a, b)
    return next((value for variable, value in known.items() if variable.same_as(index)), None)


_FOLDER = Path(__file__).parent / "c"


@functools.cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.c").read_text(encoding="utf-8")


def c_text(name: str, suffix: str = "", macros: Mapping[str, str] = MappingProxyType({})) -> str:
    """The file `name`, for elements of the type that `macros` describe; `suffix` makes its functions' names unique."""
    if not macros:
        return _text(name)
    defined = "".join(f"#define {head} {body}\n".replace("SUFFIX", suffix) for head, body in macros.items())
    taken_back = "".join(f"#undef {head.split('(')[0]}\n" for head in macros)
    return f"{defined}\n{_text(name).replace('SUFFIX', suffix)}\n{taken_back}"


class UnsupportedOperatorError(RefusalError):
    """No host lowering for an operator, or not for its types or options."""


STORED = frozenset(("int8", "uint8", "int16", "uint16", "int4"))  # types of elements that stand for real numbers


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What an operator does, for the NPU: a kind of `ethosu.layers.DESCRIBED`, its numbers, and of every parameter the
    tensor, and the values of a constant.
    """

    kind: str
    numbers: Mapping[str, Any]
    parameters: Mapping[str, tuple[Tensor | None, npt.NDArray[Any] | None]]


@dataclass(frozen=True, slots=True, eq=False)
class LoweredOperator:
    """A lowered operator."""

    name: str
    primfunc: Any  # parameters: `inputs`, `constants`, `outputs`
    inputs: tuple[int, ...]  # tensors of the network, by index
    constants: tuple[npt.NDArray[Any], ...]
    outputs: tuple[int, ...]
    states: tuple[int, ...] = ()  # positions in `inputs`: written in place, and kept between two inferences
    description: Description | None = None  # None: the NPU may not do it


def require_supported(condition: object, message: str) -> None:
    """Refuse an operator of which `condition` does not hold."""
    if not condition:
        raise UnsupportedOperatorError(message)


class Lowering:
    """One operator while it is lowered: its tensors, and the PrimFunc being built."""

    def __init__(self, network: Network, operator: CpuOperator) -> None:
        self.network, self.operator = network, operator
        self.function = Function()
        self.name = operator.name.lower()  # of the function
        self.attributes: dict[str, Any] = {}  # more of the PrimFunc's
        self._described: tuple[str, Mapping[str, Any]] | None = None
        self._inputs: dict[int, Buffer] = {}  # by tensor
        self._constants: list[tuple[Buffer, npt.NDArray[Any]]] = []
        self._outputs: list[Buffer] = []
        self._states: list[int] = []  # tensors
        self._tensors: dict[str, Tensor] = {}  # by the name of their buffer

    def tensor(self, position: int) -> Tensor:
        """Input number `position`; refuses when the operator has none there."""
        tensor = self.optional(position)
        if tensor is None:
            raise UnsupportedOperatorError(f"input {position} is missing")
        return tensor

    def optional(self, position: int) -> Tensor | None:
        """Input number `position`, None when it is left out."""
        inputs = self.operator.inputs
        if position >= len(inputs) or inputs[position] < 0:
            return None
        return self.network.tensors[inputs[position]]

    @property
    def plain(self) -> bool:
        """Whether none of its tensors is of a type in `STORED`."""
        return not any(tensor.dtype in STORED for tensor in self.network.tensors_of(self.operator))

    def tensors(self) -> list[Tensor]:
        """All inputs; refuses when one is left out."""
        return [self.tensor(position) for position in range(len(self.operator.inputs))]

    def output(self, position: int = 0) -> Tensor:
        """Output number `position`."""
        require_supported(position < len(self.operator.outputs), f"output {position} is missing")
        return self.network.tensors[self.operator.outputs[position]]

    def outputs(self) -> list[Tensor]:
        """All outputs."""
        return [self.network.tensors[index] for index in self.operator.outputs]

    def constant(self, position: int, what: str) -> npt.NDArray[Any]:
        """The value of an input that has to be constant."""
        tensor = self.tensor(position)
        require_supported(tensor.data is not None, f"{what} (tensor {tensor.name!r}) must be constant")
        return tensor.array()

    def options(self, kind: str) -> Any:
        """The built-in options; refuses when the file has none."""
        options = self.operator.options(kind)
        require_supported(options is not None, f"the file has no {kind} for it")
        return options

    def custom_options(self, *names: str) -> list[Any]:
        """Options of a custom operator by name; refuses when the file lacks one."""
        options = self.operator.custom_options()
        missing = [name for name in names if name not in options]
        require_supported(not missing, f"the file does not say its {' and '.join(missing)}")
        return [options[name] for name in names]

    def read(self, position: int, name: str) -> Buffer:
        """Buffer of an input: a parameter, or a constant when the tensor is one."""
        tensor = self.tensor(position)
        if tensor.data is None:
            return self._parameter(self.operator.inputs[position], name)
        buffer = self.table(name, tensor.array())
        self._tensors[buffer.name] = tensor
        return buffer

    def read_all(self, first: int = 0) -> list[Buffer]:
        """Buffers of all inputs from number `first` on."""
        return [self.read(i, f"input{i}") for i in range(first, len(self.operator.inputs))]

    def state_buffer(self, position: int, name: str) -> Buffer:
        """Buffer of a variable tensor, which the operator updates in place."""
        buffer = self.read(position, name)
        self._states.append(self.operator.inputs[position])
        return buffer

    def own_state(self, number: int, name: str) -> Buffer:
        """Buffer of state `number` that the operator keeps for itself (see `OwnState`)."""
        self._states.append(self.operator.states[number])
        return self._parameter(self.operator.states[number], name)

    def _parameter(self, index: int, name: str) -> Buffer:
        if index not in self._inputs:
            tensor = self.network.tensors[index]
            buffer = self._inputs[index] = self.function.buffer(name, tensor.shape, tensor.dtype)
            self._tensors[buffer.name] = tensor
        return self._inputs[index]

    def table(self, name: str, values: npt.NDArray[Any]) -> Buffer:
        """A constant parameter with these values."""
        values = np.ascontiguousarray(values)
        buffer = self.function.buffer(name, values.shape, values.dtype.name)
        self._constants.append((buffer, values))
        return buffer

    def write(self, position: int = 0, name: str = "output") -> Buffer:
        """Buffer of an output."""
        tensor = self.output(position)
        buffer = self.function.buffer(name, tensor.shape, tensor.dtype)
        self._outputs.append(buffer)
        self._tensors[buffer.name] = tensor
        return buffer

    def write_all(self, name: str) -> list[Buffer]:
        """Buffers of all outputs, called `name` and their number."""
        return [self.write(i, f"{name}{i}") for i in range(len(self.operator.outputs))]

    def fill(self, value: Callable[[list[Expr]], Expr]) -> Buffer:
        """output[place] = value(place), for every place; the output's buffer."""
        target = self.write()
        with self.function.grid(self.output().shape) as place:
            self.function.store(target, value(place), *place)
        return target

    def c_function(self, symbol: str, sources: Sequence[str], arguments: Sequence[Any]) -> None:
        """Lower the operator to a call of C function `symbol` of `sources`; it changes outputs and states alone."""
        self.function.call(symbol, arguments)
        given = [buffer for index, buffer in self._inputs.items() if index not in self._states]
        read = {id(buffer) for buffer in (*given, *(buffer for buffer, _ in self._constants))}
        self.attributes |= {ONLY_READ: [str(a.name) for a in arguments if id(a) in read], C_SOURCES: list(sources)}

    def run_c(
        self, names: str, *arguments: Any, suffix: str = "", macros: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Lower the operator to C of this package: files `names`, the last has a function of its name (`c_text`)."""
        files = names.split()
        symbol = f"npu_memplan_{files[-1]}_{suffix}" if suffix else f"npu_memplan_{files[-1]}"
        self.c_function(symbol, [c_text(name, suffix, macros) for name in files], arguments)

    def kernel(self, names: str, *arguments: Buffer | float | None) -> None:
        """Name a C kernel that computes the same as the TIR: files `names`, the last has a function of its name."""
        files = names.split()
        given = ["" if a is None else a if isinstance(a, int | float) else str(a.name) for a in arguments]
        sources = [c_text(name) for name in files]
        self.attributes[KERNEL] = {"symbol": f"npu_memplan_{files[-1]}", "sources": sources, "arguments": given}

    def describe(self, kind: str, **numbers: int | Sequence[int] | Sequence[Sequence[int]]) -> None:
        """Describe the operator for the NPU: a kind of `ethosu.layers.DESCRIBED`, and its numbers."""
        self._described = kind, numbers

    def finish(self) -> LoweredOperator:
        """The lowered operator."""
        constants = [buffer for buffer, _ in self._constants]
        primfunc = self.function.finish([*self._inputs.values(), *constants, *self._outputs], self.name)
        for key, value in self.attributes.items():
            primfunc = primfunc.with_attr(key, value) if value else primfunc
        return LoweredOperator(
            name=self.name,
            primfunc=primfunc,
            inputs=tuple(self._inputs),
            constants=tuple(values for _, values in self._constants),
            outputs=tuple(self.operator.outputs),
            states=tuple(list(self._inputs).index(state) for state in self._states),
            description=self._description(),
        )

    def _description(self) -> Description | None:
        if self._described is None:
            return None
        values = {buffer.name: values for buffer, values in self._constants}
        buffers = (*self._inputs.values(), *(buffer for buffer, _ in self._constants), *self._outputs)
        return Description(
            *self._described, {str(b.name): (self._tensors.get(b.name), values.get(b.name)) for b in buffers}
        )


@dataclass(frozen=True, slots=True, eq=False)
class OwnState:
    """A state that an operator keeps and that the file does not list; it starts with zeros or `start`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: npt.NDArray[Any] | None = None


Lower = Callable[[Lowering], None]
Keeps = Callable[[Lowering], Sequence[OwnState]]
Shapes = Callable[[Lowering], Sequence[tuple[int, ...]]]
_LOWERINGS: dict[str, Lower] = {}  # of any elements, or of quantised ones
_PLAIN: dict[str, Lower] = {}  # of elements that are the numbers they mean
_HYBRID: dict[str, Lower] = {}  # of float32 with int8 weights
_BY_LIBRARY: list[Callable[[Lowering], bool]] = []
_KEEPS: dict[str, Keeps] = {}
_SHAPES: dict[str, Shapes] = {}


def lowering(
    *names: str,
    plain: bool = False,
    both: bool = False,
    hybrid: bool = False,
    keeps: Keeps | None = None,
    shapes: Shapes | None = None,
) -> Callable[[Lower], Lower]:
    """Register a function for TFLite operators by schema name, or by custom code.

    `plain`: for operators none of whose tensors is of a type in `STORED`; another function may be there for the rest.
    `both`: for these and for stored numbers, but for no mix of the two; `hybrid`: for that mix. `keeps` lists the
    states that such an operator keeps for itself; `shapes` gives the shapes of its outputs, where files leave them out.
    """

    def register(function: Lower) -> Lower:
        for name in names:
            if hybrid:
                _HYBRID[name] = function
            elif plain or both:
                _PLAIN[name] = function
            if not plain and not hybrid:
                _LOWERINGS[name] = function
            if keeps is not None:
                _KEEPS[name] = keeps
            if shapes is not None:
                _SHAPES[name] = shapes
        return function

    return register


def complete_operators(network: Network) -> Network:
    """`network` with what its operators keep for themselves as states, and with the shapes that they imply."""
    tensors, operators = list(network.tensors), list(network.operators)
    for position, operator in enumerate(operators):
        if not isinstance(operator, CpuOperator) or operator.name not in _KEEPS.keys() | _SHAPES.keys():
            continue
        work = Lowering(network, operator)
        try:
            states = _KEEPS[operator.name](work) if operator.name in _KEEPS else ()
            shapes = _SHAPES[operator.name](work) if operator.name in _SHAPES else ()
        except (NpuMemplanError, IndexError, TypeError, ValueError, ZeroDivisionError):
            continue  # lowering it will say what is wrong
        for index, shape in zip(operator.outputs, shapes, strict=False):
            if not tensors[index].shape:
                tensors[index] = replace(tensors[index], shape=shape)
        first = len(tensors)
        label = (tensors[operator.outputs[0]].name if operator.outputs else "") or operator.name.lower()
        for state in states:
            start = None if state.start is None else np.ascontiguousarray(state.start, state.dtype).view(np.uint8)
            name = f"{label}/{state.name}"
            tensors.append(Tensor(len(tensors), name, state.shape, state.dtype, is_variable=True, initial=start))
        if states:
            for index in operator.outputs:  # what is kept is a state of its own
                tensors[index] = replace(tensors[index], is_variable=False)
            operators[position] = replace(operator, states=tuple(range(first, len(tensors))))
    return replace(network, tensors=tuple(tensors), operators=tuple(operators))


def by_library(calls: Callable[[Lowering], bool]) -> Callable[[Lowering], bool]:
    """Register a function that lowers to a call of `Network.host_kernels`, or returns False."""
    _BY_LIBRARY.append(calls)
    return calls


def supported_names() -> tuple[str, ...]:
    """Schema names that have a lowering, sorted."""
    return tuple(sorted({*_LOWERINGS, *_PLAIN} - {EXTERNAL_OPERATOR}))


def _lowering_of(work: Lowering) -> Lower:
    """The function for an operator's name and types; `UnsupportedOperatorError` where there is none."""
    operator = work.operator
    if operator.external_scratch_bytes is not None:
        return _LOWERINGS[EXTERNAL_OPERATOR]
    tensors = work.network.tensors_of(operator)
    hybrid = not work.plain and any(tensor.dtype == "float32" for tensor in tensors)
    if hybrid and operator.name in _HYBRID:
        return _HYBRID[operator.name]
    general, plain = _LOWERINGS.get(operator.name), _PLAIN.get(operator.name)
    if plain is None:
        flex = operator.is_custom and operator.name.startswith("Flex")
        what = (
            "; it is TensorFlow's own, which needs TensorFlow's run time: convert without select TF ops" if flex else ""
        )
        require_supported(general, f"there is no host operator {operator.name}{what}")
        return general  # type: ignore[return-value]
    if work.plain:
        return plain
    stored = next(tensor for tensor in tensors if tensor.dtype in STORED)
    require_supported(not hybrid, f"tensor {stored.name!r} is {stored.dtype} beside float32 ones; {HYBRID}")
    require_supported(general, f"tensor {stored.name!r} is {stored.dtype}; {NOT_QUANTISED}")
    return general  # type: ignore[return-value]


EXTERNAL_OPERATOR = "<external>"  # the name under which the function for external operators is registered
HYBRID = "there is no hybrid code for it: quantise activations as well as weights"
NOT_QUANTISED = "the reference has this operator for plain numbers only, such as float32"


def lower_operator(network: Network, operator: CpuOperator) -> LoweredOperator:
    """Lower one operator of a network, once; `UnsupportedOperatorError` says why it cannot be."""
    if operator not in network.lowered:
        network.lowered[operator] = lower_with_own_variables(network, operator)
    lowered: LoweredOperator = network.lowered[operator]
    return lowered


def lower_with_own_variables(network: Network, operator: CpuOperator) -> LoweredOperator:
    """Lower one operator anew: its statements can stand in one function with those of an earlier lowering."""
    work = Lowering(network, operator)
    lower = _lowering_of(work)
    try:
        if not (called := _by_library(network, operator)):
            lower(work)
        lowered = (called or work).finish()
        _require_inside(work, lowered)
        return lowered
    except ScaleError as error:
        raise UnsupportedOperatorError(str(error)) from None
    except OverflowError as error:  # a scale may be as small as float32 has it
        raise UnsupportedOperatorError(f"its scales make numbers that do not fit: {describe_error(error)}") from None
    except NpuMemplanError:
        raise
    except Exception as error:  # also for a damaged file: a lowering requires what it relies on (`require_supported`)
        raise_lack_of_memory(error)
        report_fault(f"operator {operator.index} {operator.name} on the host", error)
        raise UnsupportedOperatorError(f"a fault of npu_memplan: {describe_error(error)}; please report it") from error


def _by_library(network: Network, operator: CpuOperator) -> Lowering | None:
    """The operator as `network.host_kernels` runs it; None where our C has to."""
    if not network.host_kernels or operator.external_scratch_bytes is not None:
        return None
    tried = ((calls, Lowering(network, operator)) for calls in _BY_LIBRARY)
    return next((work for calls, work in tried if calls(work)), None)


def _require_inside(work: Lowering, lowered: LoweredOperator) -> None:
    """Refuses shapes with which the operator would access elements that a tensor does not have."""
    found = outside(lowered.primfunc)
    if found is None:
        return
    name, shape, element = found
    given = [work.optional(position) for position in range(len(work.operator.inputs))]
    shapes = [[list(t.shape) for t in group if t is not None] for group in (given, work.outputs())]
    raise UnsupportedOperatorError(
        f"its shapes contradict each other: inputs {shapes[0]} make no outputs {shapes[1]}; it would access element "
        f"{element} of {name} {list(shape)}"
    )


def unsupported_reason(network: Network, operator: CpuOperator) -> str | None:
    """Why `operator` cannot run on the host; None when it can."""
    try:
        lower_operator(network, operator)
    except UnsupportedOperatorError as error:
        return str(error)
    return None
