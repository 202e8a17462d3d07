"""Rows that computed indices choose: indexed transfers of Ethos-U85 equal the reference; elsewhere the host does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.npu_model.model import NpuModel
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.stream.decode import Marker
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.ethosu.time import cycles_in_a_row, default_memory_map
from npu_memplan.files.arrays import read_inputs
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.inputs import load_inputs
from tests.support.on_model import npu_graph, run_program
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
from fvp_runner.references.kernels import TFLiteReference
from tests.support.against_reference import equals_reference, host_reasons

NPUS = tuple(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048))


def lookup(shape: tuple[int, int], count: int) -> ModelBuilder:
    """EMBEDDING_LOOKUP."""
    table = constant(np.random.default_rng(5).integers(-128, 128, shape), "int8", 0.5, 3)
    inputs = [TensorSpec((count,), "int32"), table]
    return single_operator("EMBEDDING_LOOKUP", inputs, [TensorSpec((count, shape[1]), "int8", 0.5, 3)])


def chosen_from(shape: tuple[int, ...], dtype: str, table: bool) -> tuple[TensorSpec, Callable[..., TensorSpec]]:
    """A tensor or a table of constants, and others of its type."""
    tensor = partial(TensorSpec, dtype=dtype, scale=0.5, zero_point=0 if dtype == "int16" else 3)
    info = np.iinfo(dtype)
    values = np.random.default_rng(5).integers(info.min, info.max + 1, shape).astype(dtype)
    return tensor(shape, data=values if table else None), tensor


def gather(
    shape: tuple[int, ...],
    indices: tuple[int, ...],
    axis: int = 0,
    shared: int = 0,
    dtype: str = "int8",
    index: str = "int32",
    table: bool = False,
) -> ModelBuilder:
    """GATHER of a tensor, or of a `table`, by given indices."""
    x, tensor = chosen_from(shape, dtype, table)
    inputs, y = [x, TensorSpec(indices, index)], tensor((*shape[:axis], *indices[shared:], *shape[axis + 1 :]))
    return single_operator("GATHER", inputs, [y], "GatherOptions", 2, Axis=axis, BatchDims=shared)


def slices(depth: int, dtype: str = "int8", index: str = "int32", table: bool = False) -> ModelBuilder:
    """GATHER_ND."""
    x, tensor = chosen_from((7, 3, 5), dtype, table)
    i, y = TensorSpec((2, 40, depth), index), tensor((2, 40, *x.shape[depth:]))
    return single_operator("GATHER_ND", [x, i], [y], "GatherNdOptions")


def constant_indices() -> ModelBuilder:
    """Those outside of the axis are the nearest place's."""
    x, tensor = chosen_from((1, 9, 5), "int8", False)
    inputs = [x, constant([[3, 8], [-1, 0], [7, 9]])]
    return single_operator("GATHER", inputs, [tensor((1, 3, 2, 5))], "GatherOptions", 2, Axis=1)


# how many transfers
CASES: dict[str, tuple[Callable[[], ModelBuilder], int]] = {
    "a table": (partial(gather, shape=(30, 16), indices=(8,), table=True), 1),
    "rows": (partial(gather, shape=(30, 17), indices=(8,)), 1),
    "one row": (partial(gather, shape=(9, 5), indices=()), 1),
    "uint8": (partial(gather, shape=(9, 5), indices=(3, 4), dtype="uint8"), 1),
    "int16": (partial(gather, shape=(30, 6), indices=(8,), dtype="int16"), 1),
    "behind one": (partial(gather, shape=(1, 9, 5), indices=(4,), axis=1), 1),
    "behind some": (partial(gather, shape=(3, 9, 5), indices=(4,), axis=1), 3),
    "last": (partial(gather, shape=(6, 9), indices=(4,), axis=1), 6),
    "of each image": (partial(gather, shape=(3, 9, 5), indices=(3, 4), axis=1, shared=1), 1),
    "of each group": (partial(gather, shape=(2, 3, 9, 5), indices=(2, 4), axis=2, shared=1), 3),
    "64 bits": (partial(gather, shape=(30, 6), indices=(8,), dtype="int16", index="int64"), 1),
    "a lookup": (partial(lookup, (30, 16), 8), 1),
    "64 bits of each": (partial(gather, shape=(2, 3, 9, 5), indices=(2, 4), axis=2, shared=1, index="int64"), 6),
}


@pytest.mark.parametrize("label", CASES)
def test_rows_equal_the_reference(label: str) -> None:
    make, transfers = CASES[label]
    for npu in NPUS:
        assert operations(make(), npu, 3) == [Op.DMA_START] * transfers


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices_equal_the_reference(depth: int, index: str) -> None:
    joined = [Op.ELEMENTWISE, Op.POOL] if depth > 1 else []
    for npu, dtype, table in zip(NPUS, ("int8", "uint8", "int8", "int8", "uint8"), (0, 1, 1, 0, 0), strict=True):
        assert operations(slices(depth, dtype, index, bool(table)), npu, 3) == [*joined, Op.DMA_START]


def operations(made: ModelBuilder, npu: str, seed: int) -> list[Op]:
    """What the NPU does of a model, all of which it does with results that equal the reference's."""
    network = read_network(made.finish())
    inputs = read_inputs("model", [network.tensors[i] for i in network.inputs], [f"random:{seed}"])
    return equals_reference(made, npu, given=inputs, scheduled=True).operations


