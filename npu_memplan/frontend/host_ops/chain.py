"""Chains of operators that are a function of one 8-bit tensor, element by element, as one table of 256 entries.

Invariant: the table holds what the host code of the chain makes of all 256 values, operation by operation as its C
computes them (IEEE 754's operations in numpy, functions of float32 by the C library). Code with anything else in it is
no part of a chain. Each operator of a chain has a float tensor, so that nothing which an NPU could run is in one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, tirx

from ...fixed_point import LIMITS
from ...models.network import CpuOperator, Network
from ...models.tensor import Tensor
from .common import EIGHT_BITS, look_up
from .operator import LoweredOperator, Lowering, UnsupportedOperatorError, lower_operator

_WIDE = "float32"
_LEAST = 256  # elements of a float result, for which a table of 1,024 bytes is worth it
# fmt: off
_OF_ONE = frozenset((
    "CAST", "QUANTIZE", "DEQUANTIZE", "NEG", "ABS", "SQUARE", "SQRT", "RSQRT", "EXP", "LOG", "SIN", "COS", "FLOOR",
    "CEIL", "ROUND", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC",
    "TANH", "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE",
))
# fmt: on
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Operators in order, each of which alone reads what the one before makes; `source` is the tensor of 8 bits."""

    source: int
    operators: tuple[CpuOperator, ...]
    table: Array  # of the values from the least one up, in the type of the result


@functools.lru_cache(maxsize=4)  # each candidate of a compile asks for the same network
def find_chains(network: Network) -> dict[int, Chain | None]:
    """The chain that an operator ends, by its index; None for one inside of a chain."""
    readers: dict[int, list[CpuOperator | None]] = {index: [None] for index in network.outputs}
    for found in network.operators:
        for index in found.inputs:
            readers.setdefault(index, []).append(found if isinstance(found, CpuOperator) else None)
    chains: dict[int, Chain | None] = {}
    for first in network.cpu_operators:
        source = _source(network, first)
        if first.index in chains or source is None or network.tensors[source].dtype not in EIGHT_BITS:
            continue
        following = tuple(_following(network, first, readers))
        made = _longest(network, source, following) if len(following) > 1 else None
        if made is not None:
            chains |= dict.fromkeys((o.index for o in made.operators), None) | {made.operators[-1].index: made}
    return chains


def _following(
    network: Network, first: CpuOperator, readers: Mapping[int, list[CpuOperator | None]]
) -> Iterator[CpuOperator]:
    """`first`, and the operators after it as long as each is the only reader of what the one before makes."""
    last: CpuOperator | None = first
    while last is not None:
        yield last
        made = last.outputs[0]
        (following, *others) = readers.get(made) or [None]
        last = following if not others and following and _source(network, following) == made else None


def _source(network: Network, one: CpuOperator) -> int | None:
    """The one tensor of which `one` is a function element by element, with constants; None: another operator."""
    if one.name not in _OF_ONE or len(one.outputs) != 1 or one.external_scratch_bytes is not None or one.states:
        return None
    given = {i for i in one.inputs if i < 0 or network.tensors[i].data is None}
    constants = [network.tensors[i] for i in one.inputs if i >= 0 and i not in given]
    if len(given) != 1 or min(given) < 0 or any(math.prod(tensor.shape) != 1 for tensor in constants):
        return None
    (source,) = given
    ends = network.tensors[source], network.tensors[one.outputs[0]]
    alike = ends[0].shape == ends[1].shape and not any(tensor.is_variable for tensor in ends)
    return source if alike and any(tensor.dtype == _WIDE for tensor in ends) else None


def _longest(network: Network, source: int, operators: tuple[CpuOperator, ...]) -> Chain | None:
    """The longest chain of two operators or more that begins as `operators`, whose table is worth its bytes."""
    values: Array = np.arange(*_range_of(network.tensors[source])).astype(network.tensors[source].dtype)
    best: Chain | None = None
    for count, one in enumerate(operators, 1):
        made = _run(network, one, values)
        if made is None:
            break
        values, output = made, network.tensors[one.outputs[0]]
        wide = output.dtype == _WIDE and math.prod(output.shape) >= _LEAST
        if count > 1 and (wide or output.dtype in EIGHT_BITS):
            best = Chain(source, operators[:count], values)
    return best


