"""`NpuModel`: executes register command streams on the caller's memory.

Invariant: memory is never copied; regions are read and written in place. A stream is decoded once (`prepare_stream`)
and bound to memory once, as long as the same arrays are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.time import MemoryMap

from .bound.kernels import Bound, DecodedConstants, bind_step
from .bound.memory import Dma, FeatureMapAccess, RegionMemory, Shadow
from .checks import hazards
from .checks.hazards import Schedule
from .errors import MalformedStreamError, ModelFaultError, NpuModelError, ScheduleError
from .spec.feature_maps import Bytes
from .spec.stream import DecodedStep, DecodedStream

_REMEMBERED = 64  # streams, each with its latest binding to memory
Observer = Callable[[DecodedStep, Bound], None]


@dataclass(frozen=True, slots=True)
class RunStats:
    cycles: int  # an estimate, see `npu_memplan.ethosu.time`
    operations: int  # kernels and transfers
    beats: tuple[int, int, int, int] = (0, 0, 0, 0)  # an estimate: AXI port 0 read, written; port 1 read, written
    messages: tuple[str, ...] = ()  # features that no reference confirms
    timing: tuple[str, ...] = ()  # what is right only because something else takes its time


_FAULTS = (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError)


@dataclass(slots=True, eq=False)
class _Binding:
    key: Any
    memory: RegionMemory
    bound: dict[int, Bound]  # by index of the step
    owners: tuple[Any, ...]  # keeps arrays alive while their addresses are a key


@dataclass(slots=True, eq=False)
class _Prepared:
    program: DecodedStream
    stats: RunStats  # of any run
    constants: dict[int, list[DecodedConstants]]  # decoded weights of each step, by its index; at most one set
    binding: _Binding | None = None  # the latest


class NpuModel:
    """A functional Ethos-U55, U65 or U85 of one configuration.

    With `checks`, streams are checked for missing waits and too large BLOCKDEP before they run, and reads of bytes that
    were never written and accumulator overflows are found while they run. Register faults, addresses outside their
    region and damaged weights are errors always. `where`: the memories that cycles are estimated with (None: those of
    the accelerator's default system).
    """

    def __init__(self, accelerator: Architecture, checks: bool = True, where: MemoryMap | None = None) -> None:
        self.accelerator = accelerator
        self._where = where
        self.checks = checks
        self._decoded = lru_cache(_REMEMBERED)(self._decode_stream)
        self._latest: tuple[Sequence[int], _Prepared] | None = None

    def prepare_stream(self, words: Sequence[int]) -> DecodedStream:
        """Decode and check a stream (without its container); remembered by content."""
        return self._prepare_words(words).program

    def _prepare_words(self, words: Sequence[int]) -> _Prepared:
        if self._latest is not None and self._latest[0] is words and isinstance(words, tuple):
            return self._latest[1]
        try:
            key = np.asarray(words, np.uint32).tobytes()
        except (OverflowError, ValueError, TypeError) as error:
            raise MalformedStreamError(f"the stream is no sequence of 32-bit words: {error}") from None
        prepared = self._decoded(key)
        self._latest = (words, prepared)
        return prepared

    def _decode_stream(self, stream: bytes) -> _Prepared:
        try:
            program = DecodedStream.decode_words(np.frombuffer(stream, np.uint32).tolist(), self.accelerator)
            timing: tuple[str, ...] = ()
            if self.checks:
                hazards.check_in_place(program)
                hazards.check_waits(program)
                timing = hazards.check_blockdep(program)
            spent = program.estimate_time(self._where)
            beats = (spent.beats(0, False), spent.beats(0, True), spent.beats(1, False), spent.beats(1, True))
            return _Prepared(program, RunStats(spent.total, len(program.steps), beats, program.messages, timing), {})
        except _FAULTS as error:
            raise _model_fault(error) from error

    def run(
        self,
        words: Sequence[int],
        regions: Sequence[Bytes | None],
        defined: Sequence[Shadow | None] | None = None,
        *,
        observer: Observer | None = None,
    ) -> RunStats:
        """Execute a stream.

        `regions[i]` is the memory of base pointer i: uint8, one-dimensional, contiguous, written in place.
        `defined[i]` (bool, same length) says which bytes hold something; the model reads it for its check of
        uninitialised reads and marks what it writes. `observer` is called after each operation.
        Raises subclasses of `NpuModelError`.
        """
        prepared = self._prepare_words(words)
        self._execute_program(
            self._bind_steps(prepared, regions, defined), prepared.program, None, self.checks, observer
        )
        return prepared.stats

    def fuzz_schedule(
        self,
        words: Sequence[int],
        regions: Sequence[Bytes | None],
        count: int,
        defined: Sequence[Shadow | None] | None = None,
    ) -> RunStats:
        """`run`, then execute the stream again under `count` other legal orders; `ScheduleError` if one differs."""
        writable = [r for r in regions if r is not None and r.flags.writeable]
        before = [r.copy() for r in writable]
        stats = self.run(words, regions, defined)
        after = [r.copy() for r in writable]
        prepared = self._prepare_words(words)
        program, binding = prepared.program, self._bind_steps(prepared, regions, defined)
        try:
            for schedule in Schedule.adversarial_schedules(count):
                for region, content in zip(writable, before, strict=True):
                    region[:] = content
                self._execute_program(binding, program, schedule, False, None)
                for region, content in zip(writable, after, strict=True):
                    if not np.array_equal(region, content):
                        at = int(np.argmax(region != content))
                        number = next(i for i, r in enumerate(regions) if r is region)
                        raise ScheduleError(
                            f"the result depends on when transfers finish: with kernels {schedule.kernels.value}, DMA "
                            f"{schedule.dma.value}, seed {schedule.seed}, byte {at:#x} of region {number} is "
                            f"{region[at]} instead of {content[at]}; a KERNEL_WAIT or DMA_WAIT is missing"
                        )
        finally:
            for region, content in zip(writable, after, strict=True):
                region[:] = content
        return stats

    def _bind_steps(
        self, prepared: _Prepared, regions: Sequence[Bytes | None], defined: Sequence[Shadow | None] | None
    ) -> _Binding:
        key = (tuple(map(_array_identity, regions)), None if defined is None else tuple(map(_array_identity, defined)))
        binding = prepared.binding
        if binding is None or binding.key != key:
            _check_regions(regions, defined)
            memory = RegionMemory(self.accelerator, regions, defined)
            try:
                bound = {
                    index: bind_step(step, memory, self.checks, prepared.constants.setdefault(index, []))
                    for index, step in enumerate(prepared.program.steps)
                }
            except _FAULTS as error:
                raise _model_fault(error) from error
            binding = prepared.binding = _Binding(key, memory, bound, (*regions, *(defined or ())))
        return binding

    def _execute_program(
        self,
        binding: _Binding,
        program: DecodedStream,
        schedule: Schedule | None,
        checks: bool,
        observer: Observer | None,
    ) -> None:
        memory, bound, result = binding.memory, binding.bound, _Result()
        memory.reset()
        order = program.executed_commands(result) if schedule is None else schedule.ordered_steps(program, result)
        for step in order:
            if not isinstance(step, DecodedStep):
                continue
            operation = bound[step.registers.index]
            try:
                if checks:
                    hazards.check_defined(memory, step, operation)
                    hazards.overwrite_tables(memory, step)
                operation.run()
            except _FAULTS as error:
                raise _model_fault(error) from error
            if isinstance(operation, Dma):
                operation.mark_defined()
            else:
                operation.output.map.mark_defined()
                result.kernel = operation.output.map
            if observer is not None:
                observer(step, operation)


@dataclass(slots=True)
class _Result:
    """The flag that conditional jumps look at: whether what the last kernel wrote is true."""

    kernel: FeatureMapAccess | None = None

    def __call__(self) -> bool:
        if self.kernel is None or self.kernel.array.size != 1:
            raise NpuModelError("a BRANCH needs a result where the last kernel made no single element")
        return bool(self.kernel.array.any())


def _model_fault(error: BaseException) -> ModelFaultError:
    """The error for an exception of numpy or Python, which no stream may cause: it is a fault of the model."""
    return ModelFaultError(
        f"the NPU model failed on this stream ({type(error).__name__}: {error}); please report it with the stream"
    )


def _array_identity(array: NDArray[Any] | None) -> Any:
    return None if array is None else (array.__array_interface__["data"], array.size)


def _check_regions(regions: Sequence[Bytes | None], defined: Sequence[Shadow | None] | None) -> None:
    for number, region in enumerate(regions):
        if region is None:
            continue
        if region.dtype != np.uint8 or region.ndim != 1 or not region.flags.c_contiguous:
            raise NpuModelError(f"region {number} must be a contiguous one-dimensional uint8 array")
        shadow = defined[number] if defined is not None and number < len(defined) else None
        if shadow is not None and (shadow.dtype != np.bool_ or shadow.shape != region.shape):
            raise NpuModelError(f"the shadow of region {number} must be a bool array of {region.size} elements")
