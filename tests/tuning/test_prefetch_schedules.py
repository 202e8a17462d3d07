"""The parts that choose copies: who reads what, free bytes over time, slices, constants that nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fvp_runner.npu_model.arithmetic import weights
from fvp_runner.npu_model.arithmetic.weights import WeightOrder
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.access import Kernel
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram
from npu_memplan.ethosu.schedule.blocks import places
from npu_memplan.ethosu.schedule.constants import (
    Slicer,
    Slices,
    compact,
    constant_blocks,
    in_place,
    loaded_early,
    loaded_table,
    read_table,
)
from npu_memplan.ethosu.schedule.prefetch.copies import Copy, insert
from npu_memplan.ethosu.schedule.prefetch.timed_program import DemandCache, TimedProgram
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace, apply
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.ethosu.time.memory import Direction
from npu_memplan.extract.program import Fixed
from npu_memplan.stages import Planned
from npu_memplan.tuning.ranking import npu_calls


def only_program(planned: Planned) -> tuple[NpuProgram, bytes]:
    (call,) = npu_calls(planned.extracted.program)
    (data,) = (a.expr.value.numpy().tobytes() for a in call.invoke.arguments if isinstance(a, Fixed))
    return call.program, data


@lru_cache(2)
def timed_program_of(made: Planned, fast_flash: bool = False) -> TimedProgram:
    """`fast_flash`: constants are read sooner in place than from a copy in SRAM, which maps keep busy."""
    (call,) = npu_calls(made.extracted.program)
    program = in_place(call.program)
    memory_map = made.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    if fast_flash:
        flash = replace(memory_map.regions[0], clock_scale=1.0, read=Direction(0))
        memory_map = replace(memory_map, regions={**memory_map.regions, 0: flash})
    return TimedProgram(
        program, constant_blocks(program), places(program, memory_map), DemandCache(program.accelerator, memory_map), 1
    )


def read_of(program: NpuProgram, data: bytes) -> list[list[bytes]]:
    """The constants that each operation gets through each of its registers, copies looked through."""
    constants = {b.name for b in program.buffers if b.role is BufferRole.CONSTANTS}
    memory = {b.name: bytearray(b.size_bytes) for b in program.buffers if b.role is BufferRole.WEIGHTS}
    found = []
    for index, operation in enumerate(program.operations):
        if operation.op is Op.DMA_START:
            (source, start), (target, to) = (operation.addresses[r] for r in (Register.DMA0_SRC, Register.DMA0_DST))
            if source in constants and target in memory:
                length = operation.registers[Register.DMA0_LEN]
                memory[target][to : to + length] = data[start : start + length]
                continue
        holders = {**dict.fromkeys(constants, data), **memory}
        read = [(n, spans) for n, spans, writes in program.accesses(index) if n in holders and not writes]
        ranges = [(n, a, b) for n, spans in read for a, b in spans]
        found.append([bytes(holders[n][a:b]) for n, a, b in ranges])
    return found


def test_kernels_read_in_place_what_was_copied(planned: Callable[..., Planned]) -> None:
    program, data = only_program(planned("kws_ref_model", "vela"))
    without = in_place(program)
    assert any(b.role is BufferRole.WEIGHTS for b in program.buffers)
    assert not any(b.role is BufferRole.WEIGHTS for b in without.buffers)
    assert len(without.operations) < len(program.operations)
    assert read_of(without, data) == read_of(program, data)
    found = constant_blocks(without)
    assert {i for constant in found for i in constant.readers} == {
        i for i, o in enumerate(without.operations) if o.op in (Op.CONV, Op.DEPTHWISE)
    } | set(operands_in(without, BufferRole.CONSTANTS))


def operands_in(program: NpuProgram, role: BufferRole) -> list[int]:
    """Operations whose second operand lies in a buffer of that role."""
    holders = {b.name for b in program.buffers if b.role is role}
    operands = [operation.addresses.get(Register.IFM2_BASE0, ("", 0))[0] for operation in program.operations]
    return [index for index, name in enumerate(operands) if name in holders]


@pytest.mark.parametrize("npu_compiler", ["vela", "tvm"])
def test_small_operands_are_copied_together_and_read_in_place_again(
    planned: Callable[..., Planned], npu_compiler: str
) -> None:
    timed = timed_program_of(planned("kws_ref_model", npu_compiler))
    plain = timed.program
    readers = operands_in(plain, BufferRole.CONSTANTS)
    found = [k for k, constant in enumerate(timed.constants) if set(constant.readers) & set(readers)]
    assert sorted(i for k in found for i in timed.constants[k].readers) == readers
    if npu_compiler == "tvm":  # the numbers of softmax lie side by side
        assert [len(timed.constants[k].spans) for k in found] == [1]
    made, _ = insert(timed, tuple(Copy(k, 0, 0) for k in found), 1, reblocked=False)
    assert not operands_in(made, BufferRole.CONSTANTS)
    assert operands_in(made, BufferRole.WEIGHTS) == [reader + len(found) for reader in readers]
    assert in_place(made).operations == plain.operations


def matrices(program: NpuProgram, data: bytes) -> list[NDArray[np.int16]]:
    """The weights of each convolution as the NPU model arranges them: [height, width, inputs, outputs]."""
    found = []
    for index, operation in enumerate(program.operations):
        if operation.op is Op.CONV:
            registers, kernel = operation.registers, Kernel.from_registers(program.at_zero(index))
            order = WeightOrder(
                (kernel.height - 1) // kernel.dilation_y + 1, (kernel.width - 1) // kernel.dilation_x + 1,
                kernel.dilation_y, kernel.dilation_x, registers[Register.IFM_DEPTH_M1] + 1,
                registers[Register.OFM_DEPTH_M1] + 1, registers[Register.OFM_BLK_DEPTH_M1] + 1,
                8, kernel.part_kernel_first, False, program.accelerator.ofm_micro.depth,
                16 if kernel.part_kernel_first else 32,
            )  # fmt: skip
            at = operation.addresses[Register.WEIGHT_BASE][1]
            stream = weights.decode_mlw(data[at : at + registers[Register.WEIGHT_LENGTH]])
            found.append(order.arrange_weights([stream], str(index)))
    return found


@pytest.mark.parametrize("npu_compiler", ["vela", "tvm"])
@pytest.mark.parametrize("most_bytes", [4096, 1024])
def test_slices_have_the_weights_and_scales_of_the_whole(
    planned: Callable[..., Planned], npu_compiler: str, most_bytes: int
) -> None:
    """Slices of whole blocks, and slices lower than a block (all that 1,024 bytes ask for)."""
    program, data = only_program(planned("pretrainedResnet_quant", npu_compiler))
    program = in_place(program)
    slices = Slices(data)
    slicer = Slicer(program, slices)
    cut = slicer.slice_convolutions(most_bytes)
    assert cut is not None
    left, kept = compact(cut, slices.all)
    assert len(kept) < 1.2 * len(data)  # what was encoded anew replaces what was there
    assert len(left.operations) > len(program.operations)
    slices = iter(matrices(left, kept))
    for whole in matrices(program, data):
        parts = [next(slices)]
        while sum(part.shape[3] for part in parts) < whole.shape[3]:
            parts.append(next(slices))
        assert np.array_equal(np.concatenate(parts, axis=3), whole)
    scales = []
    for one, bytes_ in ((program, data), (left, kept)):
        table = b""
        for o in one.operations:
            if o.op is Op.CONV:
                at, channels = o.addresses[Register.SCALE_BASE][1], o.registers[Register.OFM_DEPTH_M1] + 1
                table += bytes_[at : at + 10 * channels]
        scales.append(table)
    assert scales[0] == scales[1]


def test_stripes_share_the_slices_of_their_weights(planned: Callable[..., Planned]) -> None:
    program, data = only_program(planned("pretrainedResnet_quant", "tvm"))
    groups = CascadeSpace(program)
    assert Slicer(program, Slices(data)).slice_convolutions(4096) is not None
    striped = apply(program, [groups.even(chain, 2) for chain in (groups.chains.chain(i, i) for i in (1, 2)) if chain])
    assert len(striped.operations) > len(program.operations) + 20
    slices = Slices(data)
    cut = Slicer(striped, slices).slice_convolutions(2048)
    assert cut is not None
    assert len(cut.operations) > len(striped.operations)
    made = bytes(slices.extended)
    assert Slicer(program, slices).slice_convolutions(2048) is not None
    assert made == slices.extended  # every slice is there once, however many stripes and programs read it
    alone = Slices(data)
    Slicer(program, alone).slice_convolutions(2048)
    assert made == alone.extended


def tables_read(program: NpuProgram) -> list[list[tuple[object, int]]]:
    """Of each kernel: which bytes of which constants it finds in the table that it reads."""
    there: dict[int, tuple[object, int]] = {}
    found = []
    for operation in program.operations:
        loaded, read = loaded_table(program, operation), read_table(operation)
        if loaded is not None:
            name, start = operation.addresses[Register.DMA0_SRC]
            there |= {at: (name, start + k) for k, at in enumerate(loaded)}
        if operation.op is not Op.DMA_START:
            found.append([there[at] for at in read or ()])
    return found


def test_tables_are_loaded_early_and_read_as_before(planned: Callable[..., Planned]) -> None:
    program, _ = only_program(planned("kws_ref_model", "tvm"))
    (late,) = (i for i, o in enumerate(program.operations) if loaded_table(program, o) is not None)
    other = replace(program.operations[late], addresses={**program.operations[late].addresses, Register.DMA0_SRC: (
        program.operations[late].addresses[Register.DMA0_SRC][0], 16)})  # fmt: skip
    reader = next(i for i, o in enumerate(program.operations) if read_table(o) is not None)
    operations = program.operations
    # another table in the same bytes, after the last kernel that reads the first one
    twice = replace(program, operations=(*operations, other, operations[reader]))
    assert loaded_early(program).operations[late - 4] == operations[late]
    early = loaded_early(twice)
    assert tables_read(early) == tables_read(twice)
    assert early.operations.index(other) < twice.operations.index(other)
    assert loaded_early(replace(program, accelerator=accelerator("ethos-u55-32"))).operations == operations
