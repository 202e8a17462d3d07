"""The Relax pipeline for planned modules.

Invariant: no pass in it plans what is planned again. TVM's own StaticPlanBlockMemory is left out: what the
plan left to the run time stays there.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .plan_memory import PlanMemory


def pipeline(*, plan: bool = True) -> Any:
    """The passes that build a planned module, as one.

    Parameters
    ----------
    plan : bool, optional
        Plan the functions that are not planned yet, with the options of the scope around (`config`, `pass_context`) or
        their defaults. If False they allocate each tensor by itself, at run time.

    Returns
    -------
    tvm.transform.Pass
        For `tvm.compile(module, target=..., relax_pipeline=npu_memplan.relax_pipeline())`.
    """
    passes = relax.transform
    return tvm.ir.transform.Sequential(
        [
            *([PlanMemory()] if plan else []),
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
