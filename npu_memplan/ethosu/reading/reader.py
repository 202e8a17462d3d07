"""Read quantised expressions of Relax, and what host code says of itself; keep the records of the layers they become.

Invariant: a `Reader` follows variables only through its own bindings; a variable outside of them is an input. The same
reader serves a pattern's check (bindings of the match) and the lowering (bindings of the composite function), so what
was checked is what is lowered. Only methods import TVM. Attributes with several spellings are returned in one form.
Every number comes from the call's constants, or from the description that host code was made with. A `Record` is
complete - every layer in it has limits, storage and an emitter, every composite patterns and a parser, every described
operator a parser - or it cannot be made; what `parse_composite` returns passed every limit of the NPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NpuMemplanError, RefusalError
from ...fixed_point import ScaleError
from ..arch import Architecture
from ..lower.layer import Layer, problem
from ..lower.operands import Arithmetic, LayerTensor, Padding


def name_of(expression: Any) -> str:
    """The operator that an expression calls, without "relax."; "" of what calls none."""
    from tvm import ir

    operator = expression.op if isinstance(expression, ir.Call) else None
    return str(operator.name).removeprefix("relax.") if isinstance(operator, ir.Op) else ""


def bindings_of(function: Any) -> list[Any]:
    """All bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


class RejectedError(RefusalError):
    """An operator stays on the host; the message is the reason, for the report."""


Input = tuple[LayerTensor, Any]
"""A layer's input, and its Relax variable; None for a constant."""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A layer whose tensors are called "0", "1", ... (inputs) and "out"."""

    layer: Layer
    tensors: Mapping[str, LayerTensor]
    variables: tuple[Any, ...]  # the Relax variable of each input that is no constant, by position; else None

    @classmethod
    def for_layer(cls, layer: Layer, out: LayerTensor, *inputs: Input) -> Match:
        """A match of tensors that are called as `layer` calls them."""
        tensors = {tensor.name: tensor for tensor, _ in inputs}
        return cls(layer, {**tensors, "out": out}, tuple(variable for _, variable in inputs))


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant with its quantisation: `scales` has one entry or one for each channel of `axis`."""

    values: NDArray[Any]
    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]


