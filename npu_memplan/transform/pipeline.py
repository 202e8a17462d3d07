"""The Relax pipeline that plans and builds a module.

Invariant: no pass in it plans what is planned again. TVM's own StaticPlanBlockMemory is left out: what the
plan left to the run time stays there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import tvm
from tvm import relax

from ..problem import Pool
from .config import ConfigError, PlanOptions
from .plan_memory import PlanMemory
from .typed_pass import TypedPass, typed_pass

NAME = "npu_memplan"
"""What the pipeline is called in TVM's registry."""


@typed_pass
class RelaxPipeline(TypedPass):
    """The passes of `pipeline`, as one; `plan` is the first of them."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module as TVM's code generation for the virtual machine takes it."""
        if self.plan is not None:
            module = self.plan(module)
        return lowering()(module)


def pipeline(
    pools: Iterable[Pool] | None = None, planner: str | None = None, *, plan: bool = True, **given: Any
) -> Any:
    """The passes that plan a module and build it, as one.

    Parameters
    ----------
    pools : iterable of Pool, optional
        As for `PlanMemory`; what is left out comes from the scope around (`config`, `pass_context`), or is the default.
    planner : str, optional
        Name of a registered planner.
    plan : bool, optional
        Plan the functions that are not planned yet. If False they allocate each tensor by itself, at run time.
    **given
        Further parameters of `PlanMemory`.

    Returns
    -------
    tvm.transform.Pass
        For `tvm.compile(module, target=..., relax_pipeline=npu_memplan.relax_pipeline())`. Once `npu_memplan.transform`
        is imported, `relax_pipeline="npu_memplan"` is the one without options.

    Raises
    ------
    ConfigError
        An option is unknown or has a value of the wrong kind, here; others as for `PlanMemory`, when it is run.
    """
    known = [f.name for f in fields(PlanOptions)]
    if unknown := sorted(set(given).difference(known)):
        raise ConfigError(f"unknown planning option {unknown[0]!r}; known: {', '.join(known)}")
    given |= {name: value for name, value in (("pools", pools), ("planner", planner)) if value is not None}
    if given and not plan:
        raise ConfigError(f"plan=False plans nothing, so {sorted(given)[0]!r} has no meaning; leave one of them out")
    return RelaxPipeline(PlanMemory(**given) if plan else None)


def lowering() -> Any:
    """The passes after the plan: those of TVM's default pipeline without its planner."""
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
        name="npu_memplan.lowering",
    )


if NAME not in relax.pipeline.PIPELINE_MAP:  # again after a reload of this module
    relax.register_pipeline(NAME)(pipeline)
