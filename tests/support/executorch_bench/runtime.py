"""Programs in ExecuTorch's own runtime, on memory that is poisoned first; the NPU model in place of the driver.

Invariant: a stream gets the memory that the runtime gives the backend, nothing is copied to memory of its own; bytes of
the scratch count as written only where an input was copied or the stream wrote them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fvp_runner.base import POISON
from fvp_runner.executorch.model import shape_bytes
from fvp_runner.npu_model.errors import UninitialisedReadError
from fvp_runner.npu_model.model import NpuModel, RunStats
from fvp_runner.npu_model.spec.feature_maps import Bytes
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.stream.encode import parse_payload
from npu_memplan.models.executorch.program import ExecutorchProgram, Method, ValueTensor, read_program

from .building import BenchError, build_library

_STEPS = {
    1: "the program cannot be loaded", 2: "there is no such method", 3: "planned buffers are missing",
    4: "the method cannot be loaded", 5: "the method has another number of inputs or outputs",
    6: "an input has another size or no planned memory", 7: "the method does not run",
    8: "an output has another size",
}  # fmt: skip
_loaded: list[ctypes.CDLL] = []  # at most one: the runtime takes one backend of a name in a process
_METHOD_BYTES = 1 << 20  # of the method allocator, on a host of 64 bits


class _Memory(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_uint64))


class _Span(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Job(ctypes.Structure):
    _fields_ = (
        ("commands", ctypes.c_void_p), ("command_bytes", ctypes.c_uint64), ("bases", ctypes.c_void_p * 3),
        ("sizes", ctypes.c_uint64 * 3), ("given", ctypes.POINTER(_Span)), ("given_count", ctypes.c_uint64),
        ("taken", ctypes.POINTER(_Span)), ("taken_count", ctypes.c_uint64),
    )  # fmt: skip


_DRIVER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Job))


@dataclass(frozen=True, slots=True)
class BenchCall:
    """The bytes that one call of a delegate was given, and those that it made."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BenchRun:
    """What one inference gave."""

    outputs: tuple[NDArray[Any], ...]
    stats: tuple[RunStats, ...]  # of each call of a delegate
    calls: tuple[BenchCall, ...]
    copied_in_bytes: int
    copied_out_bytes: int
    scratch_bytes: int  # most that one call took of the temporary allocator
    method_bytes: int  # of the method allocator, on this host


@dataclass(frozen=True, slots=True)
class BenchMemory:
    """The memory a firmware gives: sizes of the planned buffers (None: as the method asks) and of the temporary
    allocator (None: the largest scratch); `temp_at`: it is at this byte of the first planned buffer; at 0 the two are
    one arena, as `one_arena.h` has it."""

    planned_bytes: Sequence[int] | None = None
    temp_bytes: int | None = None
    temp_at: int | None = None
    fast_bytes: int = 384 * 1024


