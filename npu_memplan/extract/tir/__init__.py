"""A host PrimFunc's statements: what they read and write, and how far an output may lie over an input.

Invariant: independent of Relax; what is not proven is not claimed.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir


def nodes_of(tree: Any, *kinds: type) -> list[Any]:
    """All nodes of these `kinds` in a statement, an expression or a function, in textual order."""
    found: list[Any] = []
    tvm_ffi.structural_walk(tree, (kinds, found.append), order="pre")
    return found


def used_variables(tree: Any) -> set[Any]:
    """The variables that are used in a statement, an expression or a function, other than where they are defined."""
    found: set[Any] = set()

    def use(var: Any, kind: Any) -> None:
        if kind == tvm_ffi.DefRegionKind.NONE:
            found.add(var)

    tvm_ffi.structural_walk(tree, with_def_region_kind=(ir.Var, use), order="pre")
    return found


def operator_of(expr: Any) -> str:
    """The name of the operator that an expression calls; "" where it calls none."""
    return str(expr.op.name) if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) else ""
