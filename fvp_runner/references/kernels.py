"""The reference that each operator of a .tflite network is held to, for all that compare with one.

Invariant: an operator is held to tflite-micro where that has a kernel that runs it, to LiteRT's reference kernels where
it has none, and one's own to its NumPy reference, whatever else is in its network. Operators that follow each other run
there in parts as large as are found by halves; a network that cannot be cut runs whole, in the first that takes all of
it. No reference is of a file that Vela has made. Where tflite-micro and LiteRT make different results, each operator is
compared alone, on the inputs that it has in a run of the network. An operator whose inputs are those of the reference's
own run keeps the results of that run; every other one is run alone on the inputs that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.exactness import HYBRID_LSTM, LITERT, MICRO, MICRO_TAKES_UINT8
from npu_memplan.models.folding import with_static_shapes
from npu_memplan.models.network import CpuOperator, Network, is_hybrid, without_reference

from ..result import compare_output
from .base import KeptStates, ReferenceRunError, fitting_inputs, tflite_source
from .interpreters import LITERT_NAME as LITERT_NAME
from .interpreters import OWN_NAME as OWN_NAME
from .interpreters import (
    CutError,
    KernelError,
    LiteRTReference,
    OwnReference,
    Reference,
    cut_part,
    own_reference,
    shares_states,
)

_Values = dict[int, NDArray[Any]]


class KernelsReference(KeptStates):
    """A network, each operator by the reference that it is held to; `what` says which these are."""

    def __init__(self, model: bytes, network: Network) -> None:
        super().__init__(model, network)
        for operator in network.cpu_operators:
            if reason := without_reference(network, operator):
                raise ReferenceRunError(
                    f"no reference can run operator {operator.index} {operator.name} of {self.name}: {reason}"
                )
        self._parts = self._open_parts()

    @property
    def what(self) -> str:  # type: ignore[override]
        """Names of the references; they may change in the first `step`."""
        present = {part.what for part in self._parts}
        names = [name for name in (MICRO, LITERT_NAME, OWN_NAME) if name in present]
        return " and ".join(names) + (", operator by operator" if len(names) > 1 else "")

    @property
    def package(self) -> str:  # type: ignore[override]
        """The distribution that has the first of them."""
        return min(self._parts, key=lambda part: part.what != MICRO).package

    def reference_of(self, operator: int) -> str:
        """Name of the reference that an operator is held to, by its index."""
        return next(part.what for part in self._parts if any(o.index == operator for o in part.network.operators))

    def reset(self) -> None:
        for part in self._parts:
            part.reset()

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        values = self._compute_values(inputs, _part_outputs)
        return tuple(values[index] for index in self.network.outputs)

    def layer_values(self, inputs: Sequence[NDArray[Any]]) -> _Values:
        values = self._compute_values(inputs, lambda part, given: part.layer_values(given))
        return {i: values[i] for o in self.network.operators for i in o.outputs if i >= 0}

    def _compute_values(
        self, inputs: Sequence[NDArray[Any]], run: Callable[[KeptStates, list[NDArray[Any]]], _Values]
    ) -> _Values:
        """Inputs, constants, and what `run` gives of each part."""
        tensors = self.network.tensors
        values = {i: tensor.array() for i, tensor in enumerate(tensors) if tensor.data is not None}
        values |= {i: np.zeros(tensor.shape, tensor.dtype) for i, tensor in enumerate(tensors) if not tensor.size_bytes}
        values |= dict(zip(self.network.inputs, fitting_inputs(self.network, inputs), strict=True))
        place = 0
        while place < len(self._parts):
            part = self._parts[place]
            try:
                values |= run(part, [values[i] for i in part.network.inputs])
                place += 1
            except KernelError:  # of the first run: tflite-micro refuses every time or never
                self._parts[place : place + 1] = self._open_halves(part.network.cpu_operators)
        return values

    # -- which reference ------------------------------------------------------------------------------

    def _open_parts(self) -> list[KeptStates]:
        operators = self.network.cpu_operators
        if operators and not shares_states(self.network):
            with suppress(CutError):
                return list(self._open(operators))
        return [self._open_whole()]

    def _open_whole(self) -> KeptStates:
        if not any(_beyond_micro(self.network, operator) for operator in self.network.cpu_operators):
            with suppress(KernelError):
                return Reference(self.model, network=self.network)
        return LiteRTReference(self.model, self.network)

    def _open(self, operators: Sequence[CpuOperator]) -> Iterator[KeptStates]:
        """References of consecutive operators, in their order."""
        for other, found in groupby(self._by_micro(operators), _other_reference):
            if other is None:
                yield from (part for part in found if isinstance(part, Reference))
            else:
                yield other(*self._cut_network([part for part in found if isinstance(part, CpuOperator)]))

    def _by_micro(self, operators: Sequence[CpuOperator]) -> Iterator[Reference | CpuOperator]:
        """tflite-micro for operators that it has kernels of, and the others."""
        if not any(_beyond_micro(self.network, operator) for operator in operators):
            with suppress(KernelError):
                model, network = self._cut_network(operators)
                yield Reference(model, network=network)
                return
        if len(operators) == 1:
            yield operators[0]
            return
        middle = len(operators) // 2
        yield from self._by_micro(operators[:middle])
        yield from self._by_micro(operators[middle:])

    def _open_halves(self, operators: Sequence[CpuOperator]) -> list[KeptStates]:
        """References of operators of which tflite-micro has refused one while it ran."""
        if len(operators) == 1 or shares_states(self.network):
            return [LiteRTReference(*self._cut_network(operators))]
        middle = len(operators) // 2
        try:
            return [*self._open(operators[:middle]), *self._open(operators[middle:])]
        except CutError:
            return [LiteRTReference(*self._cut_network(operators))]

    def _cut_network(self, operators: Sequence[CpuOperator]) -> tuple[bytes, Network]:
        whole = len(operators) == len(self.network.operators)
        return (self.model, self.network) if whole else cut_part(self.model, self.network, operators)


def _part_outputs(part: KeptStates, inputs: list[NDArray[Any]]) -> _Values:
    return dict(zip(part.network.outputs, part.step(inputs), strict=True))


def _other_reference(found: Reference | CpuOperator) -> type[OwnReference | LiteRTReference] | None:
    """The reference of an operator that tflite-micro has no kernel for; None of what it has."""
    if isinstance(found, Reference):
        return None
    return OwnReference if own_reference(found) is not None else LiteRTReference


def _beyond_micro(network: Network, operator: CpuOperator) -> bool:
    """Whether an operator is the user's own, takes or makes uint8 that tflite-micro has no uint8 kernel for, is an LSTM
    of floats with int8 weights, which its kernel reads as floats, or a slice whose ends count from its begins, of which
    it takes another shape than elements."""
    if operator.name == "STRIDED_SLICE":
        options = operator.options("StridedSliceOptions")
        if options is not None and options.Offset():
            return True
    if own_reference(operator) is not None or (operator.name == HYBRID_LSTM and is_hybrid(network, operator)):
        return True
    used = (*operator.inputs, *operator.outputs)
    unsigned = any(network.tensors[i].dtype == "uint8" for i in used if i >= 0)
    return unsigned and operator.name not in MICRO_TAKES_UINT8


class ReferenceOperator(KernelsReference):
    """One operator of a file, run alone; its own state (SVDF) is kept between steps until `reset`."""

    def __init__(self, data: bytes, network: Network, operator: CpuOperator) -> None:
        super().__init__(*cut_part(data, network, (operator,)))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The disagreement about one operator: elements that LiteRT makes otherwise."""

    operator: int
    kind: str
    elements: int
    mismatches: int
    max_abs_diff: float


