"""NPU PrimFuncs in main: exact byte ranges, overlaps across calls, preferred pools, planned form."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax

from npu_memplan import planners, verify
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.primfunc import encode_primfunc, from_primfunc, to_primfunc
from npu_memplan.ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.extract import extract
from npu_memplan.problem import Agent, BufferKind, Lifetime, Pool
from npu_memplan.rewrite import rewrite
from npu_memplan.vocabulary import REGIONS

SIZE = 4 * 4 * 16  # bytes of every feature map here: 4x4, depth 16, int8, NHWC


def _map(prefix: str, depth_register: bool) -> dict[Register, int]:
    values = {
        "HEIGHT0_M1": 3,
        "HEIGHT1_M1": 3,
        "WIDTH0_M1": 3,
        "STRIDE_X": 16,
        "STRIDE_Y": 64,
        "STRIDE_C": 1,
        "PRECISION": 1,
        "ZERO_POINT": 0,
    }
    if depth_register:
        values["DEPTH_M1"] = 15
    return {Register[f"{prefix}_{k}"]: v for k, v in values.items() if f"{prefix}_{k}" in Register.__members__}


def pool_1x1(source: str, target: str) -> NpuOperation:
    """An average pool of one element: the NPU's copy, element by element, so it may run in place."""
    registers = {
        **_map("IFM", True),
        **_map("OFM", True),
        Register.OFM_HEIGHT_M1: 3,
        Register.OFM_WIDTH_M1: 3,
        Register.KERNEL_HEIGHT_M1: 0,
        Register.KERNEL_WIDTH_M1: 0,
        Register.KERNEL_STRIDE: 0,
        Register.OFM_BLK_HEIGHT_M1: 3,
        Register.OFM_BLK_WIDTH_M1: 3,
        Register.OFM_BLK_DEPTH_M1: 15,
        Register.IFM_PAD_TOP: 0,
        Register.IFM_PAD_LEFT: 0,
        Register.IFM_PAD_BOTTOM: 0,
        Register.IFM_PAD_RIGHT: 0,
    }
    addresses = {
        register: (name, 0)
        for prefix, name in (("IFM", source), ("OFM", target))
        for register in (Register[f"{prefix}_BASE{i}"] for i in range(4))
    }
    return NpuOperation(Op.POOL, 1, registers, addresses)


def program(name: str) -> NpuProgram:
    """input -> a -> b -> output; the feature maps came from region 1 and 2."""
    shape = {"shape": (1, 4, 4, 16), "dtype": "int8"}
    buffers = (
        NpuBuffer("input0", SIZE, BufferRole.INPUT, original_region=1, original_offset=0, **shape),
        NpuBuffer("output0", SIZE, BufferRole.OUTPUT, original_region=1, original_offset=0, **shape),
        NpuBuffer("a", SIZE, BufferRole.FEATURE_MAP, original_region=1, original_offset=0),
        NpuBuffer("b", SIZE, BufferRole.ROLLING, original_region=2, original_offset=512),
    )
    operations = (pool_1x1("input0", "a"), pool_1x1("a", "b"), pool_1x1("b", "output0"))
    return NpuProgram(accelerator("ethos-u55-256"), buffers, operations, name)


