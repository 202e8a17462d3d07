"""The planned Relax `main` as a plain list of calls.

Invariant: after planning `main` takes the pools and nothing else, and does nothing but call
PrimFuncs on pools, packed constant pools and single constants, and choose between such calls by a
byte of a pool; anything else is a `CodegenError`, never silently dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, tirx

from ..names import c_identifier
from ..rewrite.pools import formula
from ..vocabulary import CONSTANT_POOLS, INITIALISE, is_npu
from . import CodegenError


@dataclass(frozen=True, slots=True)
class PoolArgument:
    """Pool number `index` of main's parameters."""

    index: int


@dataclass(frozen=True, slots=True)
class ConstantArgument:
    """Constant number `index` of `PlannedProgram.constants`."""

    index: int


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A formula of shape symbols."""

    text: str


Argument = PoolArgument | ConstantArgument | ScalarArgument


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of main: `function` is the PrimFunc's name in the module."""

    function: str
    primfunc: Any
    arguments: tuple[Argument, ...]
    symbol: str  # the C function that makes it; equal calls share one

    @property
    def is_npu(self) -> bool:
        return is_npu(self.primfunc)


@dataclass(frozen=True, slots=True)
class Flag:
    """A byte of pool number `pool`, 0 or not."""

    pool: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class IfElse:
    condition: Flag
    then: tuple[FunctionCall | IfElse, ...]
    other: tuple[FunctionCall | IfElse, ...]


def calls_in(body: Iterable[FunctionCall | IfElse]) -> Iterator[FunctionCall]:
    """All calls, in textual order."""
    for item in body:
        if isinstance(item, IfElse):
            yield from calls_in((*item.then, *item.other))
        else:
            yield item


@dataclass(slots=True)
class PlannedProgram:
    """A program's calls in order; equal constants are stored once."""

    body: list[FunctionCall | IfElse] = field(default_factory=list)
    constants: list[npt.NDArray[np.generic]] = field(default_factory=list)
    constant_pools: dict[int, str] = field(default_factory=dict)  # constants that are whole pools -> their names
    initialise: list[FunctionCall] = field(default_factory=list)  # calls that put constants into writable pools
    pool_bytes: tuple[int, ...] = ()

    @property
    def calls(self) -> list[FunctionCall]:
        return list(calls_in(self.body))


def read_program(module: Any, name: str = "model") -> PlannedProgram:
    """Read the planned `main` of `module`; `CodegenError` says which binding is not planned."""
    main = module["main"]
    pools = [p for p in main.params if not isinstance(p.ty, relax.ShapeType)]  # which gives symbols
    program = PlannedProgram(pool_bytes=tuple(map(_pool_bytes, pools)))
    reader = _Reader(module, program, name)
    program.body = reader.read_function(main)
    if INITIALISE in main.attrs:
        program.initialise = list(calls_in(reader.read_function(module[str(main.attrs[INITIALISE])])))
    return program


_Known = dict[Any, PoolArgument | ConstantArgument | Flag]


