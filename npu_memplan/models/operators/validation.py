"""Whether the operators of a network fit the format and its tensors: the first thing that is asked of a model.

Invariant: what passes has, for every operator in `FORMS`, operands of the right number, types and ranks, results of the
shapes that follow from them, options of its own kind, and a version that is known; each tensor is read after it was
made; and flags say what tensors are. Whatever fails on such a model later is a fault of this package, or an error
that says which limit it meets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import NpuMemplanError
from ...sizes import counted
from ..network import CpuOperator, Network
from ..tensor import Tensor
from ..vela import NpuCall
from .forms import FORMS, LARGEST_RANK, LARGEST_VERSION, SUMS, TYPES, WEIGHTS, OperandPlace, OperatorForm
from .shapes import Shape, ShapeError, UnknownShapeError

LARGEST_STEP = 1 << 16  # of a window; a map of that many rows fits no memory
_STEPS = ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FilterHeight", "FilterWidth")
# Values that the format defines, of options in any table.
_ENUMERATIONS = {"Padding": 2, "Mode": 2, "FusedActivationFunction": 6}
_REALS = ("Alpha", "Beta", "CellClip", "ProjClip")  # options that are real numbers
_RESULT_TYPES = ("OutType", "OutputType")  # options that say an integer type
_STORED = ("int8", "uint8", "int16")  # types of elements that stand for real numbers
_HANDLES = frozenset(("IF", "WHILE", "READ_VARIABLE", "ASSIGN_VARIABLE"))  # whose operands may be variables themselves


class ContradictionError(NpuMemplanError):
    """A network contradicts itself or the format; `read_network` says of which file."""


def validate_network(network: Network) -> None:
    """`ContradictionError` at the first thing that cannot be of any of its graphs."""
    for number, graph in enumerate(network.subgraphs or (network,)):
        where = f"subgraph {number}: " if number else ""
        try:
            _validate_graph(graph if number else network)
        except ContradictionError as error:
            raise ContradictionError(f"{where}{error}") from None


def _validate_graph(graph: Network) -> None:
    _validate_tensors(graph)
    known: dict[int, Shape | None] = {
        t.index: None if t.has_open_shape and not (t.shape and t.index in graph.inputs) else t.shape
        for t in graph.tensors
    }
    writers = {index: o for o in graph.operators for index in o.outputs}
    made = set(graph.inputs)
    for operator in graph.operators:
        if isinstance(operator, CpuOperator):
            for index in operator.inputs:
                if index >= 0 and index not in made and not _stands(graph.tensors[index]):
                    raise ContradictionError(f"{_named(operator)} reads {_unmade(graph, index, writers)}")
            _validate_operator(graph, operator, known)
        made.update(operator.outputs)
    for index in () if graph.by_vela else graph.outputs:  # Vela leaves constant outputs without their bytes
        if index not in made and not _stands(graph.tensors[index]):
            raise ContradictionError(f"its output is {_unmade(graph, index, writers)}")


def _stands(tensor: Tensor) -> bool:
    """Whether a tensor has content before any operator runs."""
    return tensor.data is not None or tensor.is_variable or 0 in tensor.shape


def _unmade(graph: Network, index: int, writers: dict[int, NpuCall | CpuOperator]) -> str:
    writer = writers.get(index)
    by = "no operator makes" if writer is None else f"operator {writer.index} makes, which does not run before"
    return f"{_label(graph.tensors[index])}, which {by}"


def _validate_tensors(graph: Network) -> None:
    """Ranks that the format has; tensors marked as variables are neither constants nor inputs, and nothing but
    operators with states uses them."""
    for tensor in graph.tensors:
        if len(tensor.shape) > LARGEST_RANK:
            raise ContradictionError(f"{_described(tensor)} has more than {LARGEST_RANK} dimensions")
        roles = {
            "a constant": tensor.data is not None,
            "an input": tensor.index in graph.inputs,
            "marked as a variable": tensor.is_variable,
        }
        found = [role for role, holds in roles.items() if holds]
        if len(found) > 1:
            raise ContradictionError(f"{_label(tensor)} is {' and '.join(found)}")
    for operator in graph.cpu_operators:
        form = FORMS.get(operator.name)
        if form is None or operator.name in _HANDLES or _is_shortened(graph, operator, form):
            continue
        for place, index in enumerate(operator.inputs):
            if index < 0 or graph.tensors[index].is_variable == (place in form.states):
                continue
            what = f"{_named(operator)} has {_label(graph.tensors[index])} as input {place}"
            raise ContradictionError(
                f"{what}, its state, which is not marked as a variable"
                if place in form.states
                else f"{what}, which is marked as a variable, and it keeps no state there"
            )
        for index in operator.outputs:
            if graph.tensors[index].is_variable:
                what = f"{_named(operator)} makes {_label(graph.tensors[index])}"
                raise ContradictionError(f"{what}, which is marked as a variable, and results are none")


def _named(operator: CpuOperator) -> str:
    return f"operator {operator.index} {operator.name}"


def _label(tensor: Tensor) -> str:
    return f"tensor {tensor.index} {tensor.name!r}"


def _described(tensor: Tensor) -> str:
    return f"{_label(tensor)} {tensor.dtype}{list(tensor.shape)}"


def _validate_operator(graph: Network, operator: CpuOperator, known: dict[int, Shape | None]) -> None:
    """Refuse what does not fit `operator`; `known` gets the shapes of its results."""
    form = FORMS.get(operator.name)
    tensors = [graph.tensors[i] if i >= 0 else None for i in operator.inputs]
    results = [graph.tensors[i] for i in operator.outputs]
    if form is None or operator.is_custom:
        return
    try:
        if _is_shortened(graph, operator, form):
            return
        _validate_places(form, tensors, results)
        if not 1 <= operator.version <= LARGEST_VERSION:
            raise ShapeError(f"has version {operator.version}; no operator has more than {LARGEST_VERSION}")
        _validate_options(operator, form.options, results)
        letters = _letters(form, tensors, results)
        _validate_types(letters)
        _validate_quantisation(form, letters)
        if graph.by_vela:
            return  # Vela gives tensors that its calls reshape one shape
        inputs = _known_inputs(tensors, known)
        found = None if inputs is None else result_shapes(operator, inputs)
        for tensor, shape in zip(results, found or (), strict=False):
            if known[tensor.index] is None:
                known[tensor.index] = shape
            elif (shape or (1,)) != (tensor.shape or (1,)):
                given = ", ".join(_described(t) for t in tensors if t is not None)
                raise ShapeError(f"makes {list(shape)} of {given}, and its result is {_described(tensor)}")
    except ShapeError as error:
        text = str(error)
        link = ":" if text.startswith("its ") else ""
        raise ContradictionError(f"{_named(operator)}{link} {text}") from None


def _is_shortened(graph: Network, operator: CpuOperator, form: OperatorForm) -> bool:
    """Whether operands may stand at other places: Vela's compiled core drops those that are left out."""
    return graph.by_vela and len(operator.inputs) < _most(form.inputs) and any(not o.least for o in form.inputs)


