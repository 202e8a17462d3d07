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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.c_compiler import compiler
from npu_memplan.ethosu.stream.container import parse_payload

_JOB = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))


_TENSOR = "_ZN6tflite5micro25MicroContextGetEvalTensorEPKNS0_13TfLiteContextEi"


@functools.cache
def _library() -> Any:
    command = compiler()
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "libtflm_npu.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([*command, "-shared", "-fPIC", "-O1", str(source), "-o", str(built)], check=True)
        return ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)  # the interpreter looks for the name everywhere


class MicroWithNpu:
    """One interpreter. `head_bytes` is what its plan of tensors took, `bases` the pointers of the last NPU call."""

    def __init__(self, content: bytes, arena_bytes: int = 1 << 24) -> None:
        from tflite_micro import runtime
        from tflite_micro.python.tflite_micro import _runtime

        library = _library()
        self._models: dict[str, NpuModel] = {}
        self.failure: Exception | None = None
        self.bases: tuple[int, ...] = ()
        self._job = _JOB(self._run)  # ctypes keeps no reference
        library.npu_set(self._job, getattr(ctypes.CDLL(_runtime.__file__), _TENSOR))
        self._interpreter = runtime.Interpreter.from_bytes(
            content, custom_op_registerers=["npu_memplan_register"], arena_size=arena_bytes
        )

    def run(self, inputs: Sequence[np.ndarray], outputs: int) -> tuple[np.ndarray, ...]:
        """One inference."""
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
        with _standard_error() as read:
            self._interpreter.print_allocations()
            text = read()
        return int(re.findall(r"Arena allocation head (\d+) bytes", text)[0])

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
            regions[: min(3, count - 1)] = arrays[1:4]
            if int(data[3]) == int(data[2]) and int(sizes[3]) != int(sizes[2]):  # what ethosu_init would be given
                regions[2] = np.full(int(sizes[3]), 0xA5, np.uint8)
            model.run(payload.words, regions)
        except Exception as error:
            self.failure = error
            return 1
        return 0


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
