"""Run the job that the NPU's registers describe, on the memory of the machine it is part of.

Invariant: the NPU reaches memory only through `GuestMemory`, so an address that the board does
not give it is a bus error, and what a job writes is in the machine's memory when it has ended.
Where a base pointer is the start of a known object its size is the region's, so that leaving
a pool is noticed; for any other pointer the region is what the stream touches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from npu_memplan.errors import NpuMemplanError

from ..npu_model.checks.footprint import region_extents
from ..npu_model.errors import MalformedStreamError, OutOfRegionError, WeightStreamError
from ..npu_model.model import NpuModel
from ..npu_model.spec.feature_maps import Bytes
from ..register_page import Job, JobOutcome, Status

_BRICK_BYTES = 64  # the last brick of a feature map may reach this far beyond its last element


class GuestMemory(Protocol):
    """The machine's memory as the NPU sees it."""

    def can_access(self, address: int, size_bytes: int) -> bool:
        """Whether the NPU may access all of `[address, address + size_bytes)`."""

    def fetch_bytes(self, address: int, size_bytes: int) -> Bytes:
        """The bytes; a read-only array where writing is not allowed."""

    def commit_writes(self) -> None:
        """Make what was written to fetched arrays the machine's memory, and forget them."""


class JobRunner:
    """Executes jobs of one NPU. `objects`: known addresses and sizes; `explain` says why bytes are out of reach."""

    def __init__(
        self,
        model: NpuModel,
        memory: GuestMemory,
        objects: Mapping[int, int],
        explain: Callable[[int, bool], str] = lambda address, written: "",
    ) -> None:
        self._model, self._memory, self._objects, self._explain = model, memory, objects, explain
        self.streams: list[tuple[int, ...]] = []  # of all jobs that had one
        self.notes: list[str] = []  # what the NPU model remarked about them

    def run(self, job: Job) -> JobOutcome:
        """Run one job; everything that goes wrong becomes fault bits and a message."""
        if job.queue_base % 16 or job.queue_bytes % 4 or not job.queue_bytes:
            where = f"command stream of {job.queue_bytes} bytes at {job.queue_base:#010x}"
            text = f"{where}: not whole words at a 16-byte boundary"
            return JobOutcome(Status.PARSE_ERROR, message=text)
        if not self._memory.can_access(job.queue_base, job.queue_bytes):
            text = (
                f"command stream at {job.queue_base:#010x}: {job.queue_bytes} bytes there cannot be reached by the NPU"
                f"{self._explain(job.queue_base, False)}"
            )
            return JobOutcome(Status.BUS_ERROR, message=text)
        words: list[int] = self._memory.fetch_bytes(job.queue_base, job.queue_bytes).view("<u4").tolist()
        self.streams.append(tuple(words))
        try:
            spans = self._region_spans(job, words)
            missing = [
                f"region {r} is {s} bytes at {a:#010x}{self._explain(a, r > 0)}"
                for r, (a, s) in spans.items()
                if not self._memory.can_access(a, s)
            ]
            if missing:
                return JobOutcome(Status.BUS_ERROR, message=f"the NPU cannot reach: {', '.join(missing)}")
            stats = self._model.run(words, self._fetch_regions(spans))
            self.notes.extend((*stats.messages, *stats.timing))
            return JobOutcome(cycles=int(stats.cycles), beats=stats.beats, read_bytes=job.queue_bytes)
        except NpuMemplanError as error:
            return JobOutcome(_fault_bits(error), message=str(error))
        finally:
            self._memory.commit_writes()

    def _region_spans(self, job: Job, words: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Region -> (address, size in bytes) for every region the stream may touch."""
        spans = {r: (a, self._objects[a]) for r, a in enumerate(job.bases) if self._objects.get(a)}
        reach: dict[int, int] | None = None
        for region, base in enumerate(job.bases):
            if region in spans:
                continue
            if reach is None:
                reach = self._region_ends(words)
            if reach.get(region):
                whole = reach[region] + _BRICK_BYTES  # unless memory ends before
                spans[region] = (base, whole if self._memory.can_access(base, whole) else reach[region])
        return spans

    def _region_ends(self, words: Sequence[int]) -> dict[int, int]:
        """Region -> end of the highest byte the stream touches in it."""
        program = self._model.prepare_stream(words)
        if not program.commands:
            raise MalformedStreamError("the command stream is empty")
        return region_extents(program)

    def _fetch_regions(self, spans: Mapping[int, tuple[int, int]]) -> list[Bytes | None]:
        """Arrays of all regions; overlapping regions are views of the same bytes."""
        regions: list[Bytes | None] = [None] * 8
        blocks: list[tuple[int, int, list[int]]] = []
        for region, (start, size) in sorted(spans.items(), key=lambda item: item[1]):
            if blocks and start < blocks[-1][1]:
                first, stop, members = blocks[-1]
                blocks[-1] = (first, max(stop, start + size), [*members, region])
            else:
                blocks.append((start, start + size, [region]))
        for first, stop, members in blocks:
            data = self._memory.fetch_bytes(first, stop - first)
            for region in members:
                start, size = spans[region]
                regions[region] = data[start - first : start - first + size]
        return regions


def _fault_bits(error: NpuMemplanError) -> Status:
    """The STATUS bit nearest to what the model found.

    What hardware does not check at all (a missing wait, a read of bytes that were never written) stops the
    job as a parse error: a run that passes must mean something.
    """
    if isinstance(error, OutOfRegionError):
        return Status.BUS_ERROR
    if isinstance(error, WeightStreamError):
        return Status.WEIGHT_FAULT
    return Status.PARSE_ERROR
