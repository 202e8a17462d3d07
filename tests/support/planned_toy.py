"""Planned modules made by hand, in exactly the form that planning leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script import tirx as T

from npu_memplan.artifact.model import TensorSlot
from npu_memplan.codegen.interface import Interface, PoolSpec
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.primfunc import to_primfunc
from npu_memplan.ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.vocabulary import REGIONS

SCALE = 0.1  # not a float32: seven printed digits would not be enough for its nearest one


@T.prim_func(s_tir=True)
def scaled(sram: T.Buffer((160,), "uint8"), dram: T.Buffer((32,), "uint8"), table: T.Buffer((8,), "int32")):
    """output[i] = table[i] * input[i] * 0.1, with an accumulator and planned scratch."""
    T.func_attr({"global_symbol": "scaled"})
    data = T.decl_buffer((8,), "int8", data=T.address_of(sram[16]))
    scratch = T.decl_buffer((8,), "int32", data=T.address_of(sram[32]))
    output = T.decl_buffer((8,), "float32", data=T.address_of(sram[64]))
    total = T.alloc_buffer((1,), "int32", scope="local")
    for i in range(8):
        total[0] = T.Cast("int32", data[i])
        total[0] = total[0] * table[i]
        scratch[i] = total[0]
    for i in range(8):
        output[i] = T.Cast("float32", scratch[i]) * T.float32(SCALE)


def copying_primfunc() -> Any:
    """An NPU function that copies 32 constant bytes to the output, planned at sram[112]."""
    program = NpuProgram(
        accelerator("ethos-u55-128"),
        (
            NpuBuffer("constants", 64, BufferRole.CONSTANTS),
            NpuBuffer("copied", 32, BufferRole.OUTPUT),
        ),
        (
            NpuOperation(
                Op.DMA_START, 0, {Register.DMA0_LEN: 32},
                {Register.DMA0_SRC: ("constants", 16), Register.DMA0_DST: ("copied", 0)},
            ),
        ),
        "copy",
    )  # fmt: skip
    function = to_primfunc(program)
    constants, copied = function.params
    sram, dram = (tirx.decl_buffer((n,), "uint8", name=p, layout=None) for p, n in (("sram", 160), ("dram", 32)))
    place = tirx.DeclBuffer(copied, data=tirx.address_of(tirx.BufferLoad(sram, [112])))
    planned = tirx.PrimFunc([sram, dram, constants], tirx.SeqStmt([place, function.body]), None, function.attrs)
    return planned.with_attr(REGIONS, [1, 2])


def planned_module(calls: int = 1) -> Any:
    """main(sram, dram): the host function, then `calls` times the NPU one."""
    builder = relax.BlockBuilder()
    pools = [relax.Var("sram", relax.TensorType((160,), "uint8")), relax.Var("dram", relax.TensorType((32,), "uint8"))]
    with builder.function("main", pools, pure=False):
        host = builder.add_func(scaled, "scaled")
        npu = builder.add_func(copying_primfunc(), "copy")
        table = relax.const(np.array([1, -2, 3, -4, 5, -6, 7, -(1 << 20)], np.int32), "int32")
        builder.emit(relax.Call(host, [*pools, table]))
        for _ in range(calls):
            builder.emit(relax.Call(npu, [*pools, relax.const(np.arange(64, dtype=np.uint8), "uint8")]))
        builder.emit_func_output(relax.Tuple([]))
    return builder.finalize()


def interface(name: str = "toy") -> Interface:
    """The interface of `planned_module`."""
    return Interface(
        name,
        (PoolSpec("sram", 160), PoolSpec("dram", 32, region=2)),
        (TensorSlot("data", "int8", (8,), "sram", 16, 8, 0.5, 3),),
        (TensorSlot("output", "float32", (8,), "sram", 64, 32, 0.0, 0),),
        (TensorSlot("memory", "int8", (2, 8), "dram", 0, 16, 0.25, -4),),
    )