def _most(operands: Sequence[OperandPlace]) -> float:
    return sum(math.inf if o.most is None else o.most for o in operands)


def _validate_places(form: OperatorForm, tensors: Sequence[Tensor | None], results: Sequence[Tensor]) -> None:
    """The numbers of operands and results, and which of them may be left out."""
    for what, operands, given in (("input", form.inputs, tensors), ("output", form.outputs, results)):
        required = [place for place, operand in enumerate(operands) if operand.least]
        least, most = (required[-1] + 1 if required else 0), _most(operands)
        if not least <= len(given) <= most:
            wanted = f"{least} or more" if most == math.inf else f"{least}" if least == most else f"{least} to {most:g}"
            raise ShapeError(f"has {counted(len(given), what)}; it takes {wanted}")
        for place, tensor in enumerate(given):
            if tensor is None and operands[min(place, len(operands) - 1)].most == 1 and place in required:
                raise ShapeError(f"has no {what} {place}, which it cannot be without")
            if tensor is None and operands[min(place, len(operands) - 1)].most is None:
                raise ShapeError(f"has no {what} {place}, which stands between others")


def _letters(form: OperatorForm, tensors: Sequence[Tensor | None], results: Sequence[Tensor]) -> list[tuple[str, Any]]:
    """What the format calls each tensor, of those that are there."""
    found = []
    for operands, given in ((form.inputs, tensors), (form.outputs, results)):
        found += [(operands[min(place, len(operands) - 1)].letter, tensor) for place, tensor in enumerate(given)]
    return [(letter, tensor) for letter, tensor in found if tensor is not None]


