"""What a lowering takes and gives, and the table of lowerings.

Invariant: an operator is either lowered to a PrimFunc that equals TFLite Micro's reference
kernel bit for bit, or refused with a reason; there is no third way. `unsupported_reason`
runs the very lowering, so the two can never disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import NpuMemplanError, said_by
from ...fixed_point.multiplier import ScaleError
from ...models.network import CpuOperator, Network
from ...models.tensor import Tensor
from ...vocabulary import C_SOURCES, LAYER, ONLY_READ
from .tir import Function


class UnsupportedOperatorError(NpuMemplanError):
    """No host lowering for an operator, or not for its types or options."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredOperator:
    """A lowered operator.

    Parameters of `primfunc`, in order: `inputs`, `constants`, `outputs`. Inputs and outputs
    are tensor indices of the network. `states` are positions in `inputs` of tensors that
    are read and written in place, and keep their content between two inferences.
    """

    name: str
    primfunc: Any
    inputs: tuple[int, ...]
    constants: tuple[npt.NDArray[Any], ...]
    outputs: tuple[int, ...]
    states: tuple[int, ...] = ()


class Lowering:
    """One operator on its way to a PrimFunc: its tensors, and the function being built."""

    def __init__(self, network: Network, operator: CpuOperator) -> None:
        self.network = network
        self.operator = operator
        self.function = Function()
        self.inputs: list[int] = []
        self.constants: list[npt.NDArray[Any]] = []
        self._input_buffers: list[Any] = []
        self._constant_buffers: list[Any] = []
        self._output_buffers: list[Any] = []
        self._states: list[int] = []
        self._tensors: dict[str, Tensor] = {}  # by the name of their buffer
        self._layer: dict[str, Any] | None = None
        self._sources: list[str] = []
        self._only_read: list[str] = []
        self.attributes: dict[str, Any] = {}  # more of the PrimFunc's
        self.name = operator.name.lower()  # of the function

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

    def output(self, position: int = 0) -> Tensor:
        """Output number `position`."""
        if position >= len(self.operator.outputs):
            raise UnsupportedOperatorError(f"output {position} is missing")
        return self.network.tensors[self.operator.outputs[position]]

    def constant(self, position: int, what: str) -> npt.NDArray[Any]:
        """The value of an input that has to be constant."""
        tensor = self.tensor(position)
        if tensor.data is None:
            raise UnsupportedOperatorError(f"{what} (tensor {tensor.name!r}) must be constant")
        return tensor.array()

    def options(self, kind: Any) -> Any:
        """The built-in options; refuses when the file has none."""
        options = self.operator.options(kind)
        if options is None:
            raise UnsupportedOperatorError(f"the file has no {kind.__name__} for it")
        return options

    def custom(self, *names: str) -> list[Any]:
        """Options of a custom operator by name; refuses when the file lacks one."""
        options = self.operator.custom_options()
        missing = [name for name in names if name not in options]
        if missing:
            raise UnsupportedOperatorError(f"the file does not say its {' and '.join(missing)}")
        return [options[name] for name in names]

    def read(self, position: int, name: str) -> Any:
        """Buffer of an input: a parameter, or a constant when the tensor is one."""
        tensor = self.tensor(position)
        if tensor.data is not None:
            buffer = self.table(name, tensor.array())
            self._tensors[buffer.name] = tensor
            return buffer
        index = self.operator.inputs[position]
        for known, buffer in zip(self.inputs, self._input_buffers, strict=True):
            if known == index:
                return buffer
        buffer = self.function.buffer(name, tensor.shape, tensor.dtype)
        self.inputs.append(index)
        self._input_buffers.append(buffer)
        self._tensors[buffer.name] = tensor
        return buffer

    def state(self, position: int, name: str) -> Any:
        """Buffer of a variable tensor, which the operator updates in place."""
        buffer = self.read(position, name)
        self._states.append(len(self.inputs) - 1)
        return buffer

    def own_state(self, number: int, name: str) -> Any:
        """Buffer of state `number` that the operator keeps for itself (see `OwnState`)."""
        index = self.operator.states[number]
        tensor = self.network.tensors[index]
        buffer = self.function.buffer(name, tensor.shape, tensor.dtype)
        self.inputs.append(index)
        self._input_buffers.append(buffer)
        self._states.append(len(self.inputs) - 1)
        return buffer

    def c_function(self, symbol: str, sources: Sequence[str], arguments: Sequence[Any], writes: Sequence[Any]) -> None:
        """Let the C function `symbol`, which `sources` define, do it; of the buffers it changes `writes` alone."""
        self.function.call(symbol, arguments)
        self._sources += sources
        written = {id(buffer) for buffer in writes}
        buffers = [a for a in arguments if not isinstance(a, int | float)]
        self._only_read += [str(b.name) for b in buffers if id(b) not in written]

    def table(self, name: str, values: npt.NDArray[Any]) -> Any:
        """A constant parameter with these values."""
        values = np.ascontiguousarray(values)
        buffer = self.function.buffer(name, values.shape, values.dtype.name)
        self.constants.append(values)
        self._constant_buffers.append(buffer)
        return buffer

    def write(self, position: int = 0, name: str = "output") -> Any:
        """Buffer of an output."""
        tensor = self.output(position)
        buffer = self.function.buffer(name, tensor.shape, tensor.dtype)
        self._output_buffers.append(buffer)
        self._tensors[buffer.name] = tensor
        return buffer

    def describe(self, kind: str, **numbers: int) -> None:
        """Say what the NPU would have to do instead: a kind of composite of `ethosu.layers`, and its numbers."""
        self._layer = {"kind": kind, **numbers}

    def finish(self) -> LoweredOperator:
        """The lowered operator."""
        name = self.name
        parameters = [*self._input_buffers, *self._constant_buffers, *self._output_buffers]
        primfunc = self.function.finish(parameters, name)
        if self._only_read:
            primfunc = primfunc.with_attr(ONLY_READ, self._only_read)
        if self._sources:
            primfunc = primfunc.with_attr(C_SOURCES, self._sources)
        for key, value in self.attributes.items():
            primfunc = primfunc.with_attr(key, value)
        return LoweredOperator(
            name=name,
            primfunc=self._described(primfunc),
            inputs=tuple(self.inputs),
            constants=tuple(self.constants),
            outputs=tuple(self.operator.outputs),
            states=tuple(self._states),
        )

    def _described(self, primfunc: Any) -> Any:
        if self._layer is None:
            return primfunc
        names = [str(p.name) for p in primfunc.params]
        tensors = [self._tensors.get(name) for name in names]
        quantisation = {
            "parameters": names,
            "scales": [(t.scale if t is not None else 0.0).hex() for t in tensors],
            "zero_points": [t.zero_point if t is not None else 0 for t in tensors],
        }
        return primfunc.with_attr(LAYER, self._layer | quantisation)


