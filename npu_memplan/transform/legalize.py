"""Brings any Relax module to the form that is planned.

Invariant: afterwards every tensor operator is a call_tir of a PrimFunc (or a call that is not
looked into), operators that only look at bytes in another shape are still operators, and private
Relax functions are part of their callers.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ..extract.lower import prepare
from ..extract.relax_walk import VIEWS


def legalize(module: Any) -> Any:
    """The legal form of `module`; a module in legal form comes back as it is."""
    passes = [relax.transform.InlinePrivateFunctions()]
    if module.global_infos.get("vdevice"):
        passes.append(relax.transform.RealizeVDevice())
    if tvm.target.Target.current(allow_none=True) is not None:  # sort, scan, sampling depend on the target
        passes += [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan()]
    passes += [relax.transform.LegalizeOps(skip_ops=sorted(VIEWS)), relax.transform.ToNonDataflow()]
    return prepare(tvm.ir.transform.Sequential(passes)(module))


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.Legalize")
class Legalize:
    """`LegalizeOps` that keeps reshapes, with private Relax functions inlined and TIR lowered."""

    def transform_module(self, module: Any, context: Any) -> Any:
        """The legal form of `module`."""
        return legalize(module)
