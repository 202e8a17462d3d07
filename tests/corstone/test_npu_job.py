"""Jobs on memory of their own: what the NPU reaches, what it leaves, and what is a fault."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fvp_runner.emulators.job import JobRunner
from fvp_runner.npu_model.model import NpuModel
from fvp_runner.register_page import Job, Status
from npu_memplan.models.tflite import read_network
from npu_memplan.models.vela import NpuCall
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.real_data import Models

BASE, SIZE = 0x60000000, 1 << 20
CONSTANTS, ARENA, STREAM = BASE + 0x10000, BASE + 0x40000, BASE + 0x1000


class Flat:
    """One megabyte of memory; counts what is fetched."""

    def __init__(self) -> None:
        self.data = np.zeros(SIZE, np.uint8)
        self.fetched: list[tuple[int, int]] = []
        self.commits = 0

    def can_access(self, address: int, size_bytes: int) -> bool:
        return address >= BASE and address + size_bytes <= BASE + SIZE

    def fetch_bytes(self, address: int, size_bytes: int) -> Any:
        self.fetched.append((address, size_bytes))
        return self.data[address - BASE : address - BASE + size_bytes]

    def commit_writes(self) -> None:
        self.commits += 1

    def put(self, address: int, data: Any) -> None:
        self.data[address - BASE : address - BASE + data.nbytes] = data.view(np.uint8)


@pytest.fixture(scope="module")
def call(shared_model: Models) -> NpuCall:
    model = shared_model("kws_ref_model").read_bytes()
    (found,) = read_network(compile_tflite(model, VelaOptions(memory_mode="Shared_Sram")).network).operators
    assert isinstance(found, NpuCall)
    return found


def loaded(call: NpuCall) -> Flat:
    memory = Flat()
    memory.put(STREAM, np.asarray(call.words, np.uint32))
    memory.put(CONSTANTS, call.read_only)
    memory.put(ARENA, np.random.default_rng(5).integers(0, 256, call.scratch_bytes, np.uint8))
    return memory


def job(call: NpuCall, **changes: Any) -> Job:
    bases = (CONSTANTS, ARENA, ARENA, 0, 0, 0, 0, 0)
    return Job(**{"queue_base": STREAM, "queue_bytes": 4 * len(call.words), "bases": bases, **changes})


def test_without_any_knowledge_of_objects_the_bytes_are_the_models(call: NpuCall) -> None:
    memory = loaded(call)
    arena = memory.data[ARENA - BASE :][: call.scratch_bytes].copy()
    NpuModel(call.accelerator).run(call.words, [call.read_only, arena, arena])
    before = memory.data.copy()
    outcome = JobRunner(NpuModel(call.accelerator), memory, {}).run(job(call))
    assert (outcome.faults, outcome.message) == (Status(0), "")
    assert outcome.read_bytes == 4 * len(call.words)
    np.testing.assert_array_equal(memory.data[ARENA - BASE :][: call.scratch_bytes], arena)
    before[ARENA - BASE :][: call.scratch_bytes] = arena
    np.testing.assert_array_equal(memory.data, before, "nothing else was touched")
    assert memory.commits == 1
    assert len(memory.fetched) == 3, "stream, constants, and the arena once although two regions name it"


@pytest.mark.parametrize("changes, fault, message", [
    ({"queue_base": STREAM + 4}, Status.PARSE_ERROR, "not whole words at a 16-byte boundary"),
    ({"queue_bytes": 0}, Status.PARSE_ERROR, "not whole words at a 16-byte boundary"),
    ({"queue_base": BASE + SIZE}, Status.BUS_ERROR, "command stream at 0x60100000: .* cannot be reached"),
    ({"queue_base": ARENA}, Status.PARSE_ERROR, "."),
    ({"bases": (0, ARENA, ARENA, 0, 0, 0, 0, 0)}, Status.BUS_ERROR, "cannot reach: region 0 is .* at 0x00000000"),
    ({"bases": (CONSTANTS, BASE + SIZE - 16, ARENA, 0, 0, 0, 0, 0)}, Status.BUS_ERROR, "region 1 is .* at 0x600ffff0"),
])  # fmt: skip
def test_what_cannot_work_is_a_fault_with_a_reason(
    call: NpuCall, changes: dict[str, Any], fault: Status, message: str
) -> None:
    memory = loaded(call)
    before = memory.data.copy()
    outcome = JobRunner(NpuModel(call.accelerator), memory, {}).run(job(call, **changes))
    assert outcome.faults == fault
    assert re.search(message, outcome.message)
    np.testing.assert_array_equal(memory.data, before)


def test_a_known_object_bounds_its_region(call: NpuCall) -> None:
    outcome = JobRunner(NpuModel(call.accelerator), loaded(call), {ARENA: 1024}).run(job(call))
    assert outcome.faults == Status.BUS_ERROR
    assert "1 which has only 0x400" in outcome.message.replace("region ", "").replace(",", "")


def test_damaged_weights_are_a_fault_of_the_decoder(call: NpuCall) -> None:
    memory = loaded(call)
    memory.put(CONSTANTS, np.full(call.read_only.size, 0x5A, np.uint8))
    outcome = JobRunner(NpuModel(call.accelerator), memory, {}).run(job(call))
    assert outcome.faults == Status.WEIGHT_FAULT
    assert outcome.message
