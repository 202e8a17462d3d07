"""Brings a module into the form that is planned: PrimFuncs whose allocations are statements.

Invariant: `prepare` is idempotent and deterministic, so extraction and rewriting see the same
module. NPU PrimFuncs are left untouched: their allocations are statements already.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from ..vocabulary import is_npu
from .sizes import static_extent
from .tir import nodes_of


def prepare(module: Any, user: str = "") -> Any:
    """`module` with every schedulable (block-level) PrimFunc lowered to loops and allocations.

    With `user`, only those that this function refers to.
    """
    functions = dict(module.functions.items())
    if user:
        used = [f for gv, f in functions.items() if gv.name_hint == user]
        functions = {gv: functions[gv] for f in used for gv in nodes_of(f.body, ir.GlobalVar) if gv in functions}
    blocked = {
        gv: f for gv, f in functions.items() if isinstance(f, tirx.PrimFunc) and not is_npu(f) and _has_blocks(f)
    }
    if not blocked:
        return module
    lowered = _to_loops(tvm.IRModule(blocked))
    result = tvm.IRModule(dict(module.functions.items()), module.attrs, dict(module.global_infos.items()))
    for gv, f in lowered.functions.items():
        body = tvm_ffi.structural_map(f.body, (tirx.For, _marked))
        result.update_func(module.get_global_var(gv.name_hint), tirx.PrimFunc(f.params, body, f.ret_type, f.attrs))
    return result


UNIT = "npu_memplan.unit"


def _marked(loop: Any) -> Any:
    """A loop of one round that lowering kept (of a schedule's pragma): it is in the kernel as without a plan."""
    if static_extent(loop.extent) != 1 or loop.annotations or loop.kind != tirx.ForKind.SERIAL:
        return loop
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, {UNIT: True}, loop.step
    )


def _has_blocks(function: Any) -> bool:
    found = tvm_ffi.structural_walk(function.body, (s_tir.SBlock, lambda s: tvm_ffi.VisitInterrupt(True)), order="pre")
    return found is not None


def _to_loops(module: Any) -> Any:
    # TVM's own order up to LowerOpaqueBlock, after which nothing about blocks is left to lower.
    passes = [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.ManifestSharedMemoryLocalStage(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerAutoCopy(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.InjectPermutedLayout(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.InjectSoftwarePipeline(),
        s_tir.transform.TransformMmaBufferLayout(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.StmtSimplify(),  # also folds what TVMScript would fold when it reads the text back
    ]
    return ir.transform.Sequential(passes)(module)