def find_disagreements(
    reference: object, inputs: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]
) -> tuple[Disagreement, ...]:
    """Operators held to tflite-micro whose results LiteRT makes otherwise, where that changes an output of `expected`,
    the reference's for `inputs`.

    None where LiteRT is not installed or does not run the network, and of other references than of a .tflite.
    """
    if not isinstance(reference, KernelsReference) or MICRO not in reference.what:
        return ()
    with suppress(ReferenceRunError):
        others = LiteRTReference(reference.model, reference.network).run(inputs)
        pairs = zip(others, expected, strict=True)
        if not any(compare_output("", other.reshape(one.shape), one).mismatches for other, one in pairs):
            return ()
        return compare_operators(reference, inputs, reference.layer_values(inputs))
    return ()


def compare_operators(
    reference: KernelsReference, inputs: Sequence[NDArray[Any]], layers: Mapping[int, NDArray[Any]]
) -> tuple[Disagreement, ...]:
    """Every operator held to tflite-micro, on the inputs that it has in `layers`."""
    network = reference.network
    values = dict(zip(network.inputs, fitting_inputs(network, inputs), strict=True)) | dict(layers)
    found = []
    for operator in network.cpu_operators:
        if reference.reference_of(operator.index) != MICRO:
            continue
        with suppress(ReferenceRunError):
            alone = LiteRTReference(*cut_part(reference.model, network, (operator,)))
            made = alone.run([values[i] for i in alone.network.inputs])
            wanted = [values[i] for i in alone.network.outputs]
            rows = [compare_output("", m.reshape(w.shape), w) for m, w in zip(made, wanted, strict=True)]  # [] is [1]
            wrong = sum(row.mismatches for row in rows)
            if wrong:
                elements, most = sum(row.elements for row in rows), max(row.max_abs_diff for row in rows)
                found.append(Disagreement(operator.index, operator.name, elements, wrong, most))
    return tuple(found)


def describe_disagreements(found: Sequence[Disagreement]) -> str:
    """A sentence for a message; "" where there is none."""
    if not found:
        return ""
    each = [
        f"{one.kind} {one.operator} ({one.mismatches:,} of {one.elements:,} elements, by {one.max_abs_diff:g} at most)"
        for one in found[:_NAMED]
    ]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (
        f"{MICRO} and {LITERT} disagree on {', '.join(each)}{more}; an operator is held to {MICRO} where that has a "
        "kernel for it"
    )


_NAMED = 4


def continue_from(
    model: bytes,
    network: Network,
    inputs: Sequence[NDArray[Any]],
    layers: Mapping[int, NDArray[Any]],
    made: Mapping[int, NDArray[Any]],
) -> dict[int, NDArray[Any]]:
    """`layers`, the tensors of the first run of `network`, as they are where `made` replaces them."""
    values = {i: tensor.array() for i, tensor in enumerate(network.tensors) if tensor.data is not None}
    values |= dict(zip(network.inputs, fitting_inputs(network, inputs), strict=True))
    values |= layers
    other: set[int] = set()
    for operator in network.cpu_operators:
        results = [index for index in operator.outputs if index >= 0]
        if other.intersection(operator.inputs) and not made.keys() >= set(results):
            alone = ReferenceOperator(model, network, operator)
            values |= dict(zip(results, alone.run([values[i] for i in alone.network.inputs]), strict=True))
            other.update(results)
        for index in made.keys() & set(results):
            values[index] = made[index]
            other.add(index)
    return {index: values[index] for index in layers}


class TFLiteReference(KernelsReference):
    """The reference of a .tflite file."""

    def __init__(self, model: bytes, name: str = "reference") -> None:
        tflite_source(model, name)  # what is no such file is refused first
        static = with_static_shapes(model, name)  # the interpreters take a file's shapes unchanged
        super().__init__(static, tflite_source(static, name))
