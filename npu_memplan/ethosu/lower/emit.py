"""Registers of one operation, and what a layer's emitter works with.

Invariant: an operation's registers are complete - nothing is inherited from the operation before it - and never hold
an address: addresses are (buffer, byte offset) pairs, so the plan decides them. An operand is in [height, width,
channels] and carries its zero point, unless its stored values are wanted `raw`; data movements use zero point 0 and no
scale, so they copy bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import NpuMemplanError, RefusalError
from ...fixed_point import joined_uint8
from ...names import Names
from ..arch import Architecture, Language
from ..program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ..schedule.blocks import Blocks, place_of
from ..schedule.rams import ceil_div
from ..stream.decode import Operation
from ..stream.fields import (
    IFM,
    IFM2,
    OFM,
    SCALES,
    WEIGHTS,
    Activation,
    InputPrecision,
    MapRegisters,
    OutputPrecision,
    encode_int16,
)
from ..stream.isa import BRICK_CHANNELS, SHRAM_REGION, ActivationFunction, Broadcast, Op, PoolMode, Rounding, Upscale
from ..stream.isa import Register as R
from ..time.traffic import run
from ..weight_codec import SCALE_BYTES, WeightCodecError, about_encoded_bytes
from .languages import FORMS, Streams
from .operands import (
    LayerTensor,
    Operand,
    Output,
    Padding,
    Storage,
    TensorView,
    Window,
    box_pairs,
    kernel_registers,
    without_padding,
)
from .scaling import UNITY, Scale, float32_value, quantise_multiplier

_LUT_SLOT_BYTES = 256
_LUT_SLOTS = 8
CONSTANTS = "constants"
LUT = "lut"
_AXES = (Broadcast.HEIGHT, Broadcast.WIDTH, Broadcast.DEPTH)


class LoweringError(NpuMemplanError):
    """A layer that passed the checks of its limits cannot be put on the NPU."""


class LayerRefusedError(LoweringError, RefusalError):
    """A layer whose numbers the NPU has no operation for: no block fits, or a scale is out of range."""


class Builder:
    """Collects buffers, constants and operations of one program."""

    def __init__(self, accelerator: Architecture, blocks: Blocks, near: Blocks, fast_region: int = -1) -> None:
        """`near`: blocks with constants in the NPU's own memory."""
        self.accelerator, self._blocks, self._near = accelerator, blocks, near
        self._form = FORMS[accelerator.language]
        self._fast_region = fast_region  # where internal feature maps would rather be; -1: anywhere
        self.operator = -1  # of the source model, whose operations come next
        self._names = Names((CONSTANTS, LUT))
        self._buffers: dict[str, NpuBuffer] = {}
        self._operations: list[NpuOperation] = []
        self._constants = bytearray()
        self._offsets: dict[bytes, int] = {}
        self._tables: dict[int, bytes] = {}  # first slot -> content
        self._next_slot = 0

    def buffer(
        self, name: str, size_bytes: int, role: BufferRole, shape: tuple[int, ...] = (), dtype: str = "uint8"
    ) -> str:
        """A new buffer; the name becomes an identifier and gets a number when it is taken."""
        unique = self._names.unique_name(re.sub(r"\W", "_", name))
        region = self._fast_region if role is BufferRole.FEATURE_MAP else -1
        self._buffers[unique] = NpuBuffer(unique, size_bytes, role, original_region=region, shape=shape, dtype=dtype)
        return unique

    def temporary(self, name: str, shape: tuple[int, ...], dtype: str, zero_point: int = 0) -> Operand:
        """A new feature map for an intermediate result of a layer's operations; dense [H, W, C]."""
        element_bytes = int(np.dtype(dtype).itemsize)
        buffer = self.buffer(name, int(np.prod(shape)) * element_bytes, BufferRole.FEATURE_MAP)
        return Operand(TensorView.dense(buffer, shape, element_bytes), dtype, zero_point)

    @property
    def operation_count(self) -> int:
        return len(self._operations)

    def constant(self, data: bytes) -> int:
        """Offset of `data` in the constants, 16-byte aligned; equal data is stored once."""
        if data not in self._offsets:
            self._offsets[data] = len(self._constants)
            self._constants += data + bytes(-len(data) % 16)
        return self._offsets[data]

    def scalar(self, value: int, dtype: str, zero_point: int = 0) -> Operand:
        """A second operand of one stored value; in memory where the register, of 16 bits but on U85, is too small."""
        values = np.full((1, 1, 1), value, dtype)
        if self.accelerator.language is not Language.U85 and values.dtype.itemsize > 2:
            return Operand(self.constant_view(values), dtype, zero_point)
        return Operand(TensorView.dense("", values.shape, values.dtype.itemsize), dtype, zero_point, value)

    def constant_view(self, values: NDArray[np.integer]) -> TensorView:
        """`values` in the constants, as a dense view of their shape."""
        offset = self.constant(values.tobytes())
        return replace(TensorView.dense(CONSTANTS, values.shape, values.dtype.itemsize), offset=offset)

    def finish(self, name: str, outputs: Sequence[str]) -> tuple[NpuProgram, bytes]:
        """The program and the bytes of its constants buffer. Parameters: inputs and states, constants, `outputs`."""
        given = (BufferRole.INPUT, BufferRole.STATE)
        buffers = [b for b in self._buffers.values() if b.role in given]
        if self._constants:
            size = len(self._constants)
            buffers.append(NpuBuffer(CONSTANTS, size, BufferRole.CONSTANTS, shape=(size,)))
        buffers += [b for b in self._buffers.values() if b.role not in (*given, BufferRole.OUTPUT)]
        buffers += [self._buffers[output] for output in outputs]
        return NpuProgram(self.accelerator, tuple(buffers), tuple(self._operations), name), bytes(self._constants)

    # ------------------------------------------------------------------ kernels

    def convolve(
        self,
        ifm: Operand,
        ofm: Operand,
        window: Window,
        output: Output,
        weights: NDArray[np.int16],
        bias: NDArray[np.int64],
        scales: Sequence[Scale],
        *,
        depthwise: bool,
    ) -> None:
        """CONV or DEPTHWISE. `weights` are OHWI; depthwise: O = channels, I = 1."""
        try:
            weights, scales, wide = self._form.fitted(weights, bias, scales, ifm.bits)
        except WeightCodecError as error:
            raise LayerRefusedError(str(error)) from error
        kernel = self._draft_kernel(ifm, ofm, window, output, weights, depthwise, wide)
        streams = self._form.encode(kernel.place(self._region_of), self.accelerator, weights, bias, scales)
        # blocks are chosen again, now that the sizes of the streams are known
        self._operations.append(self._in_blocks(self._with_streams(kernel, streams), encoded=True))

    def cycles_of_sums(
        self, ifm: Operand, ofm: Operand, window: Window, output: Output, weights: NDArray[np.int16]
    ) -> float:
        """The estimated cycles of a CONV that `convolve` makes with weights nearby, and those to bring them once."""
        kernel = self._draft_kernel(ifm, ofm, window, replace(output, table=None), weights, False, ifm.bits == 16)
        lengths = sum(kernel.registers[WEIGHTS[core].length] for core in range(self.accelerator.cores))
        far = self._blocks.memory_map.regions[0].cycles(
            run(lengths, 1, self.accelerator), False, self.accelerator.cores
        )
        return self._near.choose(kernel.place(self._region_of)).cycles + far

    def pool(self, mode: int, ifm: Operand, ofm: Operand, window: Window, output: Output) -> None:
        """POOL of `mode` (isa.PoolMode); REDUCE_SUM sums over the channels."""
        if window == Window() and mode != PoolMode.REDUCE_SUM and ifm.shape == ofm.shape:
            ifm, ofm = without_padding(ifm, ofm)
        registers, addresses = self.common(ifm, ofm, window, output)
        self.add(Op.POOL, mode, registers, addresses)

    def elementwise(
        self,
        mode: int,
        ifm: Operand,
        ifm2: Operand | None,
        ofm: Operand,
        output: Output,
        *,
        operand_scales: tuple[int, int] | None = None,  # OPA_SCALE and OPB_SCALE register values
        scaled_operand: int = 0,
        swap: bool = False,
    ) -> None:
        """ELEMENTWISE of `mode` (isa.ElementwiseMode). `ifm2` is a map (may be broadcast), a scalar, or absent."""
        maps = [ifm, ofm] if ifm2 is None or ifm2.shape.elements == 1 else [ifm, ofm, ifm2]
        if not self.accelerator.micro_blocks and all(one.shape == ofm.shape for one in maps):
            ifm, ofm, *others = without_padding(*maps)
            ifm2 = others[0] if others else ifm2
        registers, addresses = self.common(ifm, ofm, None, output)
        registers[R.IFM_PRECISION] |= InputPrecision.SCALED_OPERAND.word_with(scaled_operand)
        if ifm2 is not None:
            broadcast = Broadcast.SWAP_OPERANDS if swap else Broadcast(0)
            if ifm2.scalar is None:
                for axis, mine, theirs in zip(_AXES, ofm.view.shape, ifm2.view.shape, strict=True):
                    broadcast |= axis if mine != theirs else Broadcast(0)
                self.map(registers, addresses, IFM2, ifm2)
            else:
                broadcast |= Broadcast.SCALAR
                is_wide = self.accelerator.language is Language.U85
                registers[R.IFM2_SCALAR] = ifm2.scalar if is_wide else encode_int16(ifm2.scalar)
                registers[R.IFM2_ZERO_POINT] = encode_int16(ifm2.zero_point)
            registers[R.IFM2_PRECISION] = ifm2.precision
            registers[R.IFM2_BROADCAST] = int(broadcast)
            registers[R.IFM2_IB_START] = 0  # until blocks are chosen
        if operand_scales is not None:
            registers[R.OPA_SCALE], registers[R.OPB_SCALE] = operand_scales
        self.add(Op.ELEMENTWISE, mode, registers, addresses)

    # ------------------------------------------------------------------ parts

    def _draft_kernel(
        self,
        ifm: Operand,
        ofm: Operand,
        window: Window,
        output: Output,
        weights: NDArray[np.int16],
        depthwise: bool,
        wide: bool,
    ) -> NpuOperation:
        """CONV or DEPTHWISE in its blocks, with about as many bytes of weights as it will have."""
        registers, addresses = self.common(ifm, ofm, window, output)
        cores = self.accelerator.cores
        for core in range(cores):
            registers[WEIGHTS[core].length] = ceil_div(about_encoded_bytes(weights), cores)
            addresses[WEIGHTS[core].base] = (CONSTANTS, 0)
        tables = SCALES[: cores if self.accelerator.parallel else 1]
        for table in tables:
            registers[table.length] = ceil_div(SCALE_BYTES * ofm.shape.depth, len(tables))
            addresses[table.base] = (CONSTANTS, 0)
        kernel = NpuOperation(Op.DEPTHWISE if depthwise else Op.CONV, 0, registers, addresses, self.operator)
        formats = (False, True) if not depthwise and self._form.may_be_sparse(weights) else (False,)
        forms = [self._form.kernel(kernel, wide, sparse) for sparse in formats]
        fastest = min(forms, key=lambda form: self._blocks.choose(form.place(self._region_of)).cycles)
        return self._in_blocks(fastest)

    def _in_blocks(self, kernel: NpuOperation, encoded: bool = False) -> NpuOperation:
        """`kernel` in the blocks chosen for it; of the depth there is where weights are `encoded`."""
        placed = kernel.place(self._region_of)
        choice = self._blocks.choose(placed, encoded)
        return replace(kernel, registers={**kernel.registers, **choice.registers(placed)})

    def _with_streams(self, kernel: NpuOperation, streams: Streams) -> NpuOperation:
        """Weights and scales in the constants; a core without any has the first one's address."""
        registers, addresses = dict(kernel.registers), dict(kernel.addresses)
        for group, parts in ((WEIGHTS, streams.weights), (SCALES, streams.scales)):
            first = addresses[group[0].base]
            for core, data in enumerate(parts):
                addresses[group[core].base] = (CONSTANTS, self.constant(data)) if data else first
                registers[group[core].length] = len(data)
                first = addresses[group[0].base]
        return replace(kernel, registers=registers, addresses=addresses)

    def _region_of(self, name: str) -> tuple[int, int]:
        role = BufferRole.CONSTANTS if name == CONSTANTS else self._buffers[name].role
        return place_of(role, self._blocks.memory_map)

    def map(
        self, registers: dict[R, int], addresses: dict[R, tuple[str, int]], group: MapRegisters, operand: Operand
    ) -> None:
        """Add the registers `group` of a feature map."""
        view = operand.view
        height, width, _ = view.shape
        if view.brick:
            stride_y, stride_x, stride_c = view.strides[0], BRICK_CHANNELS * view.element_bytes, view.strides[2]
        else:
            stride_y, stride_x, stride_c = view.strides[0], view.strides[1], BRICK_CHANNELS * view.element_bytes
        addresses[group.bases[0]] = (view.buffer, view.offset)
        registers |= {
            group.height0: height - 1,
            group.height1: height - 1,
            group.width0: width - 1,
            group.stride_y: stride_y,
            group.stride_x: stride_x,
            group.stride_c: stride_c,
            group.zero_point: encode_int16(operand.zero_point),
        }

    def common(
        self, ifm: Operand, ofm: Operand, window: Window | None, output: Output
    ) -> tuple[dict[R, int], dict[R, tuple[str, int]]]:
        """Registers and addresses that every kernel has."""
        registers: dict[R, int] = {}
        addresses: dict[R, tuple[str, int]] = {}
        self.map(registers, addresses, IFM, ifm)
        self.map(registers, addresses, OFM, ofm)
        shape = ofm.shape
        registers |= {
            R.IFM_PRECISION: ifm.precision,
            R.IFM_DEPTH_M1: ifm.shape.depth - 1,
            R.IFM_UPSCALE: int(window.upscale) if window else 0,
            R.OFM_HEIGHT_M1: shape.height - 1,
            R.OFM_WIDTH_M1: shape.width - 1,
            R.OFM_DEPTH_M1: shape.depth - 1,
            R.OFM_PRECISION: ofm.packed_precision(OutputPrecision)
            | OutputPrecision.GLOBAL_SCALE.word_with(output.scale is not None)
            | OutputPrecision.ROUNDING.word_with(output.rounding),
        }
        if window is not None:
            registers |= kernel_registers(window)
        if output.scale is not None:
            registers[R.OFM_SCALE] = output.scale.register
        if self.accelerator.parallel:
            registers[R.PARALLEL_MODE] = self.accelerator.cores - 1
        activation, (low, high) = int(output.function), output.clamp
        words = None if output.function is ActivationFunction.NONE else self._form.function_table(output.function)
        if words is not None:
            self._load_table(words, 32)
        if output.table is not None:
            activation = Activation.FIRST_TABLE + self._load_table(output.table, ofm.bits)
            if ofm.bits == 32:
                activation |= Activation.CLIP_RANGE.word_with(
                    3
                )  # the table is indexed by eight bits of a 32-bit result
        elif not self.accelerator.lut_reserved:
            self._tables.clear()  # without a reserved bank, any other operation overwrites the tables
        registers |= {
            R.ACTIVATION: activation,
            R.ACTIVATION_MIN: encode_int16(max(low, -0x8000)),
            R.ACTIVATION_MAX: encode_int16(min(high, 0x7FFF)),
        }
        return registers, addresses

    def _load_table(self, table: NDArray[np.int64], ofm_bits: int) -> int:
        """Slot of `table`, loaded by a DMA when it is not there already."""
        data = table.astype(np.uint8 if ofm_bits == 8 else np.uint32).tobytes()
        for slot, content in self._tables.items():
            if content == data:
                return slot
        count = len(data) // _LUT_SLOT_BYTES
        slot = -(-self._next_slot // count) * count
        if slot + count > _LUT_SLOTS:
            slot = 0
        self._next_slot = slot + count
        self._tables = {
            first: content
            for first, content in self._tables.items()
            if first >= slot + count or first + len(content) // _LUT_SLOT_BYTES <= slot
        }
        self._tables[slot] = data
        if LUT not in self._buffers:
            size = _LUT_SLOTS * _LUT_SLOT_BYTES
            self._buffers[LUT] = NpuBuffer(
                LUT, size, BufferRole.LUT, original_region=SHRAM_REGION, original_offset=self.accelerator.lut_address
            )
        addresses = {R.DMA0_SRC: (CONSTANTS, self.constant(data)), R.DMA0_DST: (LUT, slot * _LUT_SLOT_BYTES)}
        self.transfer({R.DMA0_LEN: len(data)}, addresses)
        return slot

    def transfer(self, registers: dict[R, int], addresses: dict[R, tuple[str, int]]) -> None:
        """DMA_START."""
        language = self.accelerator.language
        self._operations.append(NpuOperation(Op.DMA_START, 0, registers, addresses, self.operator, language))

    def add(
        self,
        op: Op,
        parameter: int,
        registers: dict[R, int],
        addresses: dict[R, tuple[str, int]],
        *,
        wide: bool = False,
        place: int = 0,
        scale: int | None = None,
        layout: Callable[[Operation], Mapping[R, int]] | None = None,
    ) -> None:
        """A kernel without weights, the sums of which are `wide`.

        `place`: how OFM_PRECISION says that results are stored in another order; `scale`: OFM_SCALE, where Ethos-U55
        has no such scale; `layout`: its blocks' registers, where they are not the best ones.
        """
        kernel = self._form.kernel(NpuOperation(op, int(parameter), registers, addresses, self.operator), wide, False)
        made = {**kernel.registers, R.OFM_PRECISION: kernel.registers[R.OFM_PRECISION] | place}
        kernel = replace(kernel, registers=made if scale is None else {**made, R.OFM_SCALE: scale})
        if layout is None:
            self._operations.append(self._in_blocks(kernel))
        else:
            fixed = layout(kernel.place(self._region_of))
            self._operations.append(replace(kernel, registers={**kernel.registers, **fixed}))


@dataclass(frozen=True, slots=True)
class EmitContext:
    """A graph and the `builder` that its layers append operations to."""

    builder: Builder
    tensors: Mapping[str, LayerTensor]
    storage: Storage
    real: bool  # results are real numbers rounded once, not TFLite's fixed point
    for_cycles: bool = False  # time is worth more than bytes
    table: NDArray[np.int64] | None = None  # looked up by the operation of a layer that `takes_tables`

    def view(self, name: str) -> TensorView:
        """A view of a tensor's bytes; those of constants are added to the program."""
        tensor = self.tensors[name]
        if tensor.data is not None:
            return self.builder.constant_view(tensor.data.astype(tensor.dtype))
        return self.storage.views[name]

    def operand(self, name: str, *, raw: bool = False) -> Operand:
        """A tensor as [H, W, C]; `raw` without its zero point."""
        view = self.view(name).hwc()
        if view is None:
            raise LoweringError(f"tensor {name} has strides {self.view(name).strides} that the NPU cannot walk")
        tensor = self.tensors[name]
        if tensor.stored is not None and name not in self.storage.copies:
            return Operand(view, *tensor.stored)
        return Operand(view, tensor.dtype, 0 if raw else tensor.zero_point)

    def second_operand(self, name: str, ofm: Operand) -> Operand:
        """The second operand of an elementwise operation, broadcast where it is smaller than `ofm`."""
        tensor = self.tensors[name]
        if tensor.data is not None and tensor.data.size == 1 and tensor.stored is None:
            return self.builder.scalar(int(tensor.data.item()), tensor.dtype, tensor.zero_point)
        operand = self.operand(name)
        shape = operand.view.shape
        if any(mine not in (1, whole) for mine, whole in zip(shape, ofm.view.shape, strict=True)):
            raise LoweringError(f"tensor {name} of shape {shape} cannot be broadcast to {ofm.view.shape}")
        return operand

    def output(self, clamp: tuple[int, int], scale: Scale | None = None) -> Output:
        """A rescaled result, rounded as the graph's arithmetic wants."""
        return Output(clamp, scale, Rounding.NATURAL if self.real else Rounding.TFL, self.table)

    def rescale_output(self, source: str, result: str, clamp: tuple[int, int]) -> Output:
        """Values of tensor `source` in the scale of `result`."""
        ratio = float32_value(self.tensors[source].scale) / float32_value(self.tensors[result].scale)
        return self.output(clamp, quantise_multiplier(ratio))

    def copy(self, source: TensorView, target: TensorView, dtype: str, clamp: tuple[int, int] | None = None) -> None:
        """Move elements, `clamp`ed where that is given: a 1x1 maximum has no arithmetic."""
        info = np.iinfo(dtype)
        output = Output(clamp or (int(info.min), int(info.max)), UNITY)
        for a, b in _image_pairs(source, target):
            self.builder.pool(PoolMode.MAX, Operand(a, dtype), Operand(b, dtype), Window(), output)

    def rescale(self, name: str, target: TensorView, result: str) -> None:
        """Put tensor `name` into `target`, a part of tensor `result`, in the scale of that."""
        source, out = self.tensors[name], self.tensors[result]
        output, base = self.rescale_output(name, result, out.limits), (source.zero_point, out.zero_point)
        if source.dtype == "uint8" and not self.real:  # no rounding of the NPU is that of the reference's float32
            entries = joined_uint8((source.scale, source.zero_point), (out.scale, out.zero_point))
            output, base = Output(source.limits, UNITY, table=np.array(entries, np.int64)), (0, 0)
        whole = self.view(name)
        for a, b in _image_pairs(whole, target):
            ifm = self.operand(name) if whole.hwc() == a else Operand(a, source.dtype, source.zero_point)
            ifm = replace(ifm, zero_point=ifm.zero_point - source.zero_point + base[0])
            self.builder.pool(PoolMode.AVERAGE, ifm, Operand(b, out.dtype, base[1]), Window(), output)


def _image_pairs(source: TensorView, target: TensorView) -> list[tuple[TensorView, TensorView]]:
    found = box_pairs(source, target)
    if found is None:
        raise LoweringError(f"no NPU operation moves {source} to {target}")
    return found


def exact_window(window: Window, ifm: Operand, ofm: Operand) -> Window:
    """The window with the padding that is really read: the NPU derives the input's extent from it."""
    scale = 1 if window.upscale is Upscale.NONE else 2
    padding = window.padding

    def padding_after(axis: int, before: int) -> int:
        extent = (ofm.view.shape[axis] - 1) * window.stride[axis] + window.dilated_extents[axis]
        return max(extent - before - scale * ifm.view.shape[axis], 0)

    exact = Padding(padding.top, padding.left, padding_after(0, padding.top), padding_after(1, padding.left))
    return replace(window, padding=exact)


def reshape_operand(operand: Operand, shape: tuple[int, int, int]) -> Operand:
    """A dense operand under another shape."""
    view = operand.view.reshape(shape)
    if view is None:
        raise LoweringError(f"the bytes of {operand.view} are not dense: they cannot be read as {shape}")
    return replace(operand, view=view)
