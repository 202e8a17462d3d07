"""The planned Relax `main` as a plain list of calls.

Invariant: after planning `main` takes the pools and nothing else, and does nothing but call
PrimFuncs on pools, packed constant pools and single constants; anything else is a `CodegenError`,
never silently dropped.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, tirx

from ..rewrite import CONSTANT_POOLS, INITIALISE
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
    """Calls in program order; equal constants are stored once.

    `constant_pools` says which constants are whole pools, by their names; `initialise` are the calls
    that put constants into writable pools.
    """

    calls: list[FunctionCall] = field(default_factory=list)
    constants: list[npt.NDArray[np.generic]] = field(default_factory=list)
    constant_pools: dict[int, str] = field(default_factory=dict)
    initialise: list[FunctionCall] = field(default_factory=list)
    pool_bytes: tuple[int, ...] = ()


def read_program(module: Any) -> Program:
    """Read the planned `main` of `module`; `CodegenError` says which binding is not planned."""
    main = module["main"]
    program = Program(pool_bytes=tuple(_pool_bytes(p) for p in main.params))
    reader = _Reader(module, program)
    program.calls = reader.calls(main)
    if INITIALISE in main.attrs:
        program.initialise = reader.calls(module[str(main.attrs[INITIALISE])])
    return program


class _Reader:
    def __init__(self, module: Any, program: Program) -> None:
        self.module = module
        self.program = program
        self.seen: dict[tuple[str, str], int] = {}  # dtype and digest -> constant

    def calls(self, function: Any) -> list[FunctionCall]:
        """The calls of one Relax function on pools."""
        known: dict[Any, PoolArgument | ConstantArgument] = {p: PoolArgument(i) for i, p in enumerate(function.params)}
        attributes = function.attrs or {}
        names = [str(name) for name, size in attributes.get(CONSTANT_POOLS, ()) if size]
        found = []
        blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else []
        for binding in (b for block in blocks for b in block.bindings):
            value = binding.value
            if isinstance(value, ir.Var) and value in known:
                known[binding.var] = known[value]
            elif isinstance(value, ir.GenericConst) and names:
                known[binding.var] = self.constant_pool(names.pop(0), value)
            elif not (isinstance(value, relax.Tuple) and not len(value.fields)):
                found.append(self.call(binding.var.name, value, known))
        return found

    def constant_pool(self, name: str, value: Any) -> ConstantArgument:
        """A packed constant pool: never one array with anything else."""
        self.program.constant_pools[len(self.program.constants)] = name
        self.program.constants.append(value.value.numpy())
        return ConstantArgument(len(self.program.constants) - 1)

    def call(self, name: str, value: Any, known: dict[Any, PoolArgument | ConstantArgument]) -> FunctionCall:
        if not (isinstance(value, ir.Call) and isinstance(value.op, ir.GlobalVar)):
            raise CodegenError(
                f"main: the binding {name} = {value} is not a call of a PrimFunc; "
                "plan the module first (extract, plan, rewrite)"
            )
        function = value.op.name_hint
        primfunc = self.module[value.op]
        if not isinstance(primfunc, tirx.PrimFunc):
            raise CodegenError(f"main calls {function}, which is not a PrimFunc; lower it before planning")
        arguments = tuple(self.argument(function, a, known) for a in value.args)
        if len(arguments) != len(primfunc.params):
            raise CodegenError(f"main passes {len(arguments)} arguments to {function} of {len(primfunc.params)}")
        return FunctionCall(function, primfunc, arguments)

    def argument(
        self, function: str, argument: Any, known: dict[Any, PoolArgument | ConstantArgument]
    ) -> PoolArgument | ConstantArgument:
        if isinstance(argument, ir.Var) and argument in known:
            return known[argument]
        if not isinstance(argument, ir.GenericConst):
            raise CodegenError(
                f"main: argument {argument} of {function} is neither a pool nor a constant; plan the module first"
            )
        values = argument.value.numpy()
        digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
        key = (values.dtype.name, digest)
        if key not in self.seen:
            self.seen[key] = len(self.program.constants)
            self.program.constants.append(values)
        return ConstantArgument(self.seen[key])


def _pool_bytes(parameter: Any) -> int:
    kind = parameter.ty
    shape = [int(extent) for extent in kind.shape]
    if len(shape) != 1 or str(kind.dtype) != "uint8":
        raise CodegenError(
            f"main's parameter {parameter.name} is {kind.dtype}{shape}, not a pool (uint8[N]); plan the module first"
        )
    return shape[0]
