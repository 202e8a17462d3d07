"""Where tflite-micro and LiteRT make different results of an operator that both have a kernel for.

Invariant: each operator is compared alone, on the inputs that it has in a run of the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npu_memplan.exactness import LITERT, MICRO

from ..result import compare_output
from .base import ReferenceRunError, fitting_inputs
from .kernels import KernelsReference
from .litert import LiteRTReference
from .part import cut_part


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Of one operator: elements that LiteRT makes otherwise."""

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
        return compare_operators(reference, inputs, reference.layers(inputs))
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
