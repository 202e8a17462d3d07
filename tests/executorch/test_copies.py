"""Weights of native delegates copied to the scratch while the DMA port is idle: fewer cycles within the same limits."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.time import cycles_by_model
from npu_memplan.executorch.board import memories_for
from npu_memplan.executorch.memory_map import LiftedCall
from npu_memplan.executorch.replanning import ScratchError, ScratchGoal, replan_call
from npu_memplan.executorch_lowering.native import delegate_program, native_calls
from npu_memplan.executorch_lowering.partitioner import plan_blocks
from npu_memplan.models.executorch.delegates import EthosUCall, npu_calls
from tests.executorch.test_native import SPECS, vela_blocks
from tests.support.tosa_graphs import TosaFile


@functools.cache
def graph() -> bytes:
    """Much arithmetic with few weights, and much weight with little arithmetic behind it."""
    rng, file = np.random.default_rng(6), TosaFile()

    def convolution(x: str, made: tuple[int, ...], channels: int, stride: int) -> str:
        weights = file.constant(rng.integers(-90, 90, (made[3], 3, 3, channels)), "int8")
        zeros = file.constant([0], "int8"), file.constant([0], "int8")
        window = {0: (0 if stride > 1 else 1, 1) * 2, 1: (stride, stride), 2: (1, 1), 4: 5}
        bias = file.constant(rng.integers(-900, 900, made[3]), "int32")
        sums = file.operator("CONV2D", [x, weights, bias, *zeros], made, "int32", window)
        return file.rescale(sums, made, [(1 << 30, 41)], (0, 0))

    x = convolution(file.input(1, 32, 32, 16), (1, 32, 32, 16), 16, 1)
    x = convolution(x, (1, 16, 16, 32), 16, 2)
    x = convolution(x, (1, 8, 8, 64), 32, 2)
    return file.finish(convolution(x, (1, 8, 8, 64), 64, 1))


def _vela(flags: bytes = SPECS["compile_flags"]) -> EthosUCall:
    return npu_calls(delegate_program(vela_blocks(graph()), {"compile_flags": flags}))[0]


def _copies(call: LiftedCall) -> int:
    return sum(buffer.role is BufferRole.WEIGHTS for buffer in call.program.buffers)


def _figures(data: bytes) -> tuple[int, int]:
    """Cycles of the timing model with the most, and bytes of scratch."""
    one = npu_calls(delegate_program(data, SPECS))[0]
    stream = decode(one.call.words, one.call.accelerator.language), one.call.accelerator
    return max(cycles_by_model([stream], memories_for(one, {})).values()), one.blocks.scratch_bytes


@pytest.mark.parametrize("goal", [ScratchGoal(), ScratchGoal("cycles"), ScratchGoal("bytes")])
def test_copies_take_fewer_cycles_in_no_more_bytes(goal: ScratchGoal) -> None:
    vela, least = _vela(), {True: [], False: []}  # type: dict[bool, list[tuple[int, int]]]
    for call in native_calls(graph(), vela, goal):
        made = replan_call(call, goal, apart=True)
        least[call.limit_bytes > 0].append(_figures(made.data or bytes(made.delegate.data)))
        assert not call.limit_bytes or (_copies(call) and made.scratch_bytes <= call.limit_bytes)
    without, copied = min(least[False]), min(least[True], default=(0, 0))
    if goal.objective == "bytes":
        assert copied[1] <= without[1]
    else:
        assert copied[0] < without[0]
        assert copied[1] <= vela.blocks.scratch_bytes


def test_what_is_taken_has_copies_and_the_outputs_of_vela() -> None:
    plain = [one for one in native_calls(graph(), _vela(), ScratchGoal()) if not one.limit_bytes]
    made = [replan_call(one, ScratchGoal(), apart=True) for one in plain]
    ours = plan_blocks(vela_blocks(graph()), SPECS, ScratchGoal(), "tvm", graph())  # which compares outputs
    assert _figures(ours)[0] < min(_figures(one.data or bytes(one.delegate.data))[0] for one in made)


def test_a_pool_bounds_copies() -> None:
    goal = ScratchGoal(pool_bytes=45_000)
    found = [one for one in native_calls(graph(), _vela(), goal) if one.limit_bytes]
    assert found
    assert all(replan_call(one, goal, apart=True).scratch_bytes <= 45_000 for one in found)


def test_constants_in_the_memory_of_the_scratch_stay() -> None:
    vela = _vela(b"--accelerator-config=ethos-u55-128 --memory-mode=Sram_Only")
    assert not any(one.limit_bytes for one in native_calls(graph(), vela, ScratchGoal()))


def test_a_limit_that_nothing_fits_is_an_error() -> None:
    call = replace(native_calls(graph(), _vela(), ScratchGoal())[0], limit_bytes=16)
    with pytest.raises(ScratchError, match="no plan within 16 bytes of scratch"):
        replan_call(call, ScratchGoal(), apart=True)
