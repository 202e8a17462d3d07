"""What is left in Relax for the host becomes PrimFuncs, as TVM's own legalisation writes them.

Invariant: `main` afterwards holds calls that the planner understands and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ethosu.reading.reader import bindings_of, name_of
from ..models.file import UnsupportedModelError
from ..vocabulary import RESHAPING


def legalize_host(
    module: Any, left: Mapping[str, str], name: str, advice: str = "compile it with --npu-compiler vela"
) -> Any:
    """What is left in Relax becomes PrimFuncs, as TVM's own legalisation writes them.

    `left` are the reasons why operators are not on the NPU, by variable. `UnsupportedModelError` names those
    that TVM has no code for either.
    """
    from tvm import relax

    legal = relax.transform.LegalizeOps()(relax.transform.FoldConstant()(module))
    stuck = []
    for binding in bindings_of(legal["main"]):
        operator, call = name_of(binding.value), binding.value
        if operator and operator not in _PLANNED:
            variable = str(binding.var.name)
            reason = left.get(variable, "no NPU operation does it")
            packed = getattr(call.args[0], "global_symbol", "") if call.args else ""  # a call into TVM's run time
            stuck.append(f"  {packed or operator} {variable} {_shape(binding.var)}: {reason}")
    if stuck:
        raise UnsupportedModelError(
            f"{name} has operators that neither the NPU nor TVM's host code can run:\n"
            + "\n".join(stuck)
            + f"\n{advice}"
        )
    return legal


def _shape(variable: Any) -> str:
    """Shape of a tensor for a message; whatever else a call results in as TVM writes it."""
    shape = getattr(variable.ty, "shape", None)
    return f"[{', '.join(map(str, shape))}]" if shape is not None else str(variable.ty)


# calls of main that the planner understands: PrimFuncs and views
_PLANNED = frozenset(("call_tir", "call_tir_inplace", *RESHAPING))
