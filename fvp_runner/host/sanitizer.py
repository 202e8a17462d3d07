"""The host's C under the compiler's sanitizers: every access of a step is in a buffer of that step.

Invariant: a step reads bytes of buffers that it reads, once they were written, writes bytes of buffers that it writes,
and does nothing that C leaves undefined; everything else in a pool is poisoned for it. The first fault ends the run and
is named: operator, buffer, byte. The instrumentation is the compiler's (AddressSanitizer as kernels use it, and
UndefinedBehaviorSanitizer); the functions that it calls are `sanitizer.c`, so no library of the compiler's is needed
and the C runs in this process; how it is built is `instrumented`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_memplan.artifact.model import Call
from npu_memplan.files.paths import read_c
from npu_memplan.problem import Agent, Buffer, BufferKind, Plan, Problem

from ..base import RunCheckError
from .shared_object import INIT

READABLE, WRITABLE, WRITTEN = 1, 2, 4
_UNWRITTEN, _UNDEFINED = 2, 3  # kinds of findings of `sanitizer.c`


class SanitizerError(RunCheckError):
    """A host operator accessed memory that is not its own, or did what C leaves undefined."""


class _Pool(ctypes.Structure):
    _fields_ = (("base", ctypes.c_size_t), ("size", ctypes.c_size_t), ("flags", ctypes.c_void_p))


class _Finding(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32), ("step", ctypes.c_int32), ("is_write", ctypes.c_int32), ("line", ctypes.c_int32),
        ("address", ctypes.c_uint64), ("size", ctypes.c_uint64), ("text", ctypes.c_char_p), ("file", ctypes.c_char_p),
    )  # fmt: skip


_ENTER = ctypes.CFUNCTYPE(None, ctypes.c_int32)


class Sanitizer:
    """Poisons pools for each step of one runner, and reports why a run was ended."""

    def __init__(
        self,
        library: Any,
        pools: Mapping[str, npt.NDArray[np.uint8]],
        problem: Problem,
        plan: Plan,
        calls: Sequence[Call],
        foreign: bool = False,
    ) -> None:
        """`library` is the loaded C, `pools` in the order of its argument; `foreign`: C of others takes part, whose
        memory outside of pools is its own affair."""
        self._library, self._calls = library, calls
        self._names, self._pools = list(pools), list(pools.values())
        self._flags = [np.zeros(pool.size, np.uint8) for pool in self._pools]
        self._places = {p.buffer: p for p in plan.placements if p.pool in pools}
        self._buffers = {b.name: b for b in problem.buffers if b.name in self._places}
        self._enter_callback = _ENTER(self._enter_call)
        self._error: Exception | None = None  # of ours, in a call from C
        rows = [
            _Pool(pool.ctypes.data, pool.size, flags.ctypes.data)
            for pool, flags in zip(self._pools, self._flags, strict=True)
        ]
        library.npu_memplan_sanitizer_finding.restype = ctypes.POINTER(_Finding)
        library.npu_memplan_sanitizer_begin(
            (_Pool * max(len(rows), 1))(*rows), len(rows), foreign, self._enter_callback
        )

    def clear_writers(self) -> None:
        """Forget which bytes were written."""
        for flags in self._flags:
            flags[:] = 0

    def define_bytes(self, pool: str, offset_bytes: int, size_bytes: int) -> None:
        """The caller has written a graph input or a state."""
        self._flags[self._names.index(pool)][offset_bytes : offset_bytes + size_bytes] |= WRITTEN

    def after_launch(self, defined: Sequence[npt.NDArray[np.bool_]] | None) -> None:
        """The NPU has written, too: `defined` are the bytes that were written by now; None: not known."""
        for index, flags in enumerate(self._flags):
            flags[... if defined is None else defined[index]] |= WRITTEN

    def raise_fault(self) -> None:
        """`SanitizerError` says what the last run was ended for."""
        if self._error is not None:
            raise self._error
        pointer = self._library.npu_memplan_sanitizer_finding()
        if pointer:
            raise SanitizerError(self._describe_finding(pointer.contents))

    def _enter_call(self, number: int) -> None:
        try:
            self._poison_others(number)
        except Exception as error:  # C cannot hand it on
            self._error = error

    def _poison_others(self, number: int) -> None:
        """Poison all bytes that are not of call `number` of the program, which begins."""
        for flags in self._flags:
            flags &= WRITTEN
        if number >= 0 and not self._calls:  # the owners of buffers are not known
            for name in self._places:
                self._buffer_bytes(name)[:] |= READABLE | WRITABLE
        if number == INIT:
            for name, buffer in self._buffers.items():
                if buffer.kind is BufferKind.RESIDENT:
                    self._buffer_bytes(name)[:] |= WRITABLE
        if not 0 <= number < len(self._calls) or self._calls[number].agent is not Agent.HOST:
            return
        call = self._calls[number]
        own = self._own_buffers(call)
        for name, allowed in own.items():
            self._buffer_bytes(name)[:] |= allowed
        for name in own.keys() - set(call.reads):
            self._forget_buffer(name, call)

    def _own_buffers(self, call: Call) -> dict[str, int]:
        """Buffers that a call may access, and how."""
        found = dict.fromkeys(call.reads, READABLE) | dict.fromkeys(call.writes, READABLE | WRITABLE)
        first, last = call.points
        for buffer in self._buffers.values():
            inner = buffer.kind is BufferKind.HOST_SCRATCH
            if inner and any(life.first < last and first < life.last for life in buffer.lifetimes):
                found[buffer.name] = READABLE | WRITABLE
        return {name: allowed for name, allowed in found.items() if name in self._places}

    def _forget_buffer(self, name: str, call: Call) -> None:
        """The content of a buffer that begins to live in this call is undefined, but where others live in its bytes."""
        first, last = call.points
        buffer, place = self._buffers[name], self._places[name]
        if not any(first <= life.first < last for life in buffer.lifetimes):
            return
        start, stop = place.offset_bytes, place.offset_bytes + buffer.size_bytes
        fresh = np.ones(buffer.size_bytes, np.bool_)
        for other in self._buffers.values():
            there = self._places[other.name]
            if there.pool == place.pool and (other.name in call.reads or _lives_before(other, first)):
                low, high = max(there.offset_bytes, start), min(there.offset_bytes + other.size_bytes, stop)
                fresh[max(low - start, 0) : max(high - start, 0)] = False
        self._buffer_bytes(name)[fresh] &= ~WRITTEN & 0xFF

    def _buffer_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        place = self._places[name]
        first = place.offset_bytes
        return self._flags[self._names.index(place.pool)][first : first + self._buffers[name].size_bytes]

    def _describe_finding(self, finding: _Finding) -> str:
        call = self._calls[finding.step] if 0 <= finding.step < len(self._calls) else None
        who = f"host operator {call.function} (step {finding.step})" if call is not None else "the program"
        text = (finding.text or b"").decode(errors="replace")
        if finding.kind == _UNDEFINED:
            return f"{who}: {text}, which C leaves undefined ({_source_line(finding)})"
        does = f"{'writes' if finding.is_write else 'reads'} {_bytes_text(finding.size)}"
        for index, pool in enumerate(self._pools):
            offset = finding.address - pool.ctypes.data
            if -len(pool) - 4096 < offset < 2 * len(pool) + 4096:
                where = f"byte {offset} of pool {self._names[index]}"
                if finding.kind == _UNWRITTEN:
                    return f"{who} {does} at {where} that was never written: {self._owners_text(index, offset, call)}"
                return f"{who} {does} at {where}, which it may not: {self._owners_text(index, offset, call)}"
        behind = f" behind constant {text}" if text else ""
        return f"{who} {does} at address {finding.address:#x}{behind}, outside of all pools and constants"

    def _owners_text(self, index: int, offset: int, call: Call | None) -> str:
        """Buffers that the byte is of, and the step's buffers next to it."""
        pool = self._names[index]
        point = call.points[0] if call is not None else 0
        here, near = [], []
        for name, place in self._places.items():
            start, size = place.offset_bytes, self._buffers[name].size_bytes
            if place.pool != pool:
                continue
            if start <= offset < start + size and self._buffers[name].lives_at(point):
                here.append(f"byte {offset - start} of {name}")
            elif call is not None and name in self._own_buffers(call):
                distance = offset - start - size + 1 if offset >= start else start - offset
                near.append((distance, name, "behind" if offset >= start else "before"))
        near.sort()
        own = f"{_bytes_text(near[0][0])} {near[0][2]} its own {near[0][1]}" if near else "none of its own is near"
        return f"it is {' and '.join(here) or 'of no live buffer'}; {own}"


def _bytes_text(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _lives_before(buffer: Buffer, point: int) -> bool:
    return any(life.first < point < life.last for life in buffer.lifetimes)


def _source_line(finding: _Finding) -> str:
    path = Path((finding.file or b"").decode(errors="replace"))
    place = f"{path.name}:{finding.line}"
    try:
        return f"{place}: {read_c(path).splitlines()[finding.line - 1].strip()[:120]}"
    except (OSError, IndexError, ValueError):
        return place
