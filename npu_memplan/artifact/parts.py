"""What a compiled model's `plan.json` is made of: tensors on their bytes, calls, operators.

Invariant: plain data with the limits that a reader checks; how they are put together is `artifact`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from ..errors import NpuMemplanError
from ..exactness import UNKNOWN, Claim
from ..problem import Agent, Count, Point

SCHEMA = "npu_memplan.artifact/1"
FILE_NAME = "plan.json"
ElementType = Annotated[str, Meta(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64))$")]
ZeroPoint = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class ArtifactError(NpuMemplanError):
    """A directory is not an artifact of this package, or of another version of it."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A graph input, output or state tensor on its planned bytes."""

    name: str
    dtype: ElementType  # numpy's name, e.g. "int8"
    shape: tuple[Count, ...]
    pool: str
    offset_bytes: Count
    size_bytes: Count
    scale: float  # 0.0 when the tensor is not quantised
    zero_point: ZeroPoint  # state tensors start at it
    index_range: tuple[int, int] | None = None  # of an input that is an index: its values, half-open


@dataclass(frozen=True, slots=True)
class Call:
    """One call of main, in program order; `points` is its half-open range of time.

    Of the NPU's calls: estimated cycles (see `ethosu.time`) and multiply-accumulates; the host's are not estimated.
    """

    function: str
    agent: Agent
    reads: tuple[str, ...]  # buffer names
    writes: tuple[str, ...]
    points: tuple[Point, Point]
    estimated_cycles: Count | None = None
    macs: Count | None = None
    operators: tuple[int, ...] = ()  # of the source model, that each NPU operation works for; -1: not known
    conditional: bool = False  # in a branch of an `if`: it may not run


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the source model: what runs it, why it is not the NPU if it is not, and what its results are."""

    name: str  # the name of its first output tensor
    kind: str  # e.g. "CONV_2D"
    agent: Agent
    reason: str = ""
    claim: Claim = UNKNOWN