class Reader:
    """Follows bindings."""

    def __init__(self, bindings: Mapping[Any, Any], arithmetic: Arithmetic = Arithmetic.TFLITE) -> None:
        self.bindings = bindings
        self.arithmetic = arithmetic

    def value(self, expression: Any) -> Any:
        """The expression bound to a variable, as far as the bindings know."""
        while is_variable(expression) and expression in self.bindings:
            expression = self.bindings[expression]
        return expression

    def call(self, expression: Any, *names: str) -> Any:
        """The call of one of the operators `names` (without `relax.`); None when it is something else."""
        from tvm import ir

        found = self.value(expression)
        if isinstance(found, ir.Call) and isinstance(found.op, ir.Op) and found.op.name[6:] in names:
            return found
        return None

    def need(self, expression: Any, *names: str) -> Any:
        """The same as `call`; `RejectedError` when it is something else."""
        found = self.call(expression, *names)
        if found is None:
            raise RejectedError(f"expected {' or '.join(names)} where the graph has {_kind(self.value(expression))}")
        return found

    def array(self, expression: Any) -> NDArray[Any] | None:
        """Values of a constant, else None."""
        from tvm import ir

        found = self.value(expression)
        return found.value.numpy() if isinstance(found, ir.GenericConst) else None

    def fields(self, expression: Any) -> list[Any] | None:
        """Fields of a tuple that is written out, else None."""
        from tvm import relax

        found = self.value(expression)
        return list(found.fields) if isinstance(found, relax.Tuple) else None

    def of_real(self, root: Any, name: str, operands: int = 1) -> tuple[Any, LayerTensor, tuple[int, int], list[Input]]:
        """A call of dequantised operands, quantised: itself, its result "out", the clamp, its operands "0", "1", ..."""
        out, real, clamp = self.read_quantised(root)
        call = self.need(real, name)
        return call, out, clamp, [self.activation(call.args[i], str(i)) for i in range(operands)]

    def read_move(self, root: Any, *names: str) -> tuple[Any, LayerTensor, LayerTensor]:
        """A call that moves stored values, its input "0" and its result "out"."""
        call = self.need(root, *names)
        if not is_variable(call.args[0]):
            raise RejectedError("it moves a constant")
        return call, plain(call.args[0], "0"), plain(call, "out")

    def scalar(self, expression: Any) -> float:
        values = self.array(expression)
        if values is None or values.size != 1:
            raise RejectedError("the quantisation of an activation is not one constant scale and zero point")
        return float(values.reshape(-1)[0])

    def constant(self, expression: Any) -> Constant:
        """A dequantised constant after reshapes and transposes on either side of the dequantisation."""
        call = self.call(expression, "reshape", "permute_dims", "expand_dims", "squeeze")
        if call is not None:
            inner = self.constant(call.args[0])
            return replace(inner, values=_move_values(call, inner.values))
        call = self.need(expression, "dequantize", "multiply")
        zeros: NDArray[Any] | None = np.zeros(1)
        if call.op.name == "relax.dequantize":
            values, zeros = self._plain(call.args[0]), self.array(call.args[2])
        else:  # int64, which relax.dequantize does not take
            values = self._plain(self.need(call.args[0], "astype").args[0])
        scales = self.array(call.args[1])
        if values is None or scales is None or zeros is None:
            raise RejectedError("weights or bias are not constants")
        return Constant(values, scales.reshape(-1).astype(np.float32), zeros.reshape(-1).astype(np.int64))

    def _plain(self, expression: Any) -> NDArray[Any] | None:
        call = self.call(expression, "reshape", "permute_dims", "expand_dims", "squeeze")
        if call is not None:
            inner = self._plain(call.args[0])
            return None if inner is None else _move_values(call, inner)
        return self.array(expression)

    def activation(self, expression: Any, name: str) -> Input:
        """A dequantised activation: its tensor, and its variable (None for a constant)."""
        call = self.need(expression, "dequantize")
        source = self.value(call.args[0])
        values = self._plain(call.args[0]) if not is_variable(source) else None
        scale, zero = self.scalar(call.args[1]), self.scalar(call.args[2])
        typed = call.args[0].ty
        tensor = LayerTensor(name, shape_of(typed), str(typed.dtype), scale, int(zero), values)
        return tensor, call.args[0] if values is None else None

    def read_clipped(self, expression: Any, name: str) -> tuple[Any, tuple[int, int]]:
        """The call of `name` below an optional clip of stored values, and the clip."""
        clip = self.call(expression, "clip")
        if clip is None:
            return self.need(expression, name), (-(1 << 31), (1 << 31) - 1)
        return self.need(clip.args[0], name), (int(number(clip.args[1])), int(number(clip.args[2])))

    def read_quantised(self, expression: Any) -> tuple[LayerTensor, Any, tuple[int, int]]:
        """A quantised result after an optional integer clip: tensor "out", the float below, the clamp."""
        call, (low, high) = self.read_clipped(expression, "quantize")
        scale, zero = self.scalar(call.args[1]), self.scalar(call.args[2])
        tensor = LayerTensor("out", shape_of(call.ty), str(call.ty.dtype), scale, int(zero))
        least, most = tensor.limits
        return tensor, *self._float_clamp(call.args[0], tensor, (max(low, least), min(high, most)))

    def _float_clamp(self, expression: Any, out: LayerTensor, clamp: tuple[int, int]) -> tuple[Any, tuple[int, int]]:
        """Fold relu and clip of the real value into the clamp, as TFLite quantises activation ranges."""
        while (call := self.call(expression, "nn.relu", "clip")) is not None:
            name = call.op.name
            low = 0.0 if "relu" in name else number(call.args[1])
            high = np.inf if "relu" in name else number(call.args[2])
            least = clamp[0] if low == -np.inf else max(clamp[0], quantise(low, out))
            most = clamp[1] if high == np.inf else min(clamp[1], quantise(high, out))
            clamp = (least, most)
            expression = call.args[0]
        return expression, clamp


