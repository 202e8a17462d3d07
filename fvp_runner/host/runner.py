"""The local runner: the artifact's C in this process, NPU calls on the NPU model.

Invariant: there is one copy of every pool. The C code and the NPU model both work on the memory that the plan
describes; it is poisoned before the run, so a byte that was never written shows.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_memplan.artifact.model import TensorSlot
from npu_memplan.c_compiler import missing_compiler
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.problem import POISON, Agent, BufferKind

from ..base import RunnerError, RunOptions, RunOutputs, RunTimeoutError, fitting_inputs, load_artifact
from ..guards import GuardedPool
from ..npu_model.bound.kernels import Bound
from ..npu_model.model import NpuModel
from ..npu_model.spec.stream import DecodedStep
from ..result import Array
from .sanitizer import Sanitizer
from .shadow import PoolShadows
from .shared_object import SharedObject, build_library, compiler_version, step_symbols

_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_int32,
)
_FAILED = -1
ALIGNMENT_BYTES = 64


def missing(options: RunOptions) -> str | None:
    return missing_compiler()


def create(artifact: Any, options: RunOptions) -> LocalRunner:
    return LocalRunner(artifact, options)


class Watch(Protocol):
    """Is called with what a run does; see `LocalRunner.watch`."""

    def see_npu(self, launch: int, step: DecodedStep, bound: Bound) -> None:
        """An operation of NPU launch number `launch` has ended; `bound` is its memory."""

    def see_host(self, number: int) -> None:
        """Call number `number` of the program, one of the host's, has ended."""


_LEAST_BUILD_S = 60.0  # that the C compiler may take, however short a run has to be


