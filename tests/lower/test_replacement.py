"""Maps that are in slower memory between two uses: the same results, fewer bytes, and a transfer left out is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fvp_runner.npu_model.errors import UninitialisedReadError
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.program import NpuProgram
from npu_memplan.ethosu.schedule.replacement import absences, chosen, live_bytes, move_maps_away
from npu_memplan.ethosu.stream.isa import Op, Register
from tests.support.chains import Chain, planned_alone, run_at
from tests.support.on_model import random_inputs, run_program

NPUS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256", "ethos-u85-2048")
SLOW = 1


def around(seed: int) -> LayerGraph:
    """Two maps that are read at once and far behind, the second inside the absence of the first."""
    chain = Chain(seed, (8, 8, 16))
    outer = chain.conv(32, 3, 1)
    chain.conv(16, 1, 1)
    inner = chain.conv(16, 3, 1)
    for _ in range(6):
        chain.conv(48, 1, 1)
    chain.conv(16, 1, 1)
    chain.add(inner)
    chain.conv(32, 1, 1)
    chain.add(outer)
    return chain.graph()


def program_with_absence(npu: str, seed: int, limit_bytes: int = 0) -> tuple[LayerGraph, Lowered, NpuProgram]:
    graph = around(seed)
    lowered = lower(graph, accelerator(npu))
    return graph, lowered, move_maps_away(lowered.program, chosen(lowered.program, limit_bytes), SLOW)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("npu", NPUS)
def test_results_are_the_same(npu: str, seed: int) -> None:
    graph, lowered, program = program_with_absence(npu, seed)
    assert sum(b.name.endswith("_away") for b in program.buffers) == 2
    assert sum(o.op is Op.DMA_START for o in program.operations) == 4
    inputs = random_inputs(graph, seed)
    offsets, _ = planned_alone(program)
    expected = run_program(lowered, inputs)
    for ours, theirs in zip(run_at(program, lowered.constants, offsets, inputs), expected, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("left_out", range(4))
def test_a_transfer_left_out_is_found(left_out: int) -> None:
    graph, lowered, program = program_with_absence("ethos-u65-512", 1)
    transfers = [i for i, o in enumerate(program.operations) if o.op is Op.DMA_START]
    kept = tuple(o for i, o in enumerate(program.operations) if i != transfers[left_out])
    with pytest.raises(UninitialisedReadError):
        run_program(replace(lowered, program=replace(program, operations=kept)), random_inputs(graph, 1))


def test_no_more_maps_are_away_than_a_limit_needs() -> None:
    program = lower(around(0), accelerator("ethos-u85-256")).program
    whole = max(live_bytes(program))
    assert chosen(program, whole) == ()
    (largest,) = chosen(program, whole - 1)
    assert largest.buffer.size_bytes == 8 * 8 * 32
    assert max(live_bytes(program, (largest,))) < whole
    assert len(chosen(program, 0)) == len(list(absences(program))) == 2


def test_what_is_written_again_stays() -> None:
    program = lower(around(0), accelerator("ethos-u65-512")).program
    first, second = absences(program)
    operations = list(program.operations)
    writer = operations[first.before]
    addresses = {**writer.addresses, Register.OFM_BASE0: (first.buffer.name, 0)}
    operations[first.before] = replace(writer, addresses=addresses)
    assert list(absences(replace(program, operations=tuple(operations)))) == [second]
