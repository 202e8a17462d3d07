"""The last writer of each byte of the pools, by which a read of another buffer's bytes is found.

Invariant: a byte is defined only once something wrote it. The NPU model marks what it writes; what host operators write
is marked from the artifact's call list and, in case a list leaves something out, wherever a byte has changed between
two NPU calls. What an NPU call makes is undefined when it begins. Whose a byte is follows the program's accesses, on
the bytes that the plan gives each buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import Call, TensorSlot
from npu_memplan.problem import Agent, Buffer, BufferAccess, BufferKind, ByteRun
from npu_memplan.problem.spans import Spans, merge_spans, subtract_spans

from ..base import RunCheckError

_GIVEN = (
    BufferKind.INPUT,
    BufferKind.STATE,
    BufferKind.CONSTANT,
    BufferKind.RESIDENT,
)  # the content is there before the first call
_Named = tuple[str, BufferAccess]  # and the buffer's name


class UnwrittenInputError(RunCheckError):
    """Bytes of a buffer were to be read that nothing wrote, or that another buffer's write took."""


class SkippedCallError(RunCheckError):
    """The C did not make an NPU call that main makes."""


class PoolShadows:
    """One flag and one writer for each byte of each pool."""

    def __init__(self, artifact: Artifact, pools: Sequence[npt.NDArray[np.uint8]]) -> None:
        self.defined = tuple(np.zeros(pool.size, np.bool_) for pool in pools)
        self._artifact = artifact
        self._pools = pools
        self._before = tuple(pool.copy() for pool in pools)
        self._index = {pool.name: i for i, pool in enumerate(artifact.run_pools)}
        self._buffers = {b.name: b for b in artifact.problem.buffers}
        self._where = {
            p.buffer: (self._index[p.pool], p.offset_bytes, p.offset_bytes + self._buffers[p.buffer].size_bytes)
            for p in artifact.plan.placements
            if p.pool in self._index  # constants are always defined
        }
        self._writers = tuple(np.zeros(pool.size, np.int32) for pool in pools)  # numbers of buffers; 0: nothing
        self._names = ["", *self._buffers]
        self._number = {name: number for number, name in enumerate(self._names)}
        self._shared = {name for group in artifact.problem.aliases for name, _ in group.members}
        for group in artifact.problem.aliases:
            self._number.update((name, self._number[group.members[0][0]]) for name, _ in group.members)
        self._fresh_of: dict[int, Sequence[Spans]] = {}  # by call
        self._next = 0  # call of main that comes next

    def reset(self) -> None:
        for flags, writers in zip(self.defined, self._writers, strict=True):
            flags[:], writers[:] = False, 0

    def begin_run(self) -> None:
        self._next = 0
        self._remember_writers()

    def define_slot(self, slot: TensorSlot) -> None:
        """The caller has written a graph input or a state."""
        size_bytes = max(slot.size_bytes, 1)  # buffers have a byte at least
        self._define_bytes(self._index[slot.pool], slot.offset_bytes, slot.offset_bytes + size_bytes)

    def define_constants(self, written: Sequence[npt.NDArray[np.bool_]]) -> None:
        """The bytes that `<name>_init` has written; `UnwrittenInputError` where resident constants are not whole."""
        for name, (pool, start, stop) in self._where.items():
            if self._buffers[name].kind is not BufferKind.RESIDENT:
                continue
            unknown = np.flatnonzero(~written[pool][start:stop])
            if unknown.size:
                raise UnwrittenInputError(
                    f"{self._artifact.name}_init leaves {unknown.size} of {stop - start} bytes of the resident "
                    f"constants {name} unwritten; {self._first_byte_text(pool, start, int(unknown[0]))}"
                )
            self._define_bytes(pool, start, stop)

    def _define_bytes(self, pool: int, start: int, stop: int) -> None:
        self.defined[pool][start:stop] = True
        self._writers[pool][start:stop] = self._caller_slots.get((pool, start), 0)

    def before_launch(self, checks: bool) -> None:
        """Account for the host operators that ran since the last NPU call."""
        calls = self._artifact.calls
        ran_on_host = False
        while self._next < len(calls) and calls[self._next].agent is Agent.HOST:
            self._host_call(self._next, checks)
            ran_on_host = True
            self._next += 1
        for flags, fresh in zip(self.defined, self._fresh_spans(self._next), strict=True):
            for start, stop in fresh:
                flags[start:stop] = False
        self._next += 1
        if ran_on_host or not calls:
            for flags, pool, before in zip(self.defined, self._pools, self._before, strict=True):
                flags |= pool != before

    def after_launch(self) -> None:
        """The NPU is done; from here on a changed byte is the host's doing."""
        calls = self._artifact.calls
        if self._next <= len(calls):
            for _, writes in self._step_accesses[self._next - 1]:
                self._mark_writes(writes)
        if not calls or (self._next < len(calls) and calls[self._next].agent is Agent.HOST):
            self._remember_writers()

    def finish_run(self) -> None:
        """Account for the host operators after the last NPU call, and for the caller, which reads the outputs."""
        while self._next < len(self._artifact.calls):
            call = self._artifact.calls[self._next]
            if call.agent is Agent.NPU:
                raise SkippedCallError(f"the run ended without the NPU call {call.function}, which plan.json lists")
            self._host_call(self._next, True)
            self._next += 1
        end = max((call.points[1] for call in self._artifact.calls), default=0)
        for known in self._artifact.problem.accesses:
            for access in known.reads:
                if access.point >= end and known.buffer in self._where:
                    self._check_writer("the caller", known.buffer, access)

    @cached_property
    def _caller_slots(self) -> dict[tuple[int, int], int]:
        """The numbers of inputs and states, by pool and offset."""
        given = (name for name in self._where if self._buffers[name].kind in _GIVEN)
        return {self._where[name][:2]: self._number[name] for name in given}

    @cached_property
    def _step_accesses(self) -> list[list[tuple[list[_Named], list[_Named]]]]:
        """The bytes that the steps of each call read and write in pools."""
        points: dict[int, tuple[list[_Named], list[_Named]]] = {}
        for known in self._artifact.problem.accesses:
            if known.buffer in self._where:
                for is_write, accesses in enumerate((known.reads, known.writes)):
                    for access in accesses:
                        points.setdefault(access.point, ([], []))[is_write].append((known.buffer, access))
        return [[points[p] for p in range(*call.points) if p in points] for call in self._artifact.calls]

    def _host_call(self, number: int, checks: bool) -> None:
        call = self._artifact.calls[number]
        checks = checks and not call.conditional  # in a branch it may not have run
        for name in call.reads if checks else ():
            # What a call also writes (scratch, states) it may write before it reads.
            if name not in call.writes and name in self._where:
                self._check_read(call, name)
        for reads, writes in self._step_accesses[number]:
            for name, access in reads if checks else ():
                self._check_writer(f"host operator {call.function}", name, access)
            self._mark_writes(writes)
        for name in call.writes:
            if name in self._where:
                pool, start, stop = self._where[name]
                self.defined[pool][start:stop] = True

    def _check_read(self, call: Call, name: str) -> None:
        pool, start, stop = self._where[name]
        unknown = np.flatnonzero(~self.defined[pool][start:stop])
        if unknown.size:
            raise UnwrittenInputError(
                f"host operator {call.function} reads {unknown.size} of {stop - start} bytes of buffer {name} that "
                f"nothing wrote; {self._first_byte_text(pool, start, int(unknown[0]))}"
            )

    def _check_writer(self, reader: str, name: str, access: BufferAccess) -> None:
        """`UnwrittenInputError` unless the buffer itself, or one of its alias group, wrote these bytes last."""
        pool, start, _ = self._where[name]
        for view, first, stride in self._access_views(name, access):
            wrong = view != self._number[name]
            if not wrong.any():
                continue
            row, column = (int(axis[0]) for axis in np.nonzero(wrong))
            writer = self._names[int(view[row, column])]
            whose = f"that buffer {writer} wrote last" if writer else "that nothing wrote"
            raise UnwrittenInputError(
                f"{reader} reads {int(np.count_nonzero(wrong))} of {view.size} bytes of buffer {name} {whose}; "
                f"{self._first_byte_text(pool, start, first + row * stride + column - start)}"
            )

    def _first_byte_text(self, pool: int, start: int, byte: int) -> str:
        """The place of a wrong byte of the buffer at `start`, and what to do."""
        return (
            f"the first is its byte {byte}, byte {start + byte} of pool {self._artifact.run_pools[pool].name}; "
            "check plan.json with npu-memplan verify, and compile the model again"
        )

    def _mark_writes(self, writes: Sequence[_Named]) -> None:
        for name, access in writes:
            for view, _, _ in self._access_views(name, access):
                view[...] = self._number[name]

    def _access_views(self, name: str, access: BufferAccess) -> Iterator[tuple[npt.NDArray[np.int32], int, int]]:
        """The writers of an access, run by run: [pieces, bytes], the first byte in the pool, from piece to piece."""
        pool, start, stop = self._where[name]
        writers = self._writers[pool]
        for first, size, pieces, stride in access.runs or (ByteRun(0, stop - start),):
            item = writers.itemsize
            place = (start + first) * item
            yield (
                np.ndarray((pieces, size), np.int32, writers.data, place, (stride * item, item)),
                start + first,
                stride,
            )

    def _fresh_spans(self, number: int) -> Sequence[Spans]:
        """The bytes of what begins to live in an NPU call, but for those in which something was before, by pool."""
        if not self._artifact.problem.accesses:
            return ((),) * len(self._pools)  # a plan by hand does not say what is written where
        if number not in self._fresh_of:
            made: list[list[tuple[int, int]]] = [[] for _ in self._pools]
            kept: list[list[tuple[int, int]]] = [[] for _ in self._pools]
            calls = self._artifact.calls
            call = calls[number] if number < len(calls) and not calls[number].conditional else None
            first, last = (0, 0) if call is None else call.points
            # What it only reads is older, whatever its life says: the value of an `if` lives under several names.
            older = set() if call is None else self._shared | set(call.reads) - set(call.writes)
            for name, (pool, start, stop) in self._where.items():
                if name in older or _lives_before(self._buffers[name], first):
                    kept[pool].append((start, stop))
                elif any(first <= life.first < last for life in self._buffers[name].lifetimes):
                    made[pool].append((start, stop))
            both = zip(made, kept, strict=True)
            self._fresh_of[number] = [subtract_spans(merge_spans(born), merge_spans(old)) for born, old in both]
        return self._fresh_of[number]

    def _remember_writers(self) -> None:
        for before, pool in zip(self._before, self._pools, strict=True):
            before[:] = pool


def _lives_before(buffer: Buffer, point: int) -> bool:
    """Whether it holds something when the step at `point` begins."""
    given = buffer.kind in _GIVEN
    return any(life.first - given < point < life.last for life in buffer.lifetimes)
