"""What a record measured: streams with their cycles, and where their regions lay.

Invariant: only streams that ran and computed what they should are observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import NpuMemplanError
from ...ethosu.arch import Architecture, accelerator
from ...ethosu.stream.commands import Command
from ...ethosu.stream.decode import decode
from ..record import EvidenceRecord


class CalibrationError(NpuMemplanError):
    """A record cannot decide the figures named, or has nothing to decide by."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One stream and the cycles that were counted of it."""

    name: str
    commands: tuple[Command, ...] = field(repr=False)
    cycles: int
    memories: Mapping[int, str]  # by region


def observations(record: EvidenceRecord) -> tuple[Architecture, tuple[Observation, ...]]:
    """The accelerator and the streams of a record; `CalibrationError` where it has none."""
    if not record.micro:
        raise CalibrationError("the record has no micro-streams; make one with npu-memplan evidence --micro")
    npu = accelerator(record.accelerator)
    found = [
        Observation(
            run.name,
            tuple(decode(run.stream, npu.language)),
            run.counted.cycles,
            {int(region): name for region, name in run.memories.items()},
        )
        for run in record.micro
        if run.exact and run.counted.cycles is not None
    ]
    if not found:
        raise CalibrationError("no micro-stream of the record ran and was right, so there are no cycles to fit to")
    return npu, tuple(found)