class LocalRunner:
    """Runs an artifact in this process. `run` is one inference from a fresh start."""

    name = "local"

    def __init__(
        self, directory: Path | str, options: RunOptions | None = None, shared: Sequence[GuardedPool] = ()
    ) -> None:
        """`shared`: pools that others use as well, at least as large as the plan needs."""
        self.options = options or RunOptions()
        self.artifact = load_artifact(directory, self.options)
        self._directory = Path(directory)
        brought = self.options.external_sources
        limits = self.options.sanitize, max(self.options.timeout_s, _LEAST_BUILD_S)
        self._library: SharedObject = build_library(
            self._directory, self.artifact, self.options.progress, brought, *limits
        )
        self.watch: Watch | None = None
        self.between: Callable[[], None] | None = (
            None  # called before each NPU launch, and after each of its operations
        )
        self._launches = 0
        self._launch_callback = _LAUNCH(self._launch_npu)
        self._library.set_launch(self._launch_callback)
        self._model: NpuModel | None = None
        if self.artifact.target.accelerator != "none":
            self._model = NpuModel(
                accelerator(self.artifact.target.accelerator), self.options.checks, self.artifact.memory_map
            )
        sizes = [self.artifact.pool_bytes(pool.name) for pool in self.artifact.run_pools]
        alignments = [pool.alignment for pool in self.artifact.run_pools]
        self._guarded = tuple(shared) or tuple(
            GuardedPool(s, max(a, ALIGNMENT_BYTES)) for s, a in zip(sizes, alignments, strict=True)
        )
        self.pools = tuple(guarded.pool for guarded in self._guarded)
        self._shadow = PoolShadows(self.artifact, self.pools)
        self._sanitizer = self._open_sanitizer(bool(brought)) if self.options.sanitize else None
        self._streams: dict[int, list[int]] = {}  # by address: they are constants
        self._error: BaseException | None = None
        self._ended = threading.Event()  # the last run
        self._ended.set()
        self._deadline = 0.0
        self._cycles = 0
        self._beats: tuple[int, ...] = (0, 0, 0, 0)
        self._notes: list[str] = []

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        """One inference on poisoned pools, with all states as they start.

        Errors: `RunnerError` for wrong inputs or a failed step, `GuardError`, whatever the NPU model's
        checks raise, `RunTimeoutError`.
        """
        self.reset()
        return self.run_next(inputs)

    def reset(self) -> None:
        """Poison all pools; let the program load its resident constants and set its states to what they start with."""
        self._check_free()
        written = self._init_constants(POISON ^ 0xFF) if self.artifact.has_init else []
        for guarded in self._guarded:
            guarded.pool[:] = POISON
            guarded.fill_guards()
        self._shadow.reset()
        if self._sanitizer is not None:
            self._sanitizer.clear_writers()
        if written:
            again = self._init_constants(POISON)
            self._shadow.define_constants([one | other for one, other in zip(written, again, strict=True)])
        self._reset_states()
        self._define_kept()

    def start(self) -> None:
        """Do what `reset` does, but for the poison: in pools that others have started in."""
        self._check_free()
        if self.artifact.has_init and (status := self._library.init_constants(self._pool_pointers())) != 0:
            raise RunnerError(f"{self.artifact.name}_init returned {status}; 0 is success")
        self._reset_states()
        self.forget_pools()

    def forget_pools(self) -> None:
        """Nothing but states and resident constants is defined any more: others have used the pools."""
        self._shadow.reset()
        if self._sanitizer is not None:
            self._sanitizer.clear_writers()
        if self.artifact.has_init:
            self._shadow.define_constants([np.ones(pool.size, np.bool_) for pool in self.pools])
        self._define_kept()

    def _reset_states(self) -> None:
        if self.artifact.states:
            self._library.reset(self._pool_pointers())

    def _init_constants(self, poison: int) -> list[npt.NDArray[np.bool_]]:
        """Let the program load resident constants into pools full of `poison`; which bytes were written."""
        for pool in self.pools:
            pool[:] = poison
        status = self._library.init_constants(self._pool_pointers())
        if self._sanitizer is not None:
            self._sanitizer.raise_fault()
        if status != 0:
            raise RunnerError(f"{self.artifact.name}_init returned {status}; 0 is success")
        return [pool != poison for pool in self.pools]

    def _define_kept(self) -> None:
        """States and resident constants are there."""
        for slot in self.artifact.states:
            self._define_slot(slot)
        if self._sanitizer is None:
            return
        sizes = {b.name: b.size_bytes for b in self.artifact.problem.buffers if b.kind is BufferKind.RESIDENT}
        for placement in self.artifact.plan.placements:
            if placement.buffer in sizes:
                self._sanitizer.define_bytes(placement.pool, placement.offset_bytes, sizes[placement.buffer])

    def run_next(self, inputs: Sequence[Array]) -> RunOutputs:
        """The next inference: pools and states are as the last one has left them."""
        self._check_free()
        started = time.perf_counter()
        self._deadline = started + self.options.timeout_s
        self._error, self._cycles, self._beats, self._notes, self._launches = None, 0, (0, 0, 0, 0), [], 0
        for slot, values in zip(self.artifact.inputs, fitting_inputs(self.artifact, inputs), strict=True):
            self._slot_bytes(slot)[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            self._define_slot(slot)
        self._shadow.begin_run()
        status = self._call_c(self._pool_pointers())
        if self._sanitizer is not None:
            self._sanitizer.raise_fault()
        for index, guarded in enumerate(self._guarded):
            guarded.check_guards(self.artifact, index)
        if self._error is not None:
            raise self._error
        if status != 0:
            raise RunnerError(f"{self.artifact.name}_run returned {status}; 0 is success")
        if self.options.checks:
            self._shadow.finish_run()
        return RunOutputs(
            outputs=tuple(
                self._slot_bytes(slot).copy().view(slot.dtype).reshape(slot.shape) for slot in self.artifact.outputs
            ),
            pools_after=tuple(pool.copy() for pool in self.pools) if self.options.pools_after else None,
            npu_cycles=self._cycles if self._model is not None else None,
            npu_beats=self._beats if self._model is not None else None,
            version=compiler_version(),
            seconds=time.perf_counter() - started,
            notes=tuple(self._notes),
        )

    def _open_sanitizer(self, foreign: bool) -> Sanitizer:
        pools = {pool.name: memory for pool, memory in zip(self.artifact.run_pools, self.pools, strict=True)}
        problem, plan, calls = self.artifact.problem, self.artifact.plan, self.artifact.calls
        return Sanitizer(self._library.sanitizer_functions(), pools, problem, plan, calls, foreign)

    def _define_slot(self, slot: TensorSlot) -> None:
        """The caller has written a graph input or a state."""
        self._shadow.define_slot(slot)
        if self._sanitizer is not None:
            self._sanitizer.define_bytes(slot.pool, slot.offset_bytes, slot.size_bytes)

    @property
    def launch_count(self) -> int:
        """NPU launches that the last run has begun."""
        return self._launches

    def _pool_pointers(self) -> Any:
        return (ctypes.c_void_p * max(len(self.pools), 1))(*(pool.ctypes.data for pool in self.pools))

    def _call_c(self, pointers: Any) -> int:
        """Run the C in a thread of its own: this one keeps the time and hears Ctrl-C; C that hangs stays."""
        status: list[int] = []
        symbols = None if self.watch is None else step_symbols(self._directory, self.artifact)
        ended = self._ended = threading.Event()

        def call_in_thread() -> None:
            try:
                status.append(self._library.run(pointers) if symbols is None else self._run_steps(symbols, pointers))
            except BaseException as error:  # of the observer
                self._error = error
                status.append(_FAILED)
            ended.set()

        threading.Thread(target=call_in_thread, daemon=True).start()
        if not ended.wait(max(0.0, self._deadline - time.perf_counter())):
            raise self._too_long()
        return status[0]

    def _run_steps(self, symbols: Sequence[str], pointers: Any) -> int:
        for number, (symbol, call) in enumerate(zip(symbols, self.artifact.calls, strict=True)):
            status = self._library.run_step(symbol, pointers, number)
            if status != 0:
                return status
            if self.watch is not None and call.agent is Agent.HOST:
                self.watch.see_host(number)
        return 0

    def _check_free(self) -> None:
        if not self._ended.is_set():
            raise RunnerError(f"the last run of {self.artifact.name} has not ended yet; create another runner")

    def _too_long(self) -> RunTimeoutError:
        return RunTimeoutError(
            f"{self.artifact.name} on local took longer than {self.options.timeout_s:g} s and was given up; "
            "give more time with --timeout"
        )

    def _slot_bytes(self, slot: TensorSlot) -> npt.NDArray[np.uint8]:
        """The planned bytes of a tensor: a view, not a copy."""
        index = [pool.name for pool in self.artifact.run_pools].index(slot.pool)
        return self.pools[index][slot.offset_bytes : slot.offset_bytes + slot.size_bytes]

    def _launch_npu(self, stream: int, stream_bytes: int, bases: Any, base_bytes: Any, count: int) -> int:
        """Run `npu_memplan_npu_launch` on the NPU model; an exception is kept for `run_next` to raise."""
        try:
            if time.perf_counter() > self._deadline:
                raise self._too_long()
            if self._model is None:
                raise RunnerError(f"{self.artifact.name} was compiled without an NPU, but its C launches one")
            words = self._streams.get(stream)
            if words is None:
                words = self._streams[stream] = list((ctypes.c_uint32 * (stream_bytes // 4)).from_address(stream))
            regions: list[npt.NDArray[np.uint8] | None] = []
            defined: list[npt.NDArray[np.bool_] | None] = []
            for region in range(count):
                memory, shadow = self._region_memory(region, bases[region], base_bytes[region])
                regions.append(memory)
                defined.append(shadow)
            self._shadow.before_launch(self.options.checks)
            launch = self._launches
            self._launches += 1
            if self.between is not None:
                self.between()
            observed = self.watch is not None or self.between is not None
            observer = partial(self._observe_step, launch) if observed else None
            stats = self._model.run(words, regions, defined if self.options.checks else None, observer=observer)
            self._shadow.after_launch()
            if self._sanitizer is not None:
                self._sanitizer.after_launch(self._shadow.defined if self.options.checks else None)
            self._cycles += int(stats.cycles)
            self._beats = tuple(a + b for a, b in zip(self._beats, stats.beats, strict=True))
            self._notes.extend((*stats.messages, *stats.timing))
        except BaseException as error:
            self._error = error
            return _FAILED
        return 0

    def _observe_step(self, launch: int, step: DecodedStep, bound: Bound) -> None:
        if self.watch is not None:
            self.watch.see_npu(launch, step, bound)
        if self.between is not None:
            self.between()

    def _region_memory(
        self, region: int, base: int | None, size: int
    ) -> tuple[npt.NDArray[np.uint8] | None, npt.NDArray[np.bool_] | None]:
        """The memory behind one base pointer: a pool itself, or the constants inside the C code."""
        if not size:
            return None, None
        for pool, shadow in zip(self.pools, self._shadow.defined, strict=True):
            if base == pool.ctypes.data:
                return pool[:size], shadow[:size]
        if region != 0 or base is None:
            raise RunnerError(f"base pointer {region} of an NPU call is {base or 0:#x}, which is no pool's base")
        constants = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(base))
        constants.flags.writeable = False
        return constants, None
