"""The planned Relax `main` as a plain list of calls.

Invariant: after planning `main` takes the pools and nothing else, and does nothing but call
PrimFuncs on pools and constants; anything else is a `CodegenError`, never silently dropped.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, tirx

from .errors import CodegenError


@dataclass(frozen=True, slots=True)
class PoolArgument:
    """Pool number `index` of main's parameters."""

    index: int


@dataclass(frozen=True, slots=True)
class ConstantArgument:
    """Constant number `index` of `Program.constants`."""

    index: int


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of main: `function` is the PrimFunc's name in the module."""

    function: str
    primfunc: Any
    arguments: tuple[PoolArgument | ConstantArgument, ...]

    @property
    def is_npu(self) -> bool:
        """True when the PrimFunc becomes a command stream."""
        attributes = self.primfunc.attrs
        return attributes is not None and "npu.kind" in attributes and str(attributes["npu.kind"]) == "ethosu"


@dataclass(slots=True)
class Program:
    """Calls in program order; equal constants are stored once."""

    calls: list[FunctionCall] = field(default_factory=list)
    constants: list[npt.NDArray[np.generic]] = field(default_factory=list)
    pool_bytes: tuple[int, ...] = ()


def read_program(module: Any) -> Program:
    """Read the planned `main` of `module`; `CodegenError` says which binding is not planned."""
    main = module["main"]
    program = Program(pool_bytes=tuple(_pool_bytes(p) for p in main.params))
    pools = {p: index for index, p in enumerate(main.params)}
    seen: dict[tuple[str, str], int] = {}
    blocks = main.body.blocks if isinstance(main.body, relax.SeqExpr) else []
    for block in blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, ir.Var) and value in pools:
                pools[binding.var] = pools[value]
                continue
            if isinstance(value, relax.Tuple) and not len(value.fields):
                continue
            if not (isinstance(value, ir.Call) and isinstance(value.op, ir.GlobalVar)):
                raise CodegenError(
                    f"main: the binding {binding.var.name} = {value} is not a call of a PrimFunc; "
                    "plan the module first (extract, plan, rewrite)"
                )
            function = value.op.name_hint
            primfunc = module[value.op]
            if not isinstance(primfunc, tirx.PrimFunc):
                raise CodegenError(f"main calls {function}, which is not a PrimFunc; lower it before planning")
            arguments = tuple(_argument(function, a, pools, program, seen) for a in value.args)
            if len(arguments) != len(primfunc.params):
                raise CodegenError(f"main passes {len(arguments)} arguments to {function} of {len(primfunc.params)}")
            program.calls.append(FunctionCall(function, primfunc, arguments))
    return program


def _pool_bytes(parameter: Any) -> int:
    kind = parameter.ty
    shape = [int(extent) for extent in kind.shape]
    if len(shape) != 1 or str(kind.dtype) != "uint8":
        raise CodegenError(
            f"main's parameter {parameter.name} is {kind.dtype}{shape}, not a pool (uint8[N]); plan the module first"
        )
    return shape[0]


def _argument(
    function: str, argument: Any, pools: dict[Any, int], program: Program, seen: dict[tuple[str, str], int]
) -> PoolArgument | ConstantArgument:
    if isinstance(argument, ir.GenericConst):
        values = argument.value.numpy()
        digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
        key = (values.dtype.name, digest)
        if key not in seen:
            seen[key] = len(program.constants)
            program.constants.append(values)
        return ConstantArgument(seen[key])
    if isinstance(argument, ir.Var) and argument in pools:
        return PoolArgument(pools[argument])
    raise CodegenError(
        f"main: argument {argument} of {function} is neither a pool nor a constant; plan the module first"
    )
