"""Concatenation, split, slice, reshape and padding are views: no operation moves data that need not move."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.activation import Lookup
from npu_memplan.ethosu.layers.movement import Concat, Pad, Reshape, Slice
from npu_memplan.ethosu.layers.pool import PoolKind
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lower.operands import LayerTensor, Padding, TensorView
from npu_memplan.ethosu.lowering import Lowered, LoweringTarget, lower
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.stream.isa import Op
from tests.support.chains import Chain
from tests.support.on_model import run_program
from tests.support.single_operators import case

NPU = accelerator("ethos-u55-256")
NEGATE = tuple(-max(v, -127) for v in range(-128, 128))


def lookup(name: str, source: str, target: str) -> Lookup:
    return Lookup(name, (source,), target, NEGATE)


def negated(values: np.ndarray) -> np.ndarray:
    return (-np.maximum(values, -127)).astype(np.int8)


def tensor(name: str, *shape: int) -> LayerTensor:
    return LayerTensor(name, shape, "int8", 0.5, 3)


def graph(layers: list, inputs: list[LayerTensor], inner: list[LayerTensor], outputs: list[LayerTensor]) -> LayerGraph:
    tensors = {t.name: t for t in (*inputs, *inner, *outputs)}
    names = [tuple(t.name for t in group) for group in (inputs, outputs)]
    return LayerGraph("moves", tensors, names[0], names[1], tuple(layers))


def kernels(lowered: Lowered) -> int:
    return sum(o.op is not Op.DMA_START for o in lowered.program.operations)


def run(lowered: Lowered, *values: np.ndarray) -> list[np.ndarray]:
    return run_program(lowered, {str(i): v for i, v in enumerate(values)})


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("axis, shape", [(1, (3, 4, 5, 6)), (2, (2, 4, 5, 6)), (3, (3, 4, 5, 6)), (2, (2, 2, 3, 4, 5))])
@pytest.mark.parametrize("rescaled", [False, True])
def test_concat_of_several_images(axis: int, shape: tuple[int, ...], rescaled: bool) -> None:
    """Where images of the result are further apart than those of a part, each is moved by itself."""
    whole = tuple(2 * n if i == axis else n for i, n in enumerate(shape))
    second = LayerTensor("b", shape, "int8", 1.0, -3) if rescaled else tensor("b", *shape)
    layers = [Concat("concat", ("a", "b"), "c", axis)]
    lowered = lower(graph(layers, [tensor("a", *shape), second], [], [tensor("c", *whole)]), NPU)
    a, b = values(*shape), values(*shape)[::-1].copy()
    (found,) = run_program(lowered, {"a": a, "b": b})
    wanted = np.clip((b.astype(int) + 3) * 2 + 3, -128, 127).astype(np.int8) if rescaled else b
    np.testing.assert_array_equal(found.reshape(whole), np.concatenate([a, wanted], axis))


@pytest.mark.parametrize("axis, other", [(1, (1, 3, 5, 8)), (2, (1, 4, 2, 8)), (3, (1, 4, 5, 7))])
def test_concat_of_computed_tensors_costs_nothing(axis: int, other: tuple[int, ...]) -> None:
    shape = tuple(a + b if i == axis else a for i, (a, b) in enumerate(zip((1, 4, 5, 8), other, strict=True)))
    lowered = lower(
        graph(
            [
                lookup("a", "x", "p"),
                lookup("b", "y", "q"),
                Concat("c", ("p", "q"), "joined", axis),
                lookup("d", "joined", "out"),
            ],
            [tensor("x", 1, 4, 5, 8), tensor("y", *other)],
            [tensor("p", 1, 4, 5, 8), tensor("q", *other), tensor("joined", *shape)],
            [tensor("out", *shape)],
        ),
        NPU,
    )
    assert kernels(lowered) == 3
    x, y = values(1, 4, 5, 8), values(*other)
    assert np.array_equal(run(lowered, x, y)[0], negated(np.concatenate((negated(x), negated(y)), axis)))


def test_outputs_keep_the_graphs_order_whichever_is_made_first() -> None:
    layers = [lookup("a", "x", "first"), lookup("b", "first", "second")]
    shape = (1, 4, 5, 8)
    lowered = lower(graph(layers, [tensor("x", *shape)], [], [tensor("second", *shape), tensor("first", *shape)]), NPU)
    x = values(*shape)
    second, first = run(lowered, x)
    assert np.array_equal(first, negated(x))
    assert np.array_equal(second, negated(negated(x)))


def test_a_tensor_concatenated_twice_is_copied_once() -> None:
    lowered = lower(
        graph(
            [lookup("a", "x", "p"), Concat("c", ("p", "p"), "out", 3)],
            [tensor("x", 1, 4, 5, 8)],
            [tensor("p", 1, 4, 5, 8)],
            [tensor("out", 1, 4, 5, 16)],
        ),
        NPU,
    )
    x = values(1, 4, 5, 8)
    assert np.array_equal(run(lowered, x)[0], np.concatenate((negated(x), negated(x)), 3))
    assert kernels(lowered) == 3


def test_slices_and_reshapes_are_read_in_place() -> None:
    lowered = lower(
        graph(
            [
                Slice("s", ("x",), "part", (0, 1, 2, 3), (1, 2, 1, 1)),
                lookup("a", "part", "p"),
                Reshape("r", ("p",), "flat"),
                lookup("b", "flat", "out"),
            ],
            [tensor("x", 1, 8, 6, 9)],
            [tensor("part", 1, 3, 4, 5), tensor("p", 1, 3, 4, 5), tensor("flat", 1, 60)],
            [tensor("out", 1, 60)],
        ),
        NPU,
    )
    assert kernels(lowered) == 2
    x = values(1, 8, 6, 9)
    part = x[:, 1:7:2, 2:6, 3:8]
    assert np.array_equal(run(lowered, x)[0].reshape(-1), negated(negated(part)).reshape(-1))


def test_a_padded_tensor_is_made_inside_its_border() -> None:
    lowered = lower(
        graph(
            [lookup("a", "x", "p"), Pad("w", ("p",), "wide", Padding(1, 2, 0, 3), 3), lookup("b", "wide", "out")],
            [tensor("x", 1, 4, 5, 8)],
            [tensor("p", 1, 4, 5, 8), tensor("wide", 1, 5, 10, 8)],
            [tensor("out", 1, 5, 10, 8)],
        ),
        NPU,
    )
    x = values(1, 4, 5, 8)
    wide = np.pad(negated(x), ((0, 0), (1, 0), (2, 3), (0, 0)), constant_values=3)
    assert np.array_equal(run(lowered, x)[0], negated(wide))
    assert kernels(lowered) == 2 + 3  # three borders, and no copy of the inside


BRICKS = {  # depth, for cycles: whether maps between operations are bricks
    (60, True): True, (60, False): False, (40, True): False, (64, False): True,
}  # fmt: skip


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("depth, fast", BRICKS)
def test_bricks_are_filled_up_where_cycles_count_and_that_is_little(depth: int, fast: bool, npu: str) -> None:
    chain = Chain(depth, (7, 6, 5))
    start = chain.conv(depth, 3, 1)
    chain.conv(0, 3, 1, depthwise=True)
    chain.conv(depth, 1, 1)
    chain.add(start)
    chain.pool(PoolKind.MAX, 2, 2)
    chain.pool(PoolKind.AVERAGE, 2, 1)
    made = chain.graph()
    lowered = lower(made, accelerator(npu), LoweringTarget(for_cycles=fast))
    between = [b for b in lowered.program.buffers if b.role is BufferRole.FEATURE_MAP]
    maps = [t for t in made.tensors.values() if t.name not in (*made.inputs, *made.outputs)]
    whole = -(-depth // 16) * 16 if BRICKS[depth, fast] else depth
    assert [b.size_bytes for b in between] == [t.size_bytes // depth * whole for t in maps]
    x = {"x": values(1, 7, 6, 5)}
    assert np.array_equal(run_program(lowered, x)[0], run_program(lower(made, accelerator(npu)), x)[0])


def test_a_table_is_loaded_once() -> None:
    lowered = lower(
        graph(
            [lookup("a", "x", "p"), lookup("b", "p", "out")],
            [tensor("x", 1, 4, 5, 8)],
            [tensor("p", 1, 4, 5, 8)],
            [tensor("out", 1, 4, 5, 8)],
        ),
        NPU,
    )
    assert sum(o.op is Op.DMA_START for o in lowered.program.operations) == 1
    assert len(lowered.constants) == 256


def test_views_fold_only_what_strides_can_express() -> None:
    dense = TensorView.dense("b", (2, 3, 4, 5), 1)
    folded = dense.hwc()
    assert folded is not None
    assert folded.shape == (6, 4, 5)
    part = dense.box((0, 1, 0, 0), (2, 2, 4, 5))
    assert part is not None
    assert part.hwc() is None  # two batches of two rows are not evenly apart
    assert part.reshape((80,)) is None
    assert dense.reshape((120,)) is not None
    assert dense.box((0, 0, 0, 0), (2, 3, 4, 2), (1, 1, 1, 2)) is None


def test_the_split_cases_are_functions_of_views() -> None:
    from npu_memplan.frontend.tflite.lowered import NpuGroup
    from tests.support.on_model import partition_model

    for step in partition_model(case("split_axis3_3").build()).steps():
        assert isinstance(step, NpuGroup)
        assert [type(layer) for layer in step.graph.layers] == [Slice]


@pytest.mark.parametrize("kind", ["SPLIT", "PACK"])
def test_one_part_alone_is_a_view(kind: str) -> None:
    from tests.support.on_model import npu_graph
    from tests.support.tflite_builder import ModelBuilder

    b = ModelBuilder()
    x, y = b.tensor((1, 6, 12), "int8", 0.5), b.tensor((1, 6, 12) if kind == "SPLIT" else (1, 1, 6, 12), "int8", 0.5)
    if kind == "SPLIT":
        b.operator(kind, [b.constant(np.array(2, np.int32)), x], [y], "SplitOptions", 2, NumSplits=1)
    else:
        b.operator(kind, [x], [y], "PackOptions", 2, ValuesCount=1)
    graph = npu_graph(b.made([x], [y]).finish())
    given = values(1, 6, 12)
    assert np.array_equal(run(lower(graph, NPU), given)[0].reshape(given.shape), given)


@pytest.mark.parametrize("count", [12, 16])
def test_many_inputs_are_joined(count: int) -> None:
    from tests.support.against_reference import equals_reference
    from tests.support.single_operators import Case
    from tests.support.tflite_builder import ModelBuilder

    def made(_: np.random.Generator) -> ModelBuilder:
        b = ModelBuilder()
        parts = [b.tensor((1, 3, 4, 1 + i % 3), "int8", 0.5, 3) for i in range(count)]
        y = b.tensor((1, 3, 4, sum(1 + i % 3 for i in range(count))), "int8", 0.5, 3)
        b.operator("CONCATENATION", parts, [y], "ConcatenationOptions", 2, Axis=3)
        return b.made(parts, [y])

    equals_reference(Case(f"concat_{count}", "concat", made), "ethos-u55-256", 3)


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_a_pool_reads_a_constant(kind: str) -> None:
    pytest.importorskip("tflite_micro")
    from fvp_runner.references.kernels import TFLiteReference
    from tests.support.on_model import npu_graph
    from tests.support.tflite_builder import TensorSpec, constant, single_operator

    x = constant(np.random.default_rng(1).integers(-128, 128, (1, 9, 3, 16)), "int8", 0.01, 1)
    y = TensorSpec((1, 5, 1, 16), "int8", 0.01, 1)
    options = {"FilterWidth": 3, "FilterHeight": 5, "StrideW": 1, "StrideH": 1, "Padding": 1}
    model = single_operator(kind, [x], [y], "Pool2DOptions", 2, **options).finish()
    (found,) = run_program(lower(npu_graph(model), NPU), {})
    assert np.array_equal(found.reshape(-1), TFLiteReference(model).run([])[0].reshape(-1))
