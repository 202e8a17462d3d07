"""SHRAM layouts and block choices against Vela's own, and operators of which only the smallest blocks fit."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.ethosu.arch import Architecture, Shape, accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U55_65, ETHOS_U85
from npu_memplan.ethosu.lower.emit import LayerRefusedError
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.access import Role
from npu_memplan.ethosu.schedule.blocks import BESIDE, BlockChoice, Blocks, block_work, places
from npu_memplan.ethosu.schedule.rams import BlockKind, BlockWork, layout
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.isa import AccFormat, Op
from npu_memplan.ethosu.stream.isa import Register as R
from npu_memplan.ethosu.time import cycles_in_a_row, default_memory_map
from npu_memplan.ethosu.time.cost import resource_use
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.chains import Chain
from tests.support.on_model import npu_graph
from tests.support.operator_models import VALID, binary, convolution, pool, unary
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def kernels(model: bytes, npu: str) -> Iterator[Operation]:
    """All kernel operations of Vela's streams."""
    # the legacy core's layouts are the documented ones; the compiled core moves boundaries within the free banks
    network = read_network(compile_tflite(model, VelaOptions(npu, core="legacy")).network, "vela")
    for call in network.npu_calls:
        for command in decode(call.words):
            if isinstance(command, Operation) and command.op.is_kernel:
                yield command


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U55_65])
def test_layouts_equal_velas(npu: str) -> None:
    checked = 0
    for op in kernels(EXAMPLE.read_bytes(), npu):
        block = Shape(op[R.OFM_BLK_HEIGHT_M1] + 1, op[R.OFM_BLK_WIDTH_M1] + 1, op[R.OFM_BLK_DEPTH_M1] + 1)
        found = layout(accelerator(npu), block_work(op), block)
        assert found is not None
        assert (found.ib_end, found.ab_start) == (op[R.IFM_IB_END], op[R.AB_START])
        assert found.acc_format == AccFormat(op[R.ACC_FORMAT])
        checked += 1
    assert checked > 20


WORKS = {
    "conv3x3": BlockWork(BlockKind.CONV, Shape(30, 30, 24), Shape(30, 30, 40), 8, 3, 3),
    "conv1x1": BlockWork(BlockKind.CONV, Shape(7, 7, 960), Shape(7, 7, 320), 8),
    "conv7x7s2": BlockWork(BlockKind.CONV, Shape(224, 224, 3), Shape(112, 112, 64), 8, 7, 7, 2, 2, part_kernel=True),
    "dense": BlockWork(BlockKind.CONV, Shape(1, 1, 640), Shape(1, 1, 128), 8),
    "depthwise": BlockWork(BlockKind.DEPTHWISE, Shape(25, 5, 64), Shape(25, 5, 64), 8, 3, 3),
    "pool": BlockWork(BlockKind.POOL, Shape(25, 5, 64), Shape(1, 1, 64), 8, 25, 5),
    "add": BlockWork(BlockKind.ELEMENTWISE, Shape(32, 32, 16), Shape(32, 32, 16), 8, second_operand=True),
    "int32": BlockWork(BlockKind.ELEMENTWISE, Shape(1, 1, 12), Shape(1, 1, 12), 32, second_operand=True),
}


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U55_65])
@pytest.mark.parametrize("name", WORKS)
def test_blocks_that_fit_are_velas(name: str, npu: str) -> None:
    """Vela lists blocks of even height and width, whole depths or multiples of 16: of those, exactly the same fit."""
    work, target = WORKS[name], accelerator(npu)
    unit = target.ofm_micro.depth
    ours = {
        (height, width, depth)
        for height in range(2, min(32, work.ofm.height) + 2, 2)
        for width in range(2, min(64, work.ofm.width) + 2, 2)
        for depth in range(unit, min(128, work.ofm.depth) + unit, unit)
        if (depth >= work.ofm.depth or depth % 16 == 0) and layout(target, work, Shape(height, width, depth))
    }
    assert ours == _legal_blocks(work, npu)


