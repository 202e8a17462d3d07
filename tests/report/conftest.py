"""Artifacts to report on: one small enough to check by hand, real ones from the compiler, a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import Call, Operator, TensorSlot
from npu_memplan.options import CompileOptions
from npu_memplan.problem import (
    Agent,
    AliasGroup,
    AllowedOverlap,
    Buffer,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
)
from npu_memplan.verify import check
from tests.support.real_data import Models

HOST, NPU = frozenset((Agent.HOST,)), frozenset((Agent.NPU,))
BOTH = HOST | NPU


@pytest.fixture
def small() -> Artifact:
    """Two pools, two calls, seven points; every kind of sharing. Checked by hand in the tests.

    sram, 16 KiB:  points  0     1     2     3     4     5     6
        image       0..4096    xxxxxxxxxxx
        weights  4096..5120    xxxxx (again at 3)
        conv     5120..13312         xxxxxxxxxxx
        relu     5120..13312                     xxxxx            in place of conv
        pool        0..2048                            xxxxx
        view        0..2048                            xxxxxxxxxxx  the same memory as pool
        scratch  2048..2560                                  xxxxx
        scores   4096..4112                                  xxxxx
    dram, unbounded: archive 0..20000, points 0..7
    """
    buffers = (
        Buffer("image", 4096, (Lifetime(0, 2),), agents=BOTH, kind=BufferKind.INPUT, consumers=("0:net.1",)),
        Buffer(
            "weights", 1024, (Lifetime(0, 2), Lifetime(3, 4)), agents=NPU, kind=BufferKind.WEIGHTS,
            producer="0:net.0", consumers=("0:net.1", "0:net.3"), read_bytes=2048, write_bytes=2048,
        ),
        Buffer("conv", 8192, (Lifetime(1, 4),), agents=NPU, kind=BufferKind.NPU_INTERNAL, producer="0:net.1",
               consumers=("0:net.3",)),
        Buffer("relu", 8192, (Lifetime(3, 5),), agents=NPU, kind=BufferKind.NPU_INTERNAL, producer="0:net.3",
               consumers=("0:net.4",)),
        Buffer("pool", 2048, (Lifetime(4, 6),), agents=BOTH, producer="0:net.4", consumers=("1:softmax.0",)),
        Buffer("view", 2048, (Lifetime(5, 7),), agents=HOST, producer="1:softmax.0", consumers=("1:softmax.1",)),
        Buffer("scratch", 512, (Lifetime(5, 7),), agents=HOST, kind=BufferKind.HOST_SCRATCH, producer="1:softmax.0",
               consumers=("1:softmax.1",)),
        Buffer("scores", 10, (Lifetime(6, 7),), agents=HOST, kind=BufferKind.OUTPUT, producer="1:softmax.1"),
        Buffer("archive", 20000, (Lifetime(0, 7),), pools=("sram", "dram"), agents=BOTH, producer="0:net.0",
               consumers=("1:softmax.1",)),
    )  # fmt: skip
    problem = Problem(
        buffers,
        (Pool("sram", 16384, agents=BOTH), Pool("dram", agents=BOTH)),
        aliases=(AliasGroup("pool", (("pool", 0), ("view", 0))),),
        overlaps=(AllowedOverlap("conv", "relu", 0, 0, "element-wise, read before it is written"),),
        points=("0:net.0", "0:net.1", "0:net.2", "0:net.3", "0:net.4", "1:softmax.0", "1:softmax.1"),
        name="small",
    )
    places = {
        "image": 0, "weights": 4096, "conv": 5120, "relu": 5120, "pool": 0, "view": 0, "scratch": 2048, "scores": 4096,
    }  # fmt: skip
    placements = tuple(
        Placement(b.name, "sram", places[b.name]) if b.name in places else Placement(b.name, "dram", 0) for b in buffers
    )
    usage = (PoolUsage("sram", 13312, 13312), PoolUsage("dram", 20000, 20000))
    plan = Plan(placements, usage, PlanStatus.FEASIBLE, "by-hand", budget="200 nodes", stopped_early=True)
    check(problem, plan)
    return Artifact(
        name="small",
        source="small.tflite",
        source_sha256="5" * 64,
        target=CompileOptions("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram"),
        problem=problem,
        plan=plan,
        regions=(1, 2),
        inputs=(TensorSlot("image", "int8", (1, 32, 32, 4), "sram", 0, 4096, 0.5, -1),),
        outputs=(TensorSlot("scores", "int8", (1, 10), "sram", 4096, 10, 0.00390625, -128),),
        calls=(
            Call("net", Agent.NPU, ("image",), ("pool",), (0, 5), estimated_cycles=2000, macs=73728),
            Call("softmax", Agent.HOST, ("pool",), ("scores",), (5, 7)),
        ),
        operators=(
            Operator("conv_out", "CONV_2D", Agent.NPU),
            Operator("probabilities", "SOFTMAX", Agent.HOST, "kept on the CPU by --host-ops"),
            Operator("topk", "TOPK_V2", Agent.HOST, "the NPU has no such operation"),
        ),
        constants_bytes=3000,
        stream_bytes=640,
        vela_arena_bytes={"sram": 14000},
        npu_operations=5,
        notes=("Cycles are estimates.",),
    )


@pytest.fixture(scope="session")
def synthetic() -> Any:
    """`synthetic(n)`: the artifact of n buffers that benchmarks/report.py measures with."""
    from benchmarks.report import synthetic

    return synthetic


@pytest.fixture(scope="session")
def compiled(shared_model: Models, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Artifact, Path]]:
    """`compiled("vww_96_int8", optimise="Size")`: a real artifact and its directory, made once a session."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    made: dict[object, tuple[Artifact, Path]] = {}

    def compile(name: str, **options: Any) -> tuple[Artifact, Path]:
        key = (name, tuple(sorted((k, str(v)) for k, v in options.items())))
        usual = {} if {"pools", "board"} & options.keys() else {"objective": "bytes", "effort": "quick"}
        if key not in made:
            folder = tmp_path_factory.mktemp("artifact") / name
            made[key] = compile_model(shared_model(name), CompileOptions(**{**usual, **options}), folder), folder
        return made[key]

    return compile
