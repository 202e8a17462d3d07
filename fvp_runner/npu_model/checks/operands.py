"""What a kernel reads as feature maps, whichever NPU's it is, and which kernels are one.

Invariant: kernels that are chained run as one: their blocks follow one another, and what is between has no address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..spec.dma import DmaSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.layout import InputSpec
from ..spec.stream import DecodedStep
from ..spec.sums import SumSpec
from ..spec.u85.kernels import ResizeSpec

Kernel = SumSpec | ElementwiseSpec | ResizeSpec


def operands(spec: Kernel) -> Iterator[InputSpec]:
    return (found for found in spec.inputs if found.layout is not None and found.layout.chain < 0)


def is_by_element(spec: Kernel, operand: InputSpec) -> bool:
    """Read element by element, broadcast axes aside; else through the kernel's window."""
    return isinstance(spec, ElementwiseSpec) or (isinstance(spec, SumSpec) and operand is spec.loaded)


def is_continued(step: DecodedStep) -> bool:
    """The kernel's output stays in a chaining buffer: the next one is part of it."""
    return not isinstance(step.spec, DmaSpec) and step.spec.output.layout.chain >= 0


def groups(steps: Iterable[DecodedStep]) -> Iterator[list[DecodedStep]]:
    """Kernels and transfers, those of a chain together."""
    group: list[DecodedStep] = []
    for step in steps:
        if step.is_dma:
            yield [step]
            continue
        group.append(step)
        if not is_continued(step):
            yield group
            group = []
    if group:
        yield group
