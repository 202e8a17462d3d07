"""The planned module as TVMScript.

Invariant: equal constants of `main` are printed once; what is printed is the module otherwise.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi

_LARGE = 64  # bytes: smaller constants are no longer than what refers to them


def share_constants(module: Any) -> Any:
    """`module`, whose equal large constants are one object in `main`: each call of a stream reads all of its file's."""
    known: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def share_constant(constant: Any) -> Any:
        if not isinstance(constant.value, tvm.runtime.Tensor):  # a type, a shape or a string
            return constant
        values = constant.value.numpy()
        if values.nbytes < _LARGE:
            return constant
        return known.setdefault((str(values.dtype), values.shape, values.tobytes()), constant)

    functions = dict(module.functions.items())
    for variable, function in module.functions.items():
        if variable.name_hint == "main":
            functions[variable] = tvm_ffi.structural_map(function, (tvm.ir.GenericConst, share_constant))
    return tvm.IRModule(functions, module.attrs, module.global_infos)