def _legal_blocks(work: BlockWork, npu: str) -> set[tuple[int, int, int]]:
    from ethosu.vela import api

    operation: Any
    if work.kind is BlockKind.CONV:
        operation = api.NpuConv2DOperation()
        order = api.NpuBlockTraversal
        operation.block_traversal = order.PART_KERNEL_FIRST if work.part_kernel else order.DEPTH_FIRST
    elif work.kind is BlockKind.DEPTHWISE:
        operation = api.NpuConvDepthWiseOperation()
    elif work.kind is BlockKind.POOL:
        operation = api.NpuPoolingOperation(api.NpuPoolingOp.AVERAGE)
    else:
        operation = api.NpuElementWiseOperation(api.NpuElementWiseOp.ADD)

    def feature_map(shape: Shape) -> Any:
        found = api.NpuFeatureMap()
        found.shape = api.NpuShape3D(shape.height, shape.width, shape.depth)
        found.data_type = api.NpuDataType.INT8 if work.ifm_bits == 8 else api.NpuDataType.INT32
        found.quantization = api.NpuQuantization(1.0, 0)
        return found

    operation.ifm, operation.ofm = feature_map(work.ifm), feature_map(work.ofm)
    if work.second_operand:
        operation.ifm2 = feature_map(work.ifm)
    operation.kernel = api.NpuKernel(work.kernel_width, work.kernel_height, work.stride_x, work.stride_y)
    target = npu.replace("ethos-u", "Ethos_U").replace("-", "_")
    with contextlib.redirect_stdout(io.StringIO()):
        found = api.npu_find_block_configs(operation, api.NpuAccelerator[target])
    return {(c.height, c.width, c.depth) for c in found}