class RuntimeBench:
    """ExecuTorch's runtime in this process; `folder` keeps the library that is built."""

    def __init__(self, folder: Path, checks: bool = True) -> None:
        import executorch.kernels.quantized
        import executorch.runtime  # noqa: F401  registers kernels, as the one before

        self.checks = checks
        if not _loaded:
            _loaded.append(ctypes.CDLL(str(build_library(folder))))
        self._library = _loaded[0]
        self._driver = _DRIVER(self._drive)
        self._models: dict[str, NpuModel] = {}
        self._stats: list[RunStats] = []
        self._calls: list[BenchCall] = []
        self._fault: list[BaseException] = []
        self._shared = False  # whether planned tensors may be in the scratch

    def run(
        self, data: bytes, inputs: Sequence[NDArray[Any]], method: str = "", memory: BenchMemory | None = None
    ) -> BenchRun:
        """One inference of the program in `data`; inputs and outputs are in their own shapes, whatever the order of
        their dimensions in memory. `BenchError` with the runtime's error, or the NPU model's error.
        """
        layout = memory or BenchMemory()
        program = read_program(data)
        chosen = program.method(method)
        whole = _aligned(len(data))
        whole[:] = np.frombuffer(data, np.uint8)
        planned = [_aligned(size) for size in self._planned(chosen, layout)]
        scratch = _scratch(program, chosen) if layout.temp_bytes is None else layout.temp_bytes
        temp = _aligned(scratch) if layout.temp_at is None else planned[0][layout.temp_at : layout.temp_at + scratch]
        fast, own = _aligned(layout.fast_bytes), _aligned(_METHOD_BYTES)
        given = [_stored(value, chosen, index) for value, index in zip(inputs, chosen.inputs, strict=False)]
        made = [_tensor(chosen, index) for index in chosen.outputs]
        outputs = [_aligned(tensor.size_bytes) for tensor in made]
        self._stats, self._calls, self._fault, self._shared = [], [], [], layout.temp_at is not None
        self._library.npu_memplan_set_driver(
            self._driver, ctypes.c_void_p(fast.ctypes.data), ctypes.c_uint64(len(fast))
        )
        used, counters = ctypes.c_uint64(), (ctypes.c_uint64 * 3)()
        code = self._library.npu_memplan_run(
            _memories([whole]), chosen.name.encode(), _memories(planned), ctypes.c_uint64(len(planned)),
            _memories([own, temp]), _memories(given), ctypes.c_uint64(len(given)), _memories(outputs),
            ctypes.c_uint64(len(outputs)), ctypes.byref(used),
        )  # fmt: skip
        self._library.npu_memplan_counters(counters)
        if self._fault:
            raise self._fault[0]
        if code:
            raise BenchError(f"{_STEPS[code & 255]} (ExecuTorch's error {code >> 8:#x})")
        inside, outside, most = (int(counter) for counter in counters)
        found = tuple(shape_bytes(data, tensor) for data, tensor in zip(outputs, made, strict=True))
        return BenchRun(found, tuple(self._stats), tuple(self._calls), inside, outside, most, int(used.value))

    def _planned(self, method: Method, layout: BenchMemory) -> list[int]:
        if layout.planned_bytes is not None:
            return list(layout.planned_bytes)
        return [method.planned_bytes.get(memory, 0) for memory in range(1, max(method.planned_bytes, default=0) + 1)]

    def _drive(self, job: Any) -> int:
        """The driver's part; what is wrong is kept, as an exception cannot go through the runtime."""
        try:
            self._stats.append(self._run(job.contents))
        except NpuMemplanError as error:
            self._fault.append(error)
            return 1
        return 0

    def _run(self, job: _Job) -> RunStats:
        payload = parse_payload(ctypes.string_at(job.commands, job.command_bytes))
        model = self._models.setdefault(payload.accelerator.name, NpuModel(payload.accelerator, self.checks))
        regions = [_view(job.bases[i], job.sizes[i]) for i in range(3)]
        defined = [np.zeros(len(region), np.bool_) for region in regions]
        defined[0][:] = True
        filled = np.ones(len(regions[1]), np.bool_)
        for span in job.given[: job.given_count]:
            filled[span.offset : span.offset + span.size] = False
            defined[1][span.offset : span.offset + span.size] = True
        if not self._shared:
            regions[1][filled] = POISON
        given = tuple(_bytes(regions[1], span) for span in job.given[: job.given_count])
        stats = model.run(payload.words, regions, defined if self.checks else None)
        for span in job.taken[: job.taken_count] if self.checks else ():
            if not defined[1][span.offset : span.offset + span.size].all():
                raise UninitialisedReadError(f"an output at byte {span.offset} of the scratch was not written whole")
        taken = tuple(_bytes(regions[1], span) for span in job.taken[: job.taken_count])
        self._calls.append(BenchCall(given, taken))
        return stats


def _aligned(size: int) -> Bytes:
    """Poisoned memory that begins at a multiple of 16 bytes."""
    whole = np.full(size + 16, POISON, np.uint8)
    start = -whole.ctypes.data % 16
    return whole[start : start + size]


def _view(address: int | None, size: int) -> Bytes:
    if not address or not size:
        return np.zeros(0, np.uint8)
    held: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(held, np.uint8)


def _memories(arrays: Sequence[NDArray[Any]]) -> Any:
    return (_Memory * max(len(arrays), 1))(*(_Memory(a.ctypes.data, a.nbytes) for a in arrays))


def _bytes(region: Bytes, span: Any) -> bytes:
    return region[span.offset : span.offset + span.size].tobytes()


def _stored(value: NDArray[Any], method: Method, index: int) -> NDArray[Any]:
    """An input as it is in memory."""
    order = _tensor(method, index).dim_order
    return np.ascontiguousarray(value.transpose(order) if len(order) == value.ndim else value)


def _tensor(method: Method, index: int) -> ValueTensor:
    tensor = method.tensor(index)
    if tensor is None:
        raise BenchError(f"value {index}, an input or output of method {method.name!r}, is no tensor")
    return tensor


def _scratch(program: ExecutorchProgram, method: Method) -> int:
    from npu_memplan.models.executorch.delegates import npu_calls

    sizes = [one.blocks.scratch_bytes for one in npu_calls(program) if one.method is method]
    return max(sizes, default=0) + 16 if sizes else 16
