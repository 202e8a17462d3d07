"""A file with `ethos-u` operators in TFLite Micro's own interpreter, whose NPU is our model.

Invariant: TFLite Micro places every tensor and runs every CPU operator; the model works on the very bytes of its arena,
by the base pointers that its kernel for the NPU would hand to the driver.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.c_compiler import compiler_command
from npu_memplan.ethosu.stream.encode import parse_payload

_JOB = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))


_TENSOR = "_ZN6tflite5micro25MicroContextGetEvalTensorEPKNS0_13TfLiteContextEi"


@functools.cache
def _library() -> Any:
    command = compiler_command()
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "libtflm_npu.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([*command, "-shared", "-fPIC", "-O1", str(source), "-o", str(built)], check=True)
        return ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)  # the interpreter looks for the name everywhere


def _runtime() -> Any:
    from tflite_micro.python.tflite_micro import _runtime as extension

    return ctypes.CDLL(extension.__file__)


class _WithNpu:
    """The NPU of interpreters; `bases`: the pointers of the last NPU call."""

    def __init__(self) -> None:
        self._models: dict[str, NpuModel] = {}
        self.failure: Exception | None = None
        self.bases: tuple[int, ...] = ()
        self._job = _JOB(self._run)  # ctypes keeps no reference
        self._take_jobs()

    def _take_jobs(self) -> None:
        """Of all interpreters from now on: there is one NPU."""
        _library().npu_set(self._job, getattr(_runtime(), _TENSOR))

    def _run(self, count: int, data: Any, sizes: Any) -> int:
        try:
            arrays = [
                np.ctypeslib.as_array(ctypes.cast(data[i], ctypes.POINTER(ctypes.c_uint8)), (sizes[i],))
                for i in range(count)
            ]
            payload = parse_payload(arrays[0].tobytes())
            self.bases = tuple(int(data[i]) for i in range(1, count))
            model = self._models.setdefault(payload.accelerator.name, NpuModel(payload.accelerator))
            regions: list[Any] = [None] * 8
            given = arrays[1:9]  # the kernel gives no more than eight
            regions[: len(given)] = given
            if int(data[3]) == int(data[2]) and int(sizes[3]) != int(sizes[2]):  # what ethosu_init would be given
                regions[2] = np.full(int(sizes[3]), 0xA5, np.uint8)
            model.run(payload.words, regions)
        except Exception as error:
            self.failure = error
            return 1
        return 0


class MicroWithNpu(_WithNpu):
    """One interpreter. `head_bytes` is what its plan of tensors took."""

    def __init__(self, content: bytes, arena_bytes: int = 1 << 24) -> None:
        from tflite_micro import runtime

        super().__init__()
        self._interpreter = runtime.Interpreter.from_bytes(
            content, custom_op_registerers=["npu_memplan_register"], arena_size=arena_bytes
        )

    def run(self, inputs: Sequence[np.ndarray], outputs: int) -> tuple[np.ndarray, ...]:
        """One inference."""
        self._take_jobs()
        for position, value in enumerate(inputs):
            self._interpreter.set_input(np.array(value, order="C"), position)
        try:
            self._interpreter.invoke()
        except RuntimeError:
            if self.failure is not None:
                raise self.failure from None
            raise
        return tuple(np.array(self._interpreter.get_output(i)) for i in range(outputs))

    @property
    def head_bytes(self) -> int:
        """Bytes of the arena that hold tensors and the scratch of kernels."""
        return _part("head", self._interpreter.print_allocations)


class SharedArena(_WithNpu):
    """Interpreters of `contents`, or of the models at these addresses, with one allocator: the extension's own C++, by
    the names that it exports.
    """

    def __init__(self, contents: Sequence[bytes | int], arena_bytes: int = 1 << 20) -> None:
        super().__init__()
        self._micro, self._arena = _runtime(), np.full(arena_bytes + 16, 0xA5, np.uint8)
        start = self._arena.ctypes.data + -self._arena.ctypes.data % 16
        self._allocator = self._call("_ZN6tflite5micro23RecordingMicroAllocator6CreateEPhm", start, arena_bytes)
        self._resolver = ctypes.create_string_buffer(1 << 16)  # larger than any of these objects
        self._call("_ZN6tflite17PythonOpsResolverC1Ev", ctypes.addressof(self._resolver))
        register = _library().npu_memplan_register
        register.argtypes, register.restype = (ctypes.c_void_p,), ctypes.c_bool
        assert register(ctypes.addressof(self._resolver))
        self._contents = [
            content if isinstance(content, int) else ctypes.create_string_buffer(content, len(content) + 16)
            for content in contents
        ]
        self._interpreters = [ctypes.create_string_buffer(1 << 16) for _ in contents]
        for content, interpreter in zip(self._contents, self._interpreters, strict=True):
            start = content if isinstance(content, int) else ctypes.addressof(content)
            root = start + ctypes.c_uint32.from_address(start).value
            parameters = ctypes.addressof(self._resolver), self._allocator, 0, 0
            self._call(_INTERPRETER, ctypes.addressof(interpreter), root, *parameters)
            assert self._call(_METHOD.format("15AllocateTensorsEv"), ctypes.addressof(interpreter)) & 0xFF == 0

    def _call(self, name: str, *values: int) -> int:
        function = getattr(self._micro, name)
        function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_uint64] * len(values)
        return int(function(*values))

    def run(self, which: int, inputs: Sequence[np.ndarray], outputs: int) -> tuple[np.ndarray, ...]:
        """One inference of network `which`: bytes of its outputs."""
        self._take_jobs()
        interpreter = ctypes.addressof(self._interpreters[which])
        for position, value in enumerate(inputs):
            tensor = self._tensor("5inputEm", interpreter, position)
            assert tensor.size == value.nbytes
            tensor[:] = np.frombuffer(value.tobytes(), np.uint8)
        status = self._call(_METHOD.format("6InvokeEv"), interpreter) & 0xFF
        assert status == 0, self.failure
        return tuple(self._tensor("6outputEm", interpreter, i).copy() for i in range(outputs))

    def _tensor(self, method: str, interpreter: int, position: int) -> np.ndarray:
        """The bytes of an input or output: fields of TfLiteTensor, whose sizes `run` checks."""
        at = self._call(_METHOD.format(method), interpreter, position)
        data, size = (ctypes.c_uint64.from_address(at + offset).value for offset in (_DATA, _BYTES))
        return np.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_uint8)), (size,))

    def bytes_of(self, part: str) -> int:
        """Of the arena: its `head`, or its `tail`."""
        return _part(part, lambda: self._call(_PRINT, self._allocator))


_METHOD = "_ZN6tflite5micro16MicroInterpreter{}"
_INTERPRETER = _METHOD.format(
    "C1EPKNS_5ModelERKNS0_15MicroOpResolverEPNS0_14MicroAllocatorEPNS0_22MicroResourceVariablesEPNS0_22MicroProfilerInterfaceE"
)
_PRINT = "_ZNK6tflite5micro23RecordingMicroAllocator16PrintAllocationsEv"
_DATA, _BYTES = 24, 40  # in TfLiteTensor, of 64 bits


def _part(part: str, print_allocations: Callable[[], object]) -> int:
    with _standard_error() as read:
        print_allocations()
        text = read()
    return int(re.findall(rf"Arena allocation {part} (\d+) bytes", text)[0])


@contextmanager
def _standard_error() -> Iterator[Any]:
    """What C code writes to it meanwhile."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)

        def read() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        try:
            yield read
        finally:
            os.dup2(saved, 2)
            os.close(saved)
