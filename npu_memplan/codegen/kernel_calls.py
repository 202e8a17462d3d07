"""Host code whose work a C kernel does (`vocabulary.KERNEL`), as a call of that kernel.

Invariant: the call stands for the whole body, on the same buffers at the same places of the pools.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from ..vocabulary import C_SOURCES, KERNEL

NONE = "npu_memplan_none"  # the C function that returns a null pointer


def with_kernel(function: Any) -> Any:
    """The PrimFunc with the call of its kernel as its body, or as it is where it has none."""
    kernel = (function.attrs or {}).get(KERNEL)
    if kernel is None:
        return function
    views: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, views.append), order="pre")
    buffers = {str(buffer.name): buffer for buffer in (*function.params, *(view.buffer for view in views))}
    arguments, used = [], set()
    for argument in kernel["arguments"]:
        if isinstance(argument, float):
            arguments.append(tirx.FloatImm("float64", argument))
        elif not isinstance(argument, str):
            arguments.append(tirx.IntImm("int32", int(argument)))
        elif not argument:
            arguments.append(tirx.call_extern("handle", NONE))
        else:
            used.add(argument)
            buffer = buffers[argument]
            arguments.append(tirx.address_of(tirx.BufferLoad(buffer, [tirx.IntImm("int32", 0)] * len(buffer.shape))))
    call = tirx.Evaluate(tirx.call_extern("void", str(kernel["symbol"]), *arguments))
    body = tirx.SeqStmt([*(view for view in views if str(view.buffer.name) in used), call])
    attributes = {C_SOURCES: list(kernel["sources"])}
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs).with_attr(attributes)
