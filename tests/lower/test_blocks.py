"""SHRAM layouts and block choices against Vela's own: its streams, and its list of legal blocks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.ethosu.arch import ACCELERATORS, Shape, accelerator
from npu_memplan.ethosu.program.featuremap import FeatureMap, Kernel
from npu_memplan.ethosu.schedule.blocks import choose, estimate
from npu_memplan.ethosu.schedule.shram import BlockKind, BlockWork, layout
from npu_memplan.ethosu.stream.commands import Operation
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.stream.isa import AccFormat, ElementwiseMode, Op, PoolMode, Upscale
from npu_memplan.ethosu.stream.isa import Register as R
from npu_memplan.ethosu.vela import VelaOptions, compile_tflite
from npu_memplan.models.tflite import read_network

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def kernels(model: bytes, npu: str) -> Iterator[Operation]:
    """All kernel operations of Vela's streams."""
    # the legacy core's layouts are the documented ones; the compiled core moves boundaries within the free banks
    network = read_network(compile_tflite(model, VelaOptions(npu, core="legacy")).network, "vela")
    for call in network.npu_calls:
        for command in decode(call.words):
            if isinstance(command, Operation) and command.op.is_kernel:
                yield command


def work_of(op: Operation) -> BlockWork:
    """The block-relevant side of an operation, from its registers alone."""
    ofm, ifm = FeatureMap.ofm(op), FeatureMap.ifm(op)
    kinds = {Op.CONV: BlockKind.CONV, Op.DEPTHWISE: BlockKind.DEPTHWISE, Op.ELEMENTWISE: BlockKind.ELEMENTWISE}
    kind = kinds.get(op.op, BlockKind.REDUCE_SUM if op.parameter == PoolMode.REDUCE_SUM else BlockKind.POOL)
    window: dict[str, Any] = {}
    if op.op is not Op.ELEMENTWISE:
        kernel = Kernel.of(op)
        window = {
            "kernel_height": kernel.height,
            "kernel_width": kernel.width,
            "stride_y": kernel.stride_y,
            "stride_x": kernel.stride_x,
            "part_kernel": kernel.part_kernel_first and op.op is Op.CONV,
        }
    return BlockWork(
        kind=kind,
        ifm=Shape(ifm.height, ifm.width, op[R.IFM_DEPTH_M1] + 1),
        ofm=Shape(ofm.height, ofm.width, ofm.depth),
        ifm_bits=ifm.element_bytes * 8,
        upscale=Upscale(op.get(R.IFM_UPSCALE)),
        uses_lut=op[R.ACTIVATION] & 0x1F >= 16,
        second_operand=op.op is Op.ELEMENTWISE
        and not ElementwiseMode(op.parameter).is_unary
        and FeatureMap.ifm2(op) is not None,
        **window,
    )


@pytest.mark.parametrize("npu", ACCELERATORS)
def test_layouts_equal_velas(npu: str) -> None:
    checked = 0
    for op in kernels(EXAMPLE.read_bytes(), npu):
        block = Shape(op[R.OFM_BLK_HEIGHT_M1] + 1, op[R.OFM_BLK_WIDTH_M1] + 1, op[R.OFM_BLK_DEPTH_M1] + 1)
        found = layout(accelerator(npu), work_of(op), block)
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


@pytest.mark.parametrize("npu", ACCELERATORS)
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


@pytest.mark.parametrize("npu", ACCELERATORS)
@pytest.mark.parametrize("name", WORKS)
def test_chosen_blocks_fit(name: str, npu: str) -> None:
    work, target = WORKS[name], accelerator(npu)
    chosen = choose(target, work)
    assert layout(target, work, chosen.layout.block) == chosen.layout
    assert chosen.cycles > 0


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


def test_the_choice_is_the_cheapest() -> None:
    work = WORKS["conv3x3"]
    target = accelerator("ethos-u55-256")
    best = choose(target, work)
    for height in (2, 8, 16):
        for depth in (8, 16, 40):
            other = layout(target, work, Shape(height, 8, depth))
            if other is not None and (depth >= 40 or depth % 16 == 0):
                assert best.cycles <= estimate(target, work, other)[0]
