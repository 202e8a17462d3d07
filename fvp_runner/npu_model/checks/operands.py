"""What a kernel reads as feature maps, whichever NPU's it is, and which kernels are one.

Invariant: kernels that are chained run as one: their blocks follow one another, and what is between has no address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..spec.dma import DmaSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.layout import MapLayout
from ..spec.stream import DecodedStep
from ..spec.sums import SumSpec
from ..spec.u85.kernels import ResizeSpec

Kernel = SumSpec | ElementwiseSpec | ResizeSpec


@dataclass(frozen=True, slots=True)
class MapRead:
    name: str
    layout: MapLayout
    shape: tuple[int, int, int]
    windowed: bool  # read through the kernel's window; else element by element, broadcast axes aside


def operands(spec: Kernel) -> Iterator[MapRead]:
    for found in spec.inputs:
        if found.layout is not None and found.layout.chain < 0:
            by_element = isinstance(spec, ElementwiseSpec) or (isinstance(spec, SumSpec) and found is spec.loaded)
            yield MapRead(found.name, found.layout, found.shape, not by_element)


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
