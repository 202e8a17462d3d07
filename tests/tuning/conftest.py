"""Programs of the models that come with the tests, planned in memory, and their streams on the NPU model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.npu_model.model import NpuModel
from npu_memplan import pipeline
from npu_memplan.codegen.program import read_program
from npu_memplan.ethosu.stream.decode import Command
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.options import CompileOptions
from npu_memplan.request import request
from npu_memplan.stages import Compiled, Planned
from npu_memplan.tuning.tune import prefetch_weights

MODELS = Path(__file__).resolve().parents[1] / "models"


@lru_cache(8)
def planned_model(name: str, npu_compiler: str, sram_bytes: int | None) -> Planned:
    """A model of tests/models before anything travels."""
    pools = {} if sram_bytes is None else {"sram": sram_bytes}
    options = CompileOptions(npu_compiler=npu_compiler, pools=pools, objective="cycles")
    loaded = pipeline.lower(pipeline.read(MODELS / f"{name}.tflite", request(options)))
    return pipeline.plan(pipeline.extract_problem(loaded))


@lru_cache(8)
def prefetched_model(name: str, npu_compiler: str, sram_bytes: int | None) -> Planned:
    """The same with the copies that are found for it."""
    return prefetch_weights(planned_model(name, npu_compiler, sram_bytes))


@pytest.fixture
def planned() -> Callable[..., Planned]:
    """`planned("kws_ref_model", "vela", 22192)`."""
    return lambda name, npu_compiler="vela", sram_bytes=None: planned_model(name, npu_compiler, sram_bytes)


@pytest.fixture
def prefetched() -> Callable[..., Planned]:
    """`prefetched("kws_ref_model", "vela", 22192)`, searched once for all tests of a process."""
    return prefetched_model


@dataclass(frozen=True)
class Stream:
    """The only NPU call of a compiled model, to be run on memory of its own."""

    compiled: Compiled

    @property
    def commands(self) -> tuple[Command, ...]:
        (launch,) = self.compiled.sources.launches.values()
        return launch.commands

    def run(self, commands: tuple[Command, ...], seed: int = 0, checks: bool = True, fuzz: int = 0) -> bytes:
        """The bytes of the output."""
        artifact = self.compiled.artifact
        (launch,) = self.compiled.sources.launches.values()
        constants = read_program(self.compiled.module).constants[0].copy()
        memory = np.full(artifact.pool_bytes("sram"), 0xA5, np.uint8)
        defined = np.zeros(len(memory), bool)
        rng = np.random.default_rng(seed)
        for slot in artifact.inputs:
            at = slice(slot.offset_bytes, slot.offset_bytes + slot.size_bytes)
            memory[at], defined[at] = rng.integers(0, 256, slot.size_bytes), True
        model = NpuModel(launch.accelerator, checks=checks)
        regions, known = [constants, memory], [np.ones(len(constants), bool), defined]
        if fuzz:
            model.fuzz_schedule(encode(commands), regions, fuzz, known)
        else:
            model.run(encode(commands), regions, known)
        (output,) = artifact.outputs
        return memory[output.offset_bytes : output.offset_bytes + output.size_bytes].tobytes()


@pytest.fixture
def stream() -> Callable[[Planned], Stream]:
    return lambda planned: Stream(pipeline.build(planned))


@pytest.fixture
def bytes_only() -> Callable[[Planned], Planned]:
    """The same, requested the least memory."""

    def changed(planned: Planned) -> Planned:
        loaded = planned.extracted.loaded
        options = replace(loaded.request.options, objective="bytes")
        loaded = replace(loaded, request=replace(loaded.request, options=options))
        return replace(planned, extracted=replace(planned.extracted, loaded=loaded))

    return changed
