"""The planned module as TVMScript: its length, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from npu_memplan import compiler
from npu_memplan.codegen.script import share_constants
from npu_memplan.options import CompileOptions


def test_equal_constants_are_printed_once() -> None:
    builder = relax.BlockBuilder()
    values = np.arange(4096, dtype=np.uint8)
    last = given = relax.Var("given", relax.TensorType((4096,), "uint8"))
    with builder.function("main", [given]):
        for step in range(8):
            last = builder.emit(relax.op.add(last, relax.const(values.copy() if step else values + 1, "uint8")))
        builder.emit_func_output(last)
    module = builder.finalize()
    shared = share_constants(module)
    tvm.ir.assert_structural_equal(shared, module)
    sizes = [len(one.script(show_meta=True)) for one in (module, shared)]
    assert sizes[1] < sizes[0] * 3 // 8


def test_the_script_of_a_compile_is_its_module(shared_model: Callable[[str], Path]) -> None:
    made = compiler.plan_model(shared_model("hello_world_int8"), CompileOptions(effort="quick"))
    tvm.ir.assert_structural_equal(tvm.script.from_source(made.script), made.module)
