"""The reference for ONNX models: TVM's own, unplanned compilation of the same file.

Invariant: nothing of the plan, of the partitioning, of our repairs of the import or of the generated C is used: the
module goes from TVM's frontend through TVM's default pipeline for LLVM to the Relax VM, which allocates as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from npu_memplan.frontend.errors import imported
from npu_memplan.models.onnx import read_onnx

from .framework import FrameworkReference


class OnnxReference(FrameworkReference):
    """An ONNX network on the Relax VM.

    Integer results are comparable bit for bit. Float ones come from another compiler and another math library
    than the generated C, so they may differ in the last bits; QDQ models are computed in float between
    quantisations, so the NPU's integers may differ by one step.
    """

    what = "TVM's Relax VM, without a plan"
    package = "apache-tvm"

    def __init__(self, model: bytes | Path, name: str = "reference") -> None:
        import tvm
        from tvm import relax

        proto = read_onnx(model, name)
        module = imported("ONNX", name, lambda: _import(proto))
        parameters = module["main"].params
        super().__init__(name, [(p.name, tuple(map(int, p.ty.shape)), str(p.ty.dtype)) for p in parameters])
        self._tensor = tvm.runtime.tensor
        self._machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def _compute(self, inputs: Sequence[NDArray[Any]]) -> Any:
        return self._machine["main"](*(self._tensor(value) for value in inputs))


def _import(proto: Any) -> Any:
    """TVM's import as it is."""
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    return relax.transform.DecomposeOpsForInference()(from_onnx(proto))
