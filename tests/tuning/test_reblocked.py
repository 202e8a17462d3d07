"""Blocks for where kernels stand in a stream: the same program but for them, in fewer cycles under every model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npu_memplan import pipeline
from npu_memplan.ethosu.program.hazards import stream_of
from npu_memplan.ethosu.schedule.prefetch.timed_program import _Stream
from npu_memplan.ethosu.stream.isa import Register
from npu_memplan.ethosu.time.timeline import prepare_steps
from npu_memplan.options import CompileOptions
from npu_memplan.request import request
from npu_memplan.stages import Planned
from npu_memplan.tuning.candidate import ProgramCandidate, cycles_by_model, reblock_worst
from npu_memplan.tuning.ranking import Ranking, npu_calls
from tests.tuning.conftest import MODELS

BLOCKS = {r for r in Register if r.name.startswith("OFM_BLK_")} | {
    *(Register.IFM_IB_END, Register.IFM2_IB_START, Register.AB_START, Register.BLOCKDEP)
}


def ranking(planned: Planned) -> Ranking:
    memory_map = planned.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    return Ranking(memory_map)


@pytest.mark.parametrize(("name", "npu_compiler"), [("pretrainedResnet_quant", "tvm"), ("kws_ref_model", "vela")])
def test_fewer_cycles_under_every_model_and_the_same_results(
    planned: Callable[..., Planned], stream: Callable[[Planned], Any], name: str, npu_compiler: str
) -> None:
    before = planned(name, npu_compiler)
    rank = ranking(before)
    candidate = ProgramCandidate(before, rank(before))
    found = reblock_worst(candidate, rank, cycles_by_model(candidate, rank))
    assert found is not None
    was, now = cycles_by_model(candidate, rank), found.cycles
    assert now < was
    assert all(new <= old for new, old in zip(now, was, strict=True))
    after = found.build(rank)
    assert rank(after) == Ranking(rank.memory_map)(after)
    assert {p.buffer: p.offset_bytes for p in after.plan.placements} == {
        p.buffer: p.offset_bytes for p in before.plan.placements
    }
    (old,), (new,) = (npu_calls(one.extracted.program) for one in (before, after))
    for was_one, is_one in zip(old.program.operations, new.program.operations, strict=True):
        rest = [{r: v for r, v in o.registers.items() if r not in BLOCKS} for o in (was_one, is_one)]
        assert rest[0] == rest[1]
        assert was_one.addresses == is_one.addresses
    first, second = stream(before), stream(after)
    assert second.run(second.commands, fuzz=4) == first.run(first.commands)


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u65-512", "ethos-u85-256"])
def test_what_kernels_wait_for_is_known_while_blocks_are_chosen(npu: str) -> None:
    options = CompileOptions(npu, npu_compiler="tvm", objective="cycles")
    loaded = pipeline.lower(pipeline.read(MODELS / "pretrainedResnet_quant.tflite", request(options)))
    planned = pipeline.plan(pipeline.extract_problem(loaded))
    rank = ranking(planned)
    (call,) = npu_calls(planned.extracted.program)
    place = call.places(planned.extracted.problem, planned.plan).__getitem__
    demand_cache = rank.demand_cache(call.program.accelerator)
    timed = _Stream(call.program, stream_of(call.program, place), demand_cache)
    changes = dict(timed.changes())
    assert changes
    operations = [
        replace(o, registers={**o.registers, **changes.get(i, {})}) for i, o in enumerate(call.program.operations)
    ]
    made = stream_of(replace(call.program, operations=tuple(operations)), place)
    assert [known for _, known in timed._steps] == [
        known for _, known in prepare_steps(made, demand_cache.resource_uses)
    ]
