"""The reference for ONNX models: TVM's own, unplanned compilation of the same file.

Invariant: nothing of the plan, of the partitioning or of the generated C is used: the module goes from TVM's
frontend through TVM's default pipeline for LLVM to the Relax VM, which allocates as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.frontend.onnx_model import import_onnx, read_onnx

from .reference import ReferenceError


class OnnxReference:
    """An ONNX network on the Relax VM; the same interface as `Reference`.

    Integer results are comparable bit for bit. Float ones come from another compiler and another math library
    than the generated C, so they may differ in the last bits; QDQ models are computed in float between
    quantisations, so the NPU's integers may differ by one step.
    """

    what = "TVM's Relax VM, without a plan"

    def __init__(self, model: bytes | Path, name: str = "reference") -> None:
        import tvm
        from tvm import relax

        self.name = name
        proto = read_onnx(model, name)
        module = import_onnx(proto, name).module
        self._parameters = list(module["main"].params)
        self._tensor = tvm.runtime.tensor
        self._machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`, in the graph's order; `ReferenceError` for inputs that do not fit."""
        if len(inputs) != len(self._parameters):
            raise ReferenceError(f"{self.name} takes {len(self._parameters)} inputs, but got {len(inputs)}")
        for parameter, value in zip(self._parameters, inputs, strict=True):
            shape, dtype = tuple(int(d) for d in parameter.ty.shape), str(parameter.ty.dtype)
            if value.shape != shape or value.dtype.name != dtype:
                raise ReferenceError(
                    f"input {parameter.name} of {self.name} must be {dtype}{list(shape)}, "
                    f"but is {value.dtype}{list(value.shape)}"
                )
        found = self._machine["main"](*(self._tensor(np.ascontiguousarray(v)) for v in inputs))
        results = [found] if hasattr(found, "numpy") else list(found)
        return tuple(np.array(r.numpy()) for r in results)