def _in(op: Operation, target: Architecture, block: Shape) -> Operation | None:
    """`op` in another block, in the order of its weights."""
    found = layout(target, block_work(op), block)
    return found and op.with_registers(BlockChoice(found, block_work(op).part_kernel, 0).registers(op))


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U55_65])
def test_chosen_blocks_are_no_slower_than_others(npu: str) -> None:
    """Never than Vela's own: every kernel of its stream, in blocks of its depth and of any."""
    target = accelerator(npu)
    memory_map = default_memory_map(target)
    blocks, rng = Blocks(target, memory_map), random.Random(npu)
    faster = 0
    for op in kernels(EXAMPLE.read_bytes(), npu):
        theirs = cycles_in_a_row(op, target, memory_map)
        for encoded in (True, False):
            choice = blocks.choose(op, encoded)
            made = op.with_registers(choice.registers(op))
            assert cycles_in_a_row(made, target, memory_map) == choice.cycles <= theirs
            faster += choice.cycles < theirs
            assert choice.layout == layout(target, block_work(made), choice.layout.block)
        for _ in range(20):
            micro = target.ofm_micro
            block = Shape(*(m * rng.randint(1, 64 // m) for m in micro.extents))
            other = _in(op, target, block)
            if other is not None and (block.depth >= op[R.OFM_DEPTH_M1] + 1 or block.depth % 16 == 0):
                assert choice.cycles <= 1.06 * cycles_in_a_row(other, target, memory_map)  # not all are looked at
    assert faster


def test_weights_in_slow_memory_are_read_once_where_a_block_holds_the_plane() -> None:
    """Though blocks of more channels would read the input less often."""
    target = accelerator("ethos-u55-256")
    memory_map = default_memory_map(target)
    chain = Chain(1, (20, 6, 64))
    chain.conv(64, 1, 1)
    program = lower(chain.graph(), target).program
    op = program.place(0, places(program, memory_map))
    (weights,) = (load for load in resource_use(op, target, memory_map).loads if load.role is Role.WEIGHTS)
    assert weights.memory.name == "flash"
    assert weights.traffic.bytes == op[R.WEIGHT_LENGTH]


def test_where_weights_lie_decides() -> None:
    """The same operation with its weights in SRAM takes as long in the blocks chosen for it, or less."""
    target = accelerator("ethos-u55-256")
    memory_map = default_memory_map(target)
    blocks = Blocks(target, memory_map)
    for op in kernels(EXAMPLE.read_bytes(), "ethos-u55-256"):
        if op.op in (Op.CONV, Op.DEPTHWISE):
            near, far = (op.with_registers({R.WEIGHT_REGION: region, R.SCALE_REGION: region}) for region in (1, 0))
            at_home = blocks.choose(near, encoded=True)
            moved = near.with_registers(blocks.choose(far, encoded=True).registers(near))
            assert at_home.cycles <= cycles_in_a_row(moved, target, memory_map)
            assert at_home.cycles <= blocks.choose(far, encoded=True).cycles


def test_blocks_leave_memories_to_transfers() -> None:
    """Where those run beside kernels: fewer bytes for a few cycles, never cycles for nothing."""
    target = accelerator("ethos-u55-256")
    memory_map = default_memory_map(target).with_constants_near()
    chain = Chain(1, (112, 112, 16))
    chain.conv(16, 3, 1, depthwise=True)
    program = lower(chain.graph(), target).program
    (op,) = (
        program.place(i, places(program, memory_map)) for i, o in enumerate(program.operations) if o.op is Op.DEPTHWISE
    )
    alone, beside = (
        Blocks(target, memory_map).choose(op, encoded=True),
        Blocks(target, memory_map, BESIDE).choose(op, encoded=True),
    )
    assert alone.layout.block.extents != beside.layout.block.extents
    (sooner, most), (later, fewer) = ((c.cycles, _busy(op, c, target)) for c in (alone, beside))
    assert sooner <= later
    assert fewer < most
    assert later + BESIDE * fewer < sooner + BESIDE * most


def _busy(op: Operation, choice: BlockChoice, target: Architecture) -> float:
    """Cycles of all memories together."""
    memory_map = default_memory_map(target).with_constants_near()
    return sum(load.cycles for load in resource_use(op.with_registers(choice.registers(op)), target, memory_map).loads)


U85_256 = "ethos-u85-256"
NPUS = ["ethos-u55-128", *(a.name for a in ETHOS_U85)]


def _softmax(dtype: str, *shape: int) -> Callable[..., Any]:
    zero = -128 if dtype == "int8" else 0
    return partial(
        unary, name="SOFTMAX", dtype=dtype, shape=shape, out=(1 / 256, zero), in_scale=0.05, options="SoftmaxOptions",
        Beta=1.0,
    )  # fmt: skip


def _rows(dtype: str, rows: int, columns: int, depth: int) -> Callable[..., Any]:
    return partial(binary, dtype=dtype, first=(1, rows, columns, depth), second=(1, 1, columns, depth))


MODELS = {
    "softmax_48x16": _softmax("int8", 1, 48, 16),
    "softmax_96x32": _softmax("int8", 1, 96, 32),
    "softmax_49x64_uint8": _softmax("uint8", 1, 49, 64),
    "add_rows_int8": _rows("int8", 3, 97, 1001),
    "add_rows_int16": _rows("int16", 3, 64, 1001),
    "max_pool_int8": partial(pool, kernel=(7, 7), stride=(3, 3), shape=(22, 31, 1001)),
    "max_pool_int16": partial(pool, kernel=(7, 3), stride=(2, 3), shape=(22, 31, 1001), dtype="int16"),
    "depthwise_k8_int16": partial(
        convolution, kernel=(8, 8), stride=(1, 3), shape=(16, 31, 1000), dtype="int16", depthwise=True, padding=VALID
    ),
    "depthwise_k7_int16": partial(
        convolution, kernel=(7, 7), stride=(3, 3), shape=(22, 13, 1001), dtype="int16", depthwise=True, padding=VALID
    ),
}


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_reference(name: str, npu: str) -> None:
    equals_reference(Case(name, "smallest_blocks", MODELS[name]), npu, 3)


def test_what_fits_nothing_is_reported() -> None:
    graph = npu_graph(Case("any", "", MODELS["softmax_48x16"]).build(), U85_256)
    target = accelerator(U85_256)
    assert target.rams is not None
    with pytest.raises(LayerRefusedError, match="no block of an element-wise operation with kernel 1x1"):
        lower(graph, replace(target, rams=replace(target.rams, output_bytes=8)))