class _Reader:
    def __init__(self, module: Any, program: PlannedProgram, name: str) -> None:
        self.module, self.program, self.name = module, program, name
        self.symbols: dict[str, tuple[str, tuple[Argument, ...]]] = {}  # of the C functions so far, with their calls
        self.seen: dict[tuple[str, str], int] = {}  # dtype and digest -> constant

    def read_function(self, function: Any) -> list[FunctionCall | IfElse]:
        """Read what one Relax function on pools does."""
        known: _Known = {p: PoolArgument(i) for i, p in enumerate(function.params)}
        attributes = function.attrs or {}
        names = [str(name) for name, size in attributes.get(CONSTANT_POOLS, ()) if size]
        return self.read_body(function.body, known, names)

    def read_body(self, expr: Any, known: _Known, names: list[str]) -> list[FunctionCall | IfElse]:
        """Read a function body. `known`: values of variables; `names`: the names of constant pools not yet bound."""
        found: list[FunctionCall | IfElse] = []
        blocks = expr.blocks if isinstance(expr, relax.SeqExpr) else []
        for binding in (b for block in blocks for b in block.bindings):
            value = binding.value
            if isinstance(value, ir.Var) and value in known:
                known[binding.var] = known[value]
            elif isinstance(value, ir.GenericConst) and names:
                known[binding.var] = ConstantArgument(len(self.program.constants))  # never one array with anything else
                self.program.constant_pools[len(self.program.constants)] = names.pop(0)
                self.program.constants.append(value.value.numpy())
            elif isinstance(value, relax.If):
                sides = [
                    tuple(self.read_body(side, dict(known), [])) for side in (value.true_branch, value.false_branch)
                ]
                found.append(IfElse(self.read_flag(value.cond, known), *sides))
            elif isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name == "relax.assert_op":
                continue  # the bound of a symbol, which the C function checks by itself
            elif (flag := _view_offset(value, known)) is not None:
                known[binding.var] = flag
            elif not (isinstance(value, relax.Tuple) and not len(value.fields)):
                found.append(self.read_call(binding.var.name, value, known))
        return found

    def read_flag(self, condition: Any, known: _Known) -> Flag:
        found = known.get(condition) if isinstance(condition, ir.Var) else None
        if not isinstance(found, Flag):
            raise CodegenError(
                f"main: the condition {condition} of an `if` does not lie in a pool; compute it in the program, or make"
                " it an input"
            )
        return found

    def read_call(self, name: str, value: Any, known: _Known) -> FunctionCall:
        operator = value.op if isinstance(value, ir.Call) else None
        if isinstance(operator, relax.ExternFunc | ir.Op):
            what = operator.name if isinstance(operator, ir.Op) else f"the packed function {operator.global_symbol}"
            raise CodegenError(
                f"main calls {what}, which needs TVM's runtime and has no plain C form; plan the module first; what is"
                " left then must be a PrimFunc, or the planned module run on the Relax VM"
            )
        if not (isinstance(value, ir.Call) and isinstance(value.op, ir.GlobalVar)):
            raise CodegenError(
                f"main: the binding {name} = {value} is not a call of a PrimFunc; "
                "plan the module first (extract, plan, rewrite)"
            )
        function = value.op.name_hint
        primfunc = self.module[value.op]
        if not isinstance(primfunc, tirx.PrimFunc):
            raise CodegenError(
                f"main calls {function}, which is no PrimFunc; make a Relax function private, so that it becomes part"
                " of main"
            )
        arguments = tuple(self.read_argument(function, a, known) for a in value.args)
        if len(arguments) != len(primfunc.params):
            raise CodegenError(f"main passes {len(arguments)} arguments to {function} of {len(primfunc.params)}")
        return FunctionCall(function, primfunc, arguments, self.function_symbol(function, arguments))

    def function_symbol(self, function: str, arguments: tuple[Argument, ...]) -> str:
        base = f"{self.name}_{c_identifier(function)}"
        symbol, number = base, 1
        while self.symbols.setdefault(symbol, (function, arguments)) != (function, arguments):
            symbol, number = f"{base}_{number}", number + 1
        return symbol

    def read_argument(self, function: str, argument: Any, known: _Known) -> Argument:
        found = known.get(argument) if isinstance(argument, ir.Var) else None
        if found is not None and not isinstance(found, Flag):
            return found
        if isinstance(getattr(argument, "ty", None), ir.PrimType) and not isinstance(argument, ir.GenericConst):
            return ScalarArgument(formula(argument))
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


def _view_offset(value: Any, known: _Known) -> Flag | None:
    """The byte that a tensor object on a pool starts at, when `value` makes one."""
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return None
    source = known.get(value.args[0]) if len(value.args) and isinstance(value.args[0], ir.Var) else None
    if value.op.name == "relax.memory.view" and isinstance(source, PoolArgument):
        return Flag(source.index, int(value.args[3].value))
    if value.op.name == "relax.memory.ensure_zero_offset" and isinstance(source, Flag):
        return source
    return None


def _pool_bytes(parameter: Any) -> int:
    kind = parameter.ty
    shape = [int(extent) for extent in kind.shape]
    if len(shape) != 1 or str(kind.dtype) != "uint8":
        raise CodegenError(
            f"main's parameter {parameter.name} is {kind.dtype}{shape}, not a pool (uint8[N]); plan the module first"
        )
    return shape[0]
