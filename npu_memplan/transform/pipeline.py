"""The Relax pipeline for planned modules.

Invariant: no pass in it plans memory again. TVM's own StaticPlanBlockMemory is left out: what the
plan left to the run time stays there.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def pipeline() -> Any:
    """The passes that build a planned module, as one.

    Returns
    -------
    tvm.transform.Pass
        For `tvm.compile(planned, target=..., relax_pipeline=npu_memplan.pipeline())`.
    """
    passes = relax.transform
    return tvm.ir.transform.Sequential(
        [
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            passes.LegalizeOps(skip_ops=["relax.reshape"]),
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.LowerAllocTensor(),
            passes.KillAfterLastUse(),
            passes.LowerRuntimeBuiltin(),
            passes.ComputePrimValue(),
            passes.VMShapeLower(),
            passes.AttachGlobalSymbol(),
        ],
        name="npu_memplan.pipeline",
    )
