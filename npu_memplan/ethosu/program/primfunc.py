"""NPU programs as TIR: every operation an extern call that carries all of its registers.

Invariant: `from_primfunc(to_primfunc(p)) == p`, also after a trip through TVMScript text; nothing of a
program is kept anywhere but in its PrimFunc. A planned PrimFunc has pools for parameters and
pointers into them (or views of them) for buffers; its operations are untouched.

An operation reads `call_extern("int32", "ethosu_conv", parameter, "IFM_BASE0", buffer.data, byte offset,
"IFM_DEPTH_M1", 15, ...)`: names of address registers are followed by a pointer and an offset, the others by
their value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ...errors import NpuMemplanError
from ...vocabulary import (
    ACCELERATOR,
    ALIGN,
    KIND,
    KIND_ETHOSU,
    OFFSET,
    OPERATORS,
    PARAM_OFFSETS,
    PARAM_REGIONS,
    PARAM_ROLES,
    REGION,
    REGIONS,
    ROLE,
    is_npu,
)
from ..arch import accelerator
from ..stream.decode import Command
from ..stream.encode import encode
from ..stream.fields import ADDRESS_REGISTERS
from ..stream.isa import Op, Register
from .hazards import schedule
from .program import BufferRole, NpuBuffer, NpuOperation, NpuProgram

LUT_SCOPE = "shram"
OPAQUE_PATTERN = 8  # TVM's kOpaque: never fuse

EXTERNS = {
    Op.CONV: "ethosu_conv",
    Op.DEPTHWISE: "ethosu_depthwise",
    Op.POOL: "ethosu_pool",
    Op.ELEMENTWISE: "ethosu_elementwise",
    Op.RESIZE: "ethosu_resize",
    Op.DMA_START: "ethosu_dma",
}
_OPS = {name: op for op, name in EXTERNS.items()}


class PrimFuncError(NpuMemplanError):
    """A PrimFunc is not a well-formed NPU program."""


@functools.cache
def _load_tvm() -> Any:
    import tvm
    import tvm_ffi
    from tvm import tirx

    return SimpleNamespace(tvm=tvm, ffi=tvm_ffi, tirx=tirx)


def to_primfunc(program: NpuProgram) -> Any:
    """The program as a `tirx.PrimFunc`; parameters in buffer order, real shapes and dtypes."""
    tirx = _load_tvm().tirx
    buffers: dict[str, Any] = {}
    parameters: list[Any] = []
    statements: list[Any] = []
    listed = [b for b in program.buffers if b.role.is_parameter]
    for buffer in program.buffers:
        if buffer.role.is_parameter:
            shape = buffer.shape or ((buffer.size_bytes,) if buffer.dtype == "uint8" else ())
            var = tirx.decl_buffer(shape, buffer.dtype, name=buffer.name, layout=None)
            parameters.append(var)
        else:
            scope = LUT_SCOPE if buffer.role is BufferRole.LUT else ""
            var = tirx.decl_buffer((buffer.size_bytes,), "uint8", name=buffer.name, layout=None, scope=scope)
            notes = {
                ROLE: buffer.role.value,
                ALIGN: _int_constant(buffer.alignment),
                REGION: _int_constant(buffer.original_region),
                OFFSET: _int_constant(buffer.original_offset),
            }
            statements.append(tirx.AllocBuffer(var, notes))
        buffers[buffer.name] = var
    statements += [_call(operation, buffers) for operation in program.operations]
    attributes = {
        "s_tir": True,
        "global_symbol": program.name,
        KIND: KIND_ETHOSU,
        ACCELERATOR: program.accelerator.name,
        "op_pattern": OPAQUE_PATTERN,
        PARAM_ROLES: [b.role.value for b in listed],
        PARAM_REGIONS: [b.original_region for b in listed],
        PARAM_OFFSETS: [b.original_offset for b in listed],
    }
    if any(operation.operator >= 0 for operation in program.operations):
        attributes[OPERATORS] = [operation.operator for operation in program.operations]
    function = tirx.PrimFunc(parameters, tirx.SeqStmt(statements) if len(statements) != 1 else statements[0])
    return function.with_attr(attributes)


def _call(operation: NpuOperation, buffers: dict[str, Any]) -> Any:
    tirx, ir = _load_tvm().tirx, _load_tvm().tvm.ir
    arguments: list[Any] = [EXTERNS[operation.op], operation.parameter]
    for register in sorted({*operation.registers, *operation.addresses}, key=_ORDER.__getitem__):
        arguments.append(_label(register))
        if register in operation.addresses:
            name, offset = operation.addresses[register]
            arguments += [tirx.buffer_data(buffers[name]), _int_constant(offset)]
        else:
            arguments.append(_int_constant(operation.registers[register]))
    # `tirx.call_extern` makes the same, but looks at each argument first: a third of the time of a function
    return tirx.Evaluate(ir.Call(ir.Op.get("tirx.call_extern"), arguments, ret_ty="int32"))


@functools.cache
def _label(register: Register) -> Any:
    return _load_tvm().tvm.ir.StringImm(register.name)


_REGISTERS = {register.name: register for register in Register}
_ORDER = {register: position for position, register in enumerate(Register)}


@functools.lru_cache(maxsize=4096)  # the same few hundred values come again and again
def _int_constant(value: int) -> Any:
    return _load_tvm().tirx.IntImm("int32" if value < 1 << 31 else "int64", value)


@functools.lru_cache(maxsize=256)  # functions are immutable and compare by identity; several stages ask
def from_primfunc(function: Any) -> NpuProgram:
    """Read a program back; buffers are parameters first, then internals in the order of their allocation.

    Of a planned function, buffers carry their region and byte offset in `original_region`/`original_offset`; where
    it has pointers in place of buffers, sizes are 0.
    `PrimFuncError` says which statement is not understood.
    """
    return _MADE.pop(function, None) or _Reader(function).program()


_MADE: dict[Any, NpuProgram] = {}


def cache_program(function: Any, program: NpuProgram) -> Any:
    """Keep `program` as the answer of `from_primfunc(function)`, so that it is not read back; returns `function`."""
    parameters = [b for b in program.buffers if b.role.is_parameter]
    internals = [b for b in program.buffers if not b.role.is_parameter]
    _MADE[function] = replace(program, buffers=(*parameters, *internals))
    from_primfunc(function)
    return function


def encode_primfunc(function: Any) -> tuple[int, ...]:
    """Words of the command stream of a planned function."""
    return encode(schedule_primfunc(function))


def schedule_primfunc(function: Any) -> tuple[Command, ...]:
    """The command stream of a planned function, waits and block dependencies included.

    The result is deterministic. `PrimFuncError` when a buffer has no place in a pool.
    """
    program = from_primfunc(function)
    if REGIONS not in function.attrs:
        raise PrimFuncError(f"NPU function {program.name} is not planned yet: it has no attribute {REGIONS}")
    places = {b.name: (b.original_region, b.original_offset) for b in program.buffers}
    operations = [program.place(i, places.__getitem__) for i in range(len(program.operations))]
    return schedule(operations, program.accelerator)


class _Reader:
    def __init__(self, function: Any) -> None:
        self._function = function
        self._planned = REGIONS in function.attrs
        self._buffers: list[NpuBuffer] = []
        self._by_var: dict[Any, str] = {}
        self._pools: dict[Any, int] = {}  # pool parameter -> region
        self._name = str(function.attrs.get("global_symbol", "npu"))

    def program(self) -> NpuProgram:
        if not is_npu(self._function):
            raise PrimFuncError(f"function {self._name} is no NPU program: attribute {KIND} is not {KIND_ETHOSU!r}")
        self._target = accelerator(str(self._function.attrs[ACCELERATOR]))
        self._read_parameters()
        found = map(self._read_statement, self._statements(self._function.body))
        operations = [operation for operation in found if operation is not None]
        served = list(self._function.attrs.get(OPERATORS, ())) or [-1] * len(operations)
        if len(served) != len(operations):
            raise PrimFuncError(
                f"NPU function {self._name}: {OPERATORS} has {len(served)} entries for {len(operations)} operations"
            )
        operations = [replace(o, operator=int(index)) for o, index in zip(operations, served, strict=True)]
        return NpuProgram(self._target, tuple(self._buffers), tuple(operations), self._name)

    def _read_parameters(self) -> None:
        attributes = self._function.attrs
        parameters = list(self._function.params)
        if self._planned:
            regions = [int(r) for r in attributes[REGIONS]]
            self._pools = dict(zip(parameters, regions, strict=False))
            for parameter in parameters[len(regions) :]:
                self._add(parameter, BufferRole.CONSTANTS, 16, 0, 0)
            return
        columns = (attributes[PARAM_ROLES], attributes[PARAM_REGIONS], attributes[PARAM_OFFSETS])
        for parameter, role, region, offset in zip(parameters, *columns, strict=True):
            self._add(parameter, BufferRole(str(role)), 16, int(region), int(offset))

    def _add(self, var: Any, role: BufferRole, alignment: int, region: int, offset: int) -> None:
        shape = tuple(int(d) for d in var.shape)
        dtype = str(var.dtype)
        size = math.prod(shape) * (8 if dtype.endswith("64") else 4 if "32" in dtype else 2 if "16" in dtype else 1)
        name = str(var.name)
        self._buffers.append(
            NpuBuffer(name, size, role, alignment, region, offset, shape if role.is_parameter else (), dtype)
        )
        self._by_var[var] = name

    def _statements(self, body: Any) -> Iterator[Any]:
        if isinstance(body, _load_tvm().tirx.SeqStmt):
            for statement in body.seq[:]:
                yield from self._statements(statement)
        else:
            yield body

    def _read_statement(self, statement: Any) -> NpuOperation | None:
        tirx = _load_tvm().tirx
        if isinstance(statement, tirx.AllocBuffer):
            notes = statement.annotations
            role = BufferRole(str(notes[ROLE]))
            region, offset = int(notes[REGION]), int(notes[OFFSET])
            if self._planned and role is not BufferRole.LUT:
                raise PrimFuncError(f"NPU function {self._name}: buffer {statement.buffer.name} has no place in a pool")
            self._add(statement.buffer, role, int(notes[ALIGN]), region, offset)
            return None
        if isinstance(statement, tirx.DeclBuffer):
            region, offset = self._view(statement.buffer.name, statement.data)
            self._add(statement.buffer, BufferRole.FEATURE_MAP, 16, region, offset)
            return None
        if isinstance(statement, tirx.Bind):
            name = str(statement.var.name)
            region, offset = self._view(name, statement.value)
            self._buffers.append(NpuBuffer(name, 0, BufferRole.FEATURE_MAP, 16, region, offset))
            self._by_var[statement.var] = name
            return None
        if isinstance(statement, tirx.Evaluate):
            if isinstance(statement.value, _load_tvm().tvm.ir.Call):
                return self._operation(statement.value)
            return None  # Evaluate(0): what is left of a removed statement
        raise PrimFuncError(f"NPU function {self._name}: {type(statement).__name__} is no statement of an NPU program")

    def _view(self, name: str, data: Any) -> tuple[int, int]:
        """Region and byte offset behind `address_of(pool[offset])`, which the buffer called `name` starts at."""
        arguments: Any = getattr(data, "args", ())
        if len(arguments) == 1 and hasattr(arguments[0], "indices"):
            load = arguments[0]
            pool = getattr(load, "buffer", None)
            pool = load.source if pool is None else pool
            if pool in self._pools:
                return self._pools[pool], int(load.indices[0])
        raise PrimFuncError(f"NPU function {self._name}: buffer {name} is no view address_of(pool[offset]) of a pool")

    def _operation(self, call: Any) -> NpuOperation:
        arguments = call.args[:]  # a slice: three times as fast as iterating
        name = str(arguments[0].value)
        if name not in _OPS:
            raise PrimFuncError(f"NPU function {self._name} calls {name}; known: {', '.join(_OPS)}")
        registers: dict[Register, int] = {}
        addresses: dict[Register, tuple[str, int]] = {}
        position, count = 2, len(arguments)
        while position < count:
            label = arguments[position].value
            if (register := _REGISTERS.get(label)) is None:
                raise PrimFuncError(f"NPU function {self._name}: {name} has an unknown register {str(label)!r}")
            if register in ADDRESS_REGISTERS:
                pointer, offset = arguments[position + 1], arguments[position + 2]
                var = pointer.args[0] if hasattr(pointer, "args") else pointer
                if var not in self._by_var:
                    raise PrimFuncError(f"NPU function {self._name}: {label} of {name} points to no known buffer")
                addresses[register] = (self._by_var[var], offset.value)
                position += 3
            else:
                registers[register] = arguments[position + 1].value
                position += 2
        return NpuOperation(_OPS[name], int(arguments[1]), registers, addresses, language=self._target.language)