def is_variable(expression: Any) -> bool:
    """Whether an expression is no constant and no call, but a value with a name."""
    from tvm import relax

    return isinstance(expression, relax.Var)


def plain(expression: Any, name: str) -> LayerTensor:
    """A tensor whose scale this operator does not state: whoever else touches it does."""
    return LayerTensor(name, shape_of(expression.ty), str(expression.ty.dtype), float("nan"))


def quantise(real: float, tensor: LayerTensor) -> int:
    """A real number in a tensor's units, rounded half away from zero in float32."""
    ratio = float(np.float32(real) / np.float32(tensor.scale))
    return tensor.zero_point + int(np.floor(abs(ratio) + 0.5) * np.sign(ratio))


def number(expression: Any) -> float:
    """A literal number of an operator's argument."""
    value = getattr(expression, "value", expression)
    return float(getattr(value, "value", value))


def shape_of(typed: Any) -> tuple[int, ...]:
    """Static shape of a tensor type; `RejectedError` for symbolic ones."""
    try:
        return tuple(int(extent) for extent in typed.shape)
    except (TypeError, ValueError):
        raise RejectedError("its shape is not known at compile time") from None


def _move_values(call: Any, values: NDArray[Any]) -> NDArray[Any]:
    if call.op.name.endswith("permute_dims"):
        axes = call.attrs.axes
        moved: NDArray[Any] = values.transpose(None if axes is None else [int(a) for a in axes])
        return moved
    return values.reshape(shape_of(call.ty))


def _kind(expression: Any) -> str:
    from tvm import ir

    if isinstance(expression, ir.Call):
        return str(getattr(expression.op, "name", "a call"))
    return type(expression).__name__


MAX_STRIDE = 3  # the NPU's largest, of all windows


def pair(values: Any) -> tuple[int, int]:
    """One or two numbers, for height and width."""
    numbers = [int(v) for v in values]
    return (numbers[0], numbers[-1])


def stride_of(values: Any, out: LayerTensor) -> tuple[int, int]:
    """Strides as far as they matter: one window needs none."""
    y, x = pair(values)
    return (1 if out.shape[1] == 1 else y, 1 if out.shape[2] == 1 else x)


def padding_of(values: Any) -> Padding:
    """One, two or four numbers."""
    numbers = [int(v) for v in values]
    if len(numbers) == 1:
        numbers *= 4
    if len(numbers) == 2:
        numbers *= 2
    return Padding(*numbers)


def need_nhwc(layout: str) -> None:
    """`RejectedError` for any other layout."""
    if layout != "NHWC":
        raise RejectedError(f"its layout is {layout}; run relax.transform.ConvertLayout to NHWC first")


@dataclass(frozen=True, slots=True, eq=False)
class LayerPart:
    """A layer of a model, and the tensors that it names; of an operator, one of its layers."""

    layer: Layer
    inputs: tuple[LayerTensor, ...]
    output: LayerTensor

    @classmethod
    def for_layer(cls, layer: Layer, output: LayerTensor, *inputs: LayerTensor) -> LayerPart:
        """A part whose layer names these tensors."""
        names = tuple(tensor.name for tensor in inputs)
        layer = replace(layer, name=f"{layer.name}:{output.name}", inputs=names, output=output.name)
        return cls(layer, inputs, output)


@dataclass(frozen=True, slots=True, eq=False)
class DescribedCall:
    """An operator of which exact host code says what it does: numbers, and tensors by the names of its parameters."""

    layer: Mapping[str, Any]
    tensors: Mapping[str, LayerTensor]

    def has(self, parameter: str) -> bool:
        return parameter in self.tensors

    def activation(self, parameter: str) -> LayerTensor:
        """An input that is no constant."""
        tensor = self.tensors[parameter]
        if tensor.data is not None:
            raise RejectedError(f"its {parameter} is a constant")
        return tensor

    def operand(self, parameter: str) -> LayerTensor:
        """An input or a constant."""
        return self.tensors[parameter]

    def output(self) -> LayerTensor:
        return self.tensors["output"]

    def constant(self, parameter: str) -> NDArray[Any]:
        values = self.tensors[parameter].data
        if values is None:
            raise RejectedError(f"its {parameter} is no constant")
        return values.astype(np.int64)

    def scale(self, parameter: str) -> float:
        return self.tensors[parameter].scale