@dataclass(frozen=True, slots=True, eq=False)
class OwnState:
    """What an operator keeps between inferences without the file's listing it; it starts with zeros or `start`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: npt.NDArray[Any] | None = None


Lower = Callable[[Lowering], None]
Keeps = Callable[[Lowering], Sequence[OwnState]]
Shapes = Callable[[Lowering], Sequence[tuple[int, ...]]]
_LOWERINGS: dict[str, Lower] = {}  # of any elements, or of quantised ones
_PLAIN: dict[str, Lower] = {}  # of elements that are the numbers they mean
_KEEPS: dict[str, Keeps] = {}
_SHAPES: dict[str, Shapes] = {}
STORED = frozenset(("int8", "uint8", "int16", "uint16", "int4"))  # types of elements that stand for real numbers


def lowering(
    *names: str, plain: bool = False, keeps: Keeps | None = None, shapes: Shapes | None = None
) -> Callable[[Lower], Lower]:
    """Register a function for TFLite operators by schema name, or by custom code.

    `plain`: for operators none of whose tensors is of a type in `STORED`; another function may be there for the rest.
    `keeps` says what such an operator keeps for itself, `shapes` of which shapes its outputs are, where files of such
    operators leave that out.
    """

    def register(function: Lower) -> Lower:
        for name in names:
            (_PLAIN if plain else _LOWERINGS)[name] = function
            if keeps is not None:
                _KEEPS[name] = keeps
            if shapes is not None:
                _SHAPES[name] = shapes
        return function

    return register


def completed(network: Network) -> Network:
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


def supported_names() -> tuple[str, ...]:
    """Schema names that have a lowering, sorted."""
    return tuple(sorted({*_LOWERINGS, *_PLAIN} - {EXTERNAL_OPERATOR}))


def _lowering_of(network: Network, operator: CpuOperator) -> Lower:
    """The function for an operator's name and types; `UnsupportedOperatorError` where there is none."""
    if operator.external_scratch_bytes is not None:
        return _LOWERINGS[EXTERNAL_OPERATOR]
    tensors = [network.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    general, plain = _LOWERINGS.get(operator.name), _PLAIN.get(operator.name)
    if plain is not None and not any(tensor.dtype in STORED for tensor in tensors):
        return plain
    if plain is not None and any(tensor.dtype == "float32" for tensor in tensors):
        stored = next(tensor for tensor in tensors if tensor.dtype in STORED)
        raise UnsupportedOperatorError(f"tensor {stored.name!r} is {stored.dtype} beside float32 ones; {HYBRID}")
    if general is not None:
        return general
    if plain is None:
        raise UnsupportedOperatorError(f"there is no host operator {operator.name}")
    stored = next(tensor for tensor in tensors if tensor.dtype in STORED)
    raise UnsupportedOperatorError(f"tensor {stored.name!r} is {stored.dtype}; {NOT_QUANTISED}")


EXTERNAL_OPERATOR = "<external>"  # the name under which the function for external operators is registered
HYBRID = "hybrid operators have no kernel in TFLite Micro: quantise activations as well as weights"
NOT_QUANTISED = "the reference has this operator for plain numbers only, such as float32"


def lower_operator(network: Network, operator: CpuOperator) -> LoweredOperator:
    """Lower one operator; `UnsupportedOperatorError` says why it cannot be."""
    lower = _lowering_of(network, operator)
    work = Lowering(network, operator)
    try:
        lower(work)
        return work.finish()
    except ScaleError as error:
        raise UnsupportedOperatorError(str(error)) from None
    except NpuMemplanError:
        raise
    except Exception as error:  # of numbers that no sound model has, TVM and numpy raise what they like
        raise UnsupportedOperatorError(f"its shapes or numbers do not fit each other ({said_by(error)})") from error


def unsupported_reason(network: Network, operator: CpuOperator) -> str | None:
    """Why `operator` cannot run on the host; None when it can."""
    try:
        lower_operator(network, operator)
    except UnsupportedOperatorError as error:
        return str(error)
    return None