def _validate_types(letters: Sequence[tuple[str, Tensor]]) -> None:
    """The types of operands and results, which follow from the one that stands for `T`."""
    of_operator = next((t for letter, t in letters if letter == "T"), None)
    kind = "" if of_operator is None else of_operator.dtype
    by_kind = {"T": {kind: (kind,)}, "W": WEIGHTS, "K": WEIGHTS, "S": SUMS}
    for letter, tensor in letters:
        allowed = by_kind[letter].get(kind) if letter in by_kind else TYPES.get(letter)
        if allowed is not None and tensor.dtype not in allowed:
            beside = f" beside {_described(of_operator)}" if letter in by_kind and of_operator is not None else ""
            raise ShapeError(f"takes {' or '.join(allowed)}{beside}, and {_label(tensor)} is {tensor.dtype}")


def _validate_quantisation(form: OperatorForm, letters: Sequence[tuple[str, Tensor]]) -> None:
    """Zero points and scales, of the tensors that are of the operator's own type, and of its weights."""
    values = [tensor for letter, tensor in letters if letter == "T" and tensor.dtype in _STORED]
    for tensor in values:
        if form.computes and tensor.dtype == "int16" and any(tensor.zero_points):
            raise ShapeError(f"takes int16 without a zero point, and {_label(tensor)} has {tensor.zero_point}")
    unscaled = next((t for t in values if not t.scales), None)
    scaled = next((t for t in values if t.scales), None)
    if scaled is not None and unscaled is not None:
        raise ShapeError(f"has {_described(unscaled)} without a scale beside {_described(scaled)} with one")
    for letter, tensor in letters:
        if letter == "K" and tensor.dtype == "int8" and any(tensor.zero_points):
            raise ShapeError(f"takes a filter without a zero point, and {_label(tensor)} has {tensor.zero_point}")
        if letter in "KW" and len(tensor.scales) > 1 and tensor.quantised_dimension != form.channel_axis:
            has = f"and {_label(tensor)} has them along {tensor.quantised_dimension}"
            raise ShapeError(f"takes scales along axis {form.channel_axis} of its weights, {has}")


def _validate_options(operator: CpuOperator, kind: str, results: Sequence[Tensor]) -> None:
    """The options of an operator are a table of its own `kind` ("": any), with values that the format defines."""
    import tflite

    table = operator.table
    found = 0 if table is None or table.BuiltinOptions() is None else table.BuiltinOptionsType()
    if not kind or not found:
        return
    options = operator.options(kind)
    if options is None:
        names = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}
        raise ShapeError(f"has {names.get(found, found)}; it takes {kind}")
    for name in _STEPS:
        step = getattr(options, name)() if hasattr(options, name) else 1
        if not 1 <= step <= LARGEST_STEP:
            raise ShapeError(f"has {name} {step}; it must be in 1..{LARGEST_STEP}")
    for name in _REALS:
        real = getattr(options, name)() if hasattr(options, name) else 0.0
        if not math.isfinite(real):
            raise ShapeError(f"has {name} {real}; it must be finite")
    for name in _RESULT_TYPES:
        number = getattr(options, name)() if hasattr(options, name) else -1
        wanted = {tflite.TensorType.INT32: "int32", tflite.TensorType.INT64: "int64"}.get(number)
        if number >= 0 and results[0].dtype != wanted:
            raise ShapeError(f"has {name} {wanted or number}, and its result is {_described(results[0])}")
    for name, values in _ENUMERATIONS.items():
        value = getattr(options, name)() if hasattr(options, name) else 0
        if not 0 <= value < values:
            raise ShapeError(f"has {name} {value}, which the format does not define")


def _known_inputs(tensors: Sequence[Tensor | None], known: Mapping[int, Shape | None]) -> list[Tensor | None] | None:
    """Operands with the shapes that they have when it runs; None where one is not known."""
    found = [t if t is None or known[t.index] == t.shape else _shaped(t, known[t.index]) for t in tensors]
    unknown = any(t is not None and known[t.index] is None for t in tensors)
    return None if unknown else found


def _shaped(tensor: Tensor, shape: Shape | None) -> Tensor | None:
    return None if shape is None else replace(tensor, shape=shape)


def result_shapes(operator: CpuOperator, inputs: Sequence[Tensor | None]) -> Sequence[Shape] | None:
    """The shapes of the results of `operator`; None where they are known only when it runs.

    `ShapeError` where its operands and options contradict each other.
    """
    form = FORMS.get(operator.name)
    if form is None or form.shapes is None:
        return None
    try:
        return form.shapes(operator, inputs)
    except UnknownShapeError:
        return None