class RecordError(NpuMemplanError):
    """A layer lacks a part, or a name is taken."""


@dataclass(frozen=True, slots=True)
class Composite:
    """One way in which Relax programs write a layer."""

    kind: str  # in the names of composites, in --host-ops of kinds, and in reports
    patterns: Callable[..., Iterator[Any]]  # calls that belong together, lowest priority first (`reading.patterns`)
    parse: Callable[[Reader, Any], Match]  # what such calls say; `RejectedError` with the reason where the NPU cannot
    joins: str = ""  # the Relax operator whose tuple has a number of fields, for each of which there are `patterns`


@dataclass(frozen=True, slots=True)
class Described:
    """What exact host code of a TFLite operator may say of itself (`host_ops`), and the layer that is the same."""

    kind: str
    parse: Callable[[DescribedCall], LayerPart]  # `RejectedError` with the reason where the NPU cannot


@dataclass(frozen=True, slots=True)
class Record:
    """Layers, and what becomes one of them."""

    layers: tuple[type[Layer], ...]
    composites: tuple[Composite | Described, ...]

    def __post_init__(self) -> None:
        """`RecordError` when a part is missing."""
        lacks = [] if self.layers else ["a layer"]
        lacks += [] if self.composites else ["a composite"]
        for layer in self.layers:
            parts = sorted(getattr(layer, "__abstractmethods__", ()))
            parts += [] if hasattr(layer, "limits") else ["limits"]
            parts += [] if hasattr(layer, "traits") or layer.storage is not Layer.storage else ["storage"]
            lacks += [f"{part} of {layer.__name__}" for part in parts]
        for composite in self.composites:
            needed = ("patterns", "parse") if isinstance(composite, Composite) else ("parse",)
            parts = [name for name in needed if not callable(getattr(composite, name))]
            lacks += [f"{part} of {composite.kind}" for part in parts]
        if lacks:
            raise RecordError(f"a record of a layer lacks {', '.join(lacks)}; see docs/howto/add-npu-operator.md")


COMPOSITES: dict[str, Composite] = {}  # by kind, lowest priority first
DESCRIBED: dict[str, Described] = {}  # by kind


def register(record: Record) -> None:
    """Add a record; its composites go before all that were registered earlier."""
    for composite in record.composites:
        if composite.kind in COMPOSITES or composite.kind in DESCRIBED:
            raise RecordError(f"the composite {composite.kind!r} is registered already; choose another name")
    COMPOSITES.update((c.kind, c) for c in record.composites if isinstance(c, Composite))
    DESCRIBED.update((c.kind, c) for c in record.composites if isinstance(c, Described))


def parse_composite(kind: str, reader: Reader, root: Any, target: Architecture | None = None) -> Match:
    """The layer of a composite of `kind` whose result is `root`; `RejectedError` where the NPU cannot compute it."""
    try:
        match = COMPOSITES[kind].parse(reader, root)
    except ScaleError as error:  # of a table that is filled here
        raise RejectedError(str(error)) from error
    inputs = tuple(match.tensors[name] for name in match.layer.inputs)
    require_fit(match.layer, inputs, match.tensors["out"], target)
    return match


def require_fit(
    layer: Layer, inputs: tuple[LayerTensor, ...], output: LayerTensor, target: Architecture | None = None
) -> None:
    """`RejectedError` where the NPU cannot compute a layer."""
    reason = problem(layer, inputs, output)
    if reason is None and target is not None:
        reason = layer.unsupported_by(target, inputs)
    if reason is not None:
        raise RejectedError(reason)