def test_nothing_is_said_to_be_unconfirmed() -> None:
    npu = accelerator(NPUS[1])
    graph = npu_graph(gather((3, 9, 5), (3, 4), 1, 1).finish(), npu.name)
    placed = lower(graph, npu).program.place(0, lambda name: (1, 0))
    assert NpuModel(npu, checks=False).prepare_stream(encode([placed, Marker(Op.STOP, 0xFFFF)])).messages == ()


def test_constant_indices_of_several_dimensions() -> None:
    graph = npu_graph(constant_indices().finish(), "ethos-u85-256")
    x = np.random.default_rng(1).integers(-128, 128, (1, 9, 5)).astype(np.int8)
    (found,) = run_program(lower(graph, accelerator("ethos-u85-256")), {graph.inputs[0]: x})
    assert np.array_equal(found.reshape(1, 3, 2, 5), x[:, [[3, 8], [0, 0], [7, 8]]])


@pytest.mark.parametrize(
    ("model", "npu", "reason"),
    [
        (gather((30, 16), (8,)), "ethos-u65-512", "its indices are computed, which only Ethos-U85 follows"),
        (
            gather((30, 16), (8,), index="int16"),
            "ethos-u85-256",
            "its input 1 is int16; the NPU chooses by int32 and int64",
        ),
        (gather((65, 16), (8,), 1), "ethos-u85-256", "it takes 65 transfers; at most 64 pay on the NPU"),
        (
            gather((2, 3), (65536,)),
            "ethos-u85-256",
            "it takes 65536 rows for each of 1; a transfer takes at most 65535",
        ),
    ],
)
def test_what_the_host_does(model: ModelBuilder, npu: str, reason: str) -> None:
    assert host_reasons(model, npu) == [reason]


def between(rng: np.random.Generator) -> ModelBuilder:
    """A convolution's rows at the places of maxima, beside those of a table, then a product with weights."""
    b = ModelBuilder()
    quantised = (0.5, 3)
    x, i = b.tensor((1, 8, 8, 16), "int8", 0.1, 2), b.tensor((8,), "int32")
    w = b.constant(rng.integers(-127, 128, (16, 1, 1, 16), np.int8), 0.01)
    made, rows = b.tensor((1, 8, 8, 16), "int8", *quantised), b.tensor((64, 16), "int8", *quantised)
    b.operator("CONV_2D", [x, w], [made], "Conv2DOptions", 3, StrideH=1, StrideW=1)
    b.operator("RESHAPE", [made, b.constant(np.array([64, 16], np.int32))], [rows], "ReshapeOptions", NewShape=[64, 16])
    places, taken = b.tensor((16,), "int32"), b.tensor((16, 16), "int8", *quantised)
    b.operator("ARG_MAX", [rows, b.constant(np.array([0], np.int32))], [places], "ArgMaxOptions", 2, OutputType=2)
    b.operator("GATHER", [rows, places], [taken], "GatherOptions", 2, Axis=0)
    table = b.constant(rng.integers(-128, 128, (50, 16), np.int8), *quantised)
    words, both = b.tensor((8, 16), "int8", *quantised), b.tensor((24, 16), "int8", *quantised)
    b.operator("GATHER", [table, i], [words], "GatherOptions", 2, Axis=0)
    b.operator("CONCATENATION", [taken, words], [both], "ConcatenationOptions", Axis=0)
    dense, y = b.constant(rng.integers(-127, 128, (10, 16), np.int8), 0.01), b.tensor((24, 10), "int8", 0.4, -7)
    b.operator("FULLY_CONNECTED", [both, dense], [y], "FullyConnectedOptions", 4)
    return b.made([x, i], [y])


@pytest.mark.parametrize("npu", NPUS[1::2])
def test_rows_between_kernels_on_planned_pools(npu: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(between(np.random.default_rng(2)).finish())
    artifact = compile_model(path, CompileOptions(npu, npu_compiler="tvm"), tmp_path / "out")
    assert {operator.agent for operator in artifact.operators if operator.kind == "GATHER"} == {Agent.NPU}
    assert [call.agent for call in artifact.calls] == [Agent.NPU]
    for seed in range(3):
        inputs = load_inputs(artifact, [f"random:{seed}"])
        (expected,) = TFLiteReference(path.read_bytes()).run(inputs)
        (found,) = runner.create("local", tmp_path / "out").run(inputs).outputs
        assert np.array_equal(found.reshape(expected.shape), expected)


def test_time_is_that_of_the_rows_taken() -> None:
    cycles = []
    for rows, count in ((1000, 8), (8000, 8), (1000, 800)):
        npu = accelerator(NPUS[1])
        program = lower(npu_graph(gather((rows, 64), (count,), table=True).finish(), npu.name), npu).program
        placed = program.place(0, lambda name: (0 if name == "constants" else 1, 0))
        assert placed[Register.DMA0_IDX_MAX] == rows - 1
        cycles.append(cycles_in_a_row(placed, npu, default_memory_map(npu)))
    assert cycles[0] == cycles[1] < cycles[2]