def _range_of(tensor: Tensor) -> tuple[int, int]:
    least, most = LIMITS[tensor.dtype]
    return least, most + 1


def lower_chain(network: Network, chain: Chain) -> LoweredOperator:
    """A chain as a look-up."""
    work = Lowering(network, replace(chain.operators[-1], inputs=(chain.source,)))
    look_up(work, chain.table)
    return work.finish()


def _run(network: Network, one: CpuOperator, values: Array) -> Array | None:
    """What `one` makes of `values`; None where that is not known here."""
    tensors = list(network.tensors)
    for index in {*one.inputs, *one.outputs}:
        constant = tensors[index].data is not None
        tensors[index] = replace(tensors[index], shape=(1,) if constant else values.shape)
    try:
        lowered = lower_operator(replace(network, tensors=tuple(tensors), host_kernels=""), one)
        return _Values(lowered, values).made
    except UnsupportedOperatorError:
        return None


_UNKNOWN = UnsupportedOperatorError("its code is not evaluated when compiling")

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Min": lambda a, b: np.where(a < b, a, b),  # as C has it: the second of what is no number
    "Max": lambda a, b: np.where(a > b, a, b),
}


class _Values:
    """The result of a function that computes each element of its output from the same element of its input."""

    def __init__(self, lowered: LoweredOperator, values: Array) -> None:
        parameters = list(lowered.primfunc.params)
        given = (values, *lowered.constants)
        self._arrays: dict[Any, Array] = dict(zip(parameters, given, strict=False))
        self._output = parameters[-1]
        self._place: Any = None  # the variable of the loop over all elements
        self._locals: set[Any] = set()
        with np.errstate(all="ignore"):
            self._execute(lowered.primfunc.body)
        self.made: Array = self._arrays[self._output]

    def _execute(self, statement: Any) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                self._execute(part)
        elif isinstance(statement, tirx.For) and self._place is None:
            self._place = statement.loop_var
            self._execute(statement.body)  # all rounds at once
        elif isinstance(statement, tirx.BufferStore):
            self._arrays[statement.buffer] = np.broadcast_to(self._value(statement.value), 256)
        elif isinstance(statement, tirx.AllocBuffer):
            self._locals.add(statement.buffer)
        else:
            raise _UNKNOWN

    def _value(self, expression: Any) -> Any:
        kind = type(expression).__name__
        if kind in ("IntImm", "FloatImm"):
            return np.dtype(str(expression.ty.dtype)).type(expression.value)
        if isinstance(expression, ir.TensorLoad):
            return self._load_elements(expression.source, list(expression.indices))
        if kind == "Cast":
            return np.asarray(self._value(expression.value)).astype(str(expression.ty.dtype))
        if kind == "Select":
            names = ("condition", "true_value", "false_value")
            return np.where(*(self._value(getattr(expression, name)) for name in names))
        if kind == "Div" and str(expression.ty.dtype) == _WIDE:
            return self._value(expression.a) / self._value(expression.b)
        if kind in _OPERATIONS:
            return _OPERATIONS[kind](self._value(expression.a), self._value(expression.b))
        if kind == "Call" and str(expression.op.name).endswith("call_pure_extern") and len(expression.args) == 2:
            function = _c_function(str(expression.args[0].value))
            given = np.broadcast_to(self._value(expression.args[1]), 256)
            return np.array([function(float(x)) for x in given], np.float32)
        raise _UNKNOWN

    def _load_elements(self, buffer: Any, indices: list[Any]) -> Any:
        """The elements at the loop's place, of a local variable, or the one element of a constant."""
        array, (index,) = self._arrays[buffer], indices
        if self._place is not None and self._place.same_as(index):
            return array
        if not isinstance(index, tirx.IntImm) or (len(array) > 1 and buffer not in self._locals):
            raise _UNKNOWN
        return array if buffer in self._locals else array.reshape(-1)[0]


@functools.cache
def _c_function(name: str) -> Any:
    """A function of the C library of one float32 number."""
    place = ctypes.util.find_library("m")
    if place is None or not hasattr(library := ctypes.CDLL(place), name):
        raise _UNKNOWN
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
    return function
