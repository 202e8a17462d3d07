"""What can be wrong with a memory plan.

Invariant: a fault says where (function, call), whose bytes, and the numbers; two of the same kind at the same
place are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...errors import NpuMemplanError


class FaultKind(Enum):
    """Kinds of faults, with what each means."""

    OVERWRITTEN = "bytes are read that another write has changed since"
    UNDEFINED = "bytes are read that were never written"
    MOVED = "one storage lies in two places"
    OUTSIDE = "a storage reaches beyond its memory"
    MISALIGNED = "an offset is no multiple of its elements' size"
    NO_MEMORY = "a memory is used where it does not exist"
    FREED = "a memory is used after it was freed"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `where` is the function and the call, `text` the storages and the numbers."""

    kind: FaultKind
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class MemoryPlanError(NpuMemplanError):
    """The plan of a module is wrong; `faults` are all that were found."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        shown = "".join(f"\n  {fault}" for fault in faults[:SHOWN])
        more = f"\n  and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"the memory plan of this module is wrong, {count}:{shown}{more}")


SHOWN = 8
"""Faults that the text of an error lists."""
