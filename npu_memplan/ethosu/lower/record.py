"""The register of layers: what Relax programs write for one, and what it becomes.

Invariant: a `Record` is complete - every layer in it has limits, storage and an emitter, every composite patterns and
a parser - or it cannot be made; what `parse` returns passed every limit of the NPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import NpuMemplanError
from ..arch import Architecture
from ..reading.reader import Match, Reader, RejectedError
from .layer import Layer, problem


class RecordError(NpuMemplanError):
    """A layer lacks a part, or a name is taken."""


@dataclass(frozen=True, slots=True)
class Composite:
    """One way in which Relax programs write a layer."""

    kind: str  # in the names of composites, in --host-ops of kinds, and in reports
    patterns: Callable[[], Iterator[Any]]  # calls that belong together, lowest priority first (`reading.patterns`)
    parse: Callable[[Reader, Any], Match]  # what such calls say; `RejectedError` with the reason where the NPU cannot


@dataclass(frozen=True, slots=True)
class Record:
    """Layers, and the composites that become one of them."""

    layers: tuple[type[Layer], ...]
    composites: tuple[Composite, ...]

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
            parts = [name for name in ("patterns", "parse") if not callable(getattr(composite, name))]
            lacks += [f"{part} of {composite.kind}" for part in parts]
        if lacks:
            raise RecordError(f"a record of a layer lacks {', '.join(lacks)}; see docs/howto/add-npu-operator.md")


COMPOSITES: dict[str, Composite] = {}  # by kind, lowest priority first


def register(record: Record) -> None:
    """Add a record; its composites go before all that were registered earlier."""
    taken = [c.kind for c in record.composites if c.kind in COMPOSITES]
    if taken:
        raise RecordError(f"the composite {taken[0]!r} is registered already; choose another name")
    COMPOSITES.update((c.kind, c) for c in record.composites)


def parse(kind: str, reader: Reader, root: Any, target: Architecture | None = None) -> Match:
    """The layer of a composite of `kind` whose result is `root`; `RejectedError` where the NPU, which is `target`
    where that is given, cannot compute it.
    """
    match = COMPOSITES[kind].parse(reader, root)
    inputs = tuple(match.tensors[name] for name in match.layer.inputs)
    reason = problem(match.layer, inputs, match.tensors["out"])
    if reason is None and target is not None:
        reason = match.layer.unsupported_by(target, inputs)
    if reason is not None:
        raise RejectedError(reason)
    return match