def module() -> tvm.IRModule:
    """Two calls of one NPU PrimFunc: x -> y -> z."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((1, 4, 4, 16), "int8")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        gv = builder.add_func(to_primfunc(program("npu")), "npu")
        y = builder.emit(relax.call_tir(gv, relax.Tuple([x]), ty), "y")
        z = builder.emit(relax.call_tir(gv, relax.Tuple([y]), ty), "z")
        builder.emit_func_output(z)
    return builder.finalize()


def test_points_are_operations():
    problem = extract(module(), (Pool("sram"),), overlaps=False)
    assert problem.points == ("0:npu.0", "0:npu.1", "0:npu.2", "1:npu.0", "1:npu.1", "1:npu.2")
    lives = {b.name: b.lifetimes for b in problem.buffers}
    assert lives == {
        "x": (Lifetime(0, 1),),
        "y": (Lifetime(2, 4),),
        "z": (Lifetime(5, 6),),
        "npu.a": (Lifetime(0, 2),),
        "npu.b": (Lifetime(1, 3),),
        "npu.a_1": (Lifetime(3, 5),),
        "npu.b_1": (Lifetime(4, 6),),
    }


def test_agents_and_kinds():
    problem = extract(module(), (Pool("sram"),))
    assert problem.buffer("y").agents == {Agent.NPU}
    assert problem.buffer("x").agents == {Agent.NPU, Agent.HOST}
    assert problem.buffer("npu.a").kind is BufferKind.NPU_INTERNAL
    assert problem.buffer("npu.b").kind is BufferKind.ROLLING
    assert all(b.alignment == 16 for b in problem.buffers)


def test_in_place_crosses_the_boundary_of_a_call():
    found = {(o.first, o.second): (o.lowest, o.highest) for o in extract(module(), (Pool("sram"),)).overlaps}
    assert found == dict.fromkeys(
        [
            ("x", "npu.a"),
            ("npu.a", "npu.b"),
            ("npu.b", "y"),
            ("y", "npu.a_1"),
            ("npu.a_1", "npu.b_1"),
            ("npu.b_1", "z"),
        ],
        (0, 0),
    )


def half(operation: NpuOperation, inputs: int, outputs: int) -> NpuOperation:
    """Two rows of `operation`, from so many bytes behind its input's start to so many behind its output's."""
    heights = [r for r in operation.registers if "HEIGHT" in r.name and "KERNEL" not in r.name]
    behind = {name: inputs if "IFM" in name.name else outputs for name in operation.addresses}
    addresses = {r: (buffer, behind[r]) for r, (buffer, _) in operation.addresses.items()}
    return replace(operation, registers={**operation.registers, **dict.fromkeys(heights, 1)}, addresses=addresses)


@pytest.mark.parametrize("between", [False, True])
def test_stripes_write_over_what_is_read_no_more_whatever_runs_between_them(between: bool):
    """Nobody reads `a`, which is written anew, between two stripes; what was proven of both is true of that time."""
    whole = program("npu")
    down, up = pool_1x1("input0", "a"), pool_1x1("a", "output0")
    other = (pool_1x1("b", "b"),) if between else ()
    operations = (half(down, 0, 0), half(up, 0, 0), *other, half(down, SIZE // 2, 0), half(up, 0, SIZE // 2))
    striped = replace(whole, operations=(pool_1x1("input0", "b"), *operations) if between else operations)
    builder = relax.BlockBuilder()
    ty = relax.TensorType((1, 4, 4, 16), "int8")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        gv = builder.add_func(to_primfunc(striped), "npu")
        builder.emit_func_output(builder.emit(relax.call_tir(gv, relax.Tuple([x]), ty), "y"))
    problem = extract(builder.finalize(), (Pool("sram"),))
    assert len(problem.buffer("npu.a").lifetimes) == 1 + between
    found = {(o.first, o.second): (o.lowest, o.highest) for o in problem.overlaps}
    assert found["x", "npu.a"] == (None, -SIZE // 2)


def test_in_place_is_not_offered_while_main_needs_the_input():
    builder = relax.BlockBuilder()
    ty = relax.TensorType((1, 4, 4, 16), "int8")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        gv = builder.add_func(to_primfunc(program("npu")), "npu")
        y = builder.emit(relax.call_tir(gv, relax.Tuple([x]), ty), "y")
        z = builder.emit(relax.call_tir(gv, relax.Tuple([x]), ty), "z")
        builder.emit_func_output(relax.Tuple([y, z]))
    found = {(o.first, o.second) for o in extract(builder.finalize(), (Pool("sram"),)).overlaps}
    assert ("x", "npu.a") not in found  # the second call still reads x
    assert ("x", "npu.a_1") in found


def test_everything_in_one_place_and_the_stream_says_so():
    problem = extract(module(), (Pool("sram"),))
    plan = planners.plan(problem)
    assert not verify.verify(problem, plan)
    assert plan.usage[0].used_bytes == SIZE
    planned = rewrite(module(), problem, plan)
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)
    functions = [f for gv, f in planned.functions.items() if gv.name_hint.startswith("npu")]
    assert len(functions) == 1  # both calls have the same places
    assert [int(r) for r in functions[0].attrs[REGIONS]] == [1]
    assert all(b.original_offset == 0 for b in from_primfunc(functions[0]).buffers)
    assert encode_primfunc(functions[0])


def test_regions_of_the_stream_are_preferred_pools():
    problem = extract(module(), (Pool("dram"), Pool("sram")))
    assert problem.buffer("npu.a").pools == ("dram", "sram")
    assert problem.buffer("npu.b").pools == ("sram", "dram")
    assert problem.buffer("x").pools == ("dram", "sram")


def _chain(count: int) -> tvm.IRModule:
    """One NPU PrimFunc with `count` feature maps, one after the other."""
    shape = {"shape": (1, 4, 4, 16), "dtype": "int8"}
    names = [f"map{i}" for i in range(count)]
    buffers = (
        NpuBuffer("input0", SIZE, BufferRole.INPUT, original_region=1, original_offset=0, **shape),
        NpuBuffer("output0", SIZE, BufferRole.OUTPUT, original_region=1, original_offset=0, **shape),
        *(NpuBuffer(n, SIZE, BufferRole.FEATURE_MAP, original_region=1, original_offset=0) for n in names),
    )
    order = ["input0", *names, "output0"]
    operations = tuple(pool_1x1(a, b) for a, b in itertools.pairwise(order))
    function = to_primfunc(NpuProgram(accelerator("ethos-u55-256"), buffers, operations, "npu"))
    builder = relax.BlockBuilder()
    ty = relax.TensorType((1, 4, 4, 16), "int8")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        gv = builder.add_func(function, "npu")
        builder.emit_func_output(builder.emit(relax.call_tir(gv, relax.Tuple([x]), ty), "y"))
    return builder.finalize()


@pytest.fixture
def shallow_stack():
    """Room for 400 Python frames: enough for any program, but not for two frames a buffer."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    yield
    sys.setrecursionlimit(limit)


def test_the_text_of_a_planned_function_is_flat(shallow_stack):
    original = _chain(190)
    problem = extract(original, (Pool("sram"),), overlaps=False)
    planned = rewrite(original, problem, planners.plan(problem, "first-fit"))
    text = planned.script(show_meta=True)
    assert text.count("T.address_of(") == 192
    back = tvm.script.from_source(text)
    tvm.ir.assert_structural_equal(back, planned)
    assert encode_primfunc(back["npu"]) == encode_primfunc(planned["npu"])
