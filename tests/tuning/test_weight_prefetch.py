"""Constants travel when the port is idle: the same results in the same bytes in less time, and waits that matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fvp_runner.npu_model.errors import NpuModelError
from npu_memplan import pipeline
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.decode import Wait
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.ethosu.time.timeline import timeline
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError
from npu_memplan.request import Loaded, request
from npu_memplan.stages import Planned
from npu_memplan.tuning.ranking import ModelCache, Ranking
from npu_memplan.tuning.selection import select_fastest
from npu_memplan.tuning.tune import prefetch_weights
from npu_memplan.tuning.weight_prefetch import search_prefetching
from npu_memplan.verify import verify
from tests.support.windows import excess_cycles
from tests.tuning.conftest import MODELS


def cycles(planned: Planned) -> int:
    memory_map = planned.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    return Ranking(memory_map)(planned)[0]


@pytest.mark.parametrize(
    ("name", "npu_compiler", "sram_bytes", "at_most"),
    [
        ("kws_ref_model", "vela", None, 0.77),
        ("kws_ref_model", "vela", 22192, 0.75),
        ("kws_ref_model", "tvm", 22192, 0.75),
        ("pretrainedResnet_quant", "vela", None, 0.95),
        ("pretrainedResnet_quant", "tvm", 51840, 0.76),  # 0.77 around maps that stay where they are,
    ],
)
def test_less_time_in_the_same_bytes_and_the_same_results(
    planned: Callable[..., Planned],
    prefetched: Callable[..., Planned],
    stream: Callable[[Planned], Any],
    name: str,
    npu_compiler: str,
    sram_bytes: int | None,
    at_most: float,
) -> None:
    before = planned(name, npu_compiler, sram_bytes)
    after = prefetched(name, npu_compiler, sram_bytes)
    limit = sram_bytes or before.plan.usage[0].used_bytes
    assert after.plan.usage[0].used_bytes <= limit
    assert verify(after.extracted.problem, after.plan) == ()
    assert cycles(after) <= at_most * cycles(before)
    old, new = stream(before), stream(after)
    assert new.compiled.artifact.estimated_cycles == cycles(after)  # what is weighed is what is printed
    assert new.run(new.commands, fuzz=4) == old.run(old.commands)


def test_what_is_weighed_before_it_is_made_is_what_is_made(planned: Callable[..., Planned]) -> None:
    before = planned("kws_ref_model", "tvm", 22192)
    memory_map = before.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    weighed = Ranking(memory_map)
    after = search_prefetching(before, weighed)
    assert after is not before
    assert weighed(after) == Ranking(memory_map)(after)


def test_who_asks_for_bytes_gets_what_was_planned(
    planned: Callable[..., Planned], bytes_only: Callable[[Planned], Planned]
) -> None:
    before = bytes_only(planned("kws_ref_model"))
    assert prefetch_weights(before) is before


def test_constants_that_lie_in_the_same_memory_stay(stream: Callable[[Planned], Any]) -> None:
    from npu_memplan.options import CompileOptions
    from npu_memplan.request import request

    from .conftest import MODELS

    options = CompileOptions(memory_mode="Sram_Only", npu_compiler="tvm", objective="cycles")
    loaded = pipeline.lower(pipeline.read(MODELS / "hello_world_int8.tflite", request(options)))
    before = pipeline.plan(pipeline.extract_problem(loaded))
    assert prefetch_weights(before) is before


@pytest.mark.parametrize(("npu_compiler", "pool_bytes"), [("vela", 21_000), ("tvm", 20_000)])
def test_no_wait_around_copies_can_be_left_out(
    planned: Callable[..., Planned], stream: Callable[[Planned], Any], npu_compiler: str, pool_bytes: int
) -> None:
    """A kernel that reads a copy before it has arrived, a transfer over bytes that a kernel still reads."""
    made = stream(prefetch_weights(planned("kws_ref_model", npu_compiler, pool_bytes)))
    commands = made.commands
    waits = [i for i, command in enumerate(commands) if isinstance(command, Wait)]
    assert {commands[i].op for i in waits} == {Op.DMA_WAIT, Op.KERNEL_WAIT}
    shown = set()
    for i in waits[:12]:
        broken = (*commands[:i], *commands[i + 1 :])
        with pytest.raises(NpuModelError):
            made.run(broken)
        try:
            made.run(broken, checks=False, fuzz=6)
        except NpuModelError:  # and in another order of completion other bytes, or no weights at all, are read
            shown.add(commands[i].op)
    assert shown == {Op.DMA_WAIT, Op.KERNEL_WAIT}


def test_a_lowering_that_may_not_win_is_made_once_and_not_looked_into() -> None:
    """Native lowering leaves the LSTM to the CPU, which takes longer there than the whole of Vela's program."""
    requested = CompileOptions(
        "ethos-u55-256", npu_compiler="auto", memory_mode="Shared_Sram", pools={"sram": 100_000}
    ).resolve_defaults()
    memory_map = requested.memory_map()
    lowered: list[str] = []
    assert memory_map is not None

    def load(options: CompileOptions) -> Loaded:
        lowered.append(options.npu_compiler)
        return pipeline.lower(pipeline.read(MODELS / "trained_lstm_int8.tflite", request(options)))

    select_fastest(requested, memory_map, ModelCache(load, requested.pools))
    assert lowered == ["vela", "tvm"]


def test_a_stream_whose_own_copies_do_not_fit_is_read_in_place(stream: Callable[[Planned], Any]) -> None:
    """Vela's for Size would fit; this one is for its Performance's arena."""
    requested = CompileOptions("ethos-u65-512", npu_compiler="vela", memory_mode="Shared_Sram", objective="bytes")
    small, large = (replace(requested, pools={"sram": size}).resolve_defaults() for size in (5968, 7120))
    memory_map = small.memory_map()
    assert memory_map is not None

    def load(options: CompileOptions) -> Loaded:
        return pipeline.lower(pipeline.read(MODELS / "micro_speech_quantized.tflite", request(options)))

    with pytest.raises(PlanningError):
        pipeline.plan(pipeline.extract_problem(load(small)))
    best = select_fastest(small, memory_map, ModelCache(load, small.pools))
    assert verify(best.extracted.problem, best.plan) == ()
    old, new = stream(pipeline.plan(pipeline.extract_problem(load(large)))), stream(best)
    assert new.run(new.commands, fuzz=4) == old.run(old.commands)


@pytest.mark.parametrize("npu_compiler", ["vela", "tvm"])
@pytest.mark.parametrize(("name", "pool_bytes"), [("kws_ref_model", 22192), ("pretrainedResnet_quant", 51840)])
def test_memories_keep_their_rate_beside_copies(
    prefetched: Callable[..., Planned], stream: Callable[[Planned], Any], name: str, pool_bytes: int, npu_compiler: str
) -> None:
    """The search looks for copies that cost nothing: it finds what the clock forgets to count."""
    hastened = prefetched(name, npu_compiler, pool_bytes)
    memory_map = hastened.extracted.loaded.request.options.resolve_defaults().memory_map()
    timed = timeline(stream(hastened).commands, accelerator("ethos-u55-256"), memory_map)
    assert any(slot.resource_use.is_transfer for slot in timed.slots)
    assert excess_cycles(timed.slots) < 1e-6
