"""In no window of time do the operations inside it need more of a memory than the window's length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.time_cells import GOLDEN, around, measured
from npu_memplan import compiler
from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.ethosu.stream.decode import Command, Wait, decode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.ethosu.time import JUDGED, Direction, Memory, MemoryMap, estimate
from npu_memplan.ethosu.time.timeline import timeline
from npu_memplan.options import CompileOptions
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela.worker import VelaError
from tests.support.hand_made import STOP, conv, dma, elementwise, view
from tests.support.real_data import shared_folder
from tests.support.windows import excess_cycles

ROUNDING = 1e-6
SRAM = Memory("sram", 0, 1.0, Direction(32), Direction(32))
FLASH = Memory("flash", 1, 0.125, Direction(64), Direction(0))
WHERE = MemoryMap({0: FLASH, 1: SRAM}, FLASH)
COPIED = 8592


def rounds(copies: bool) -> Iterator[Command]:
    """Two kernels that read flash in place, a copy beside them, and a kernel that reads SRAM only."""
    shape = (8, 8, 16)
    in_place = conv(
        view("IFM", 0, shape), view("OFM", 4096, shape), depth=16, kernel=(3, 3), weights=(0, 0, COPIED)
    ).with_registers({Register.IFM_PAD_TOP: 1, Register.IFM_PAD_LEFT: 1, Register.BLOCKDEP: 3})
    near = in_place.with_registers({Register.WEIGHT_REGION: 1, Register.SCALE_REGION: 1, Register.BLOCKDEP: 0})
    for _ in range(8):
        yield from (in_place, in_place)
        if copies:
            yield from (dma((0, 65536), (1, 16384), COPIED), Wait(Op.DMA_WAIT, 0))
        yield from (near, Wait(Op.KERNEL_WAIT, 0))
    yield STOP


def test_a_copy_beside_kernels_that_read_the_same_memory_is_not_free() -> None:
    """8 copies of 8,592 bytes at a byte a cycle."""
    npu = accelerator("ethos-u55-256")
    with_copies, without = (estimate(tuple(rounds(copies)), npu, WHERE).total for copies in (True, False))
    assert with_copies - without >= 60_000
    assert with_copies >= 8 * 3 * COPIED


def drawn(draw: Random) -> Iterator[Command]:
    for _ in range(draw.randint(2, 40)):
        size = (draw.randint(1, 12), draw.randint(1, 12), 16 * draw.randint(1, 4))
        blockdep = {Register.BLOCKDEP: draw.randrange(4)}
        match draw.randrange(5):
            case 0 | 1:
                weights = (draw.randrange(2), 0, 16 * draw.randint(1, 500))
                kernel = (draw.randint(1, 3), draw.randint(1, 3))
                made = conv(
                    view("IFM", 0, size), view("OFM", 4096, size), depth=size[2], kernel=kernel, weights=weights
                )
                yield made.with_registers(blockdep)
            case 2:
                made = elementwise(view("IFM", 0, size), view("OFM", 4096, size), view("IFM2", 8192, size))
                yield made.with_registers(blockdep)
            case 3:
                yield dma((draw.randrange(2), 65536), (1, 16384), 16 * draw.randint(1, 600))
            case _:
                yield Wait(draw.choice((Op.DMA_WAIT, Op.KERNEL_WAIT)), draw.randrange(2))
    yield STOP


@pytest.mark.parametrize("npu", ["u55-256", "u55-32", "u65-512", "u65-256"])
@pytest.mark.parametrize("seed", range(40))
def test_memories_keep_their_rate(npu: str, seed: int) -> None:
    draw = Random(seed)
    latency = [Direction(draw.randrange(200)) for _ in range(4)]
    flash = Memory("flash", 1, draw.choice((0.125, 0.5)), latency[0], latency[1])
    sram = Memory("sram", 0, draw.choice((0.5, 1.0)), latency[2], latency[3])
    line = timeline(tuple(drawn(draw)), accelerator(f"ethos-{npu}"), MemoryMap({0: flash, 1: sram}, flash))
    assert excess_cycles(line.slots) < ROUNDING


def excess(commands: tuple[Command, ...], npu: Architecture, memory_map: MemoryMap) -> dict[str, float]:
    """Of each model that has any."""
    lines = {m.name: timeline(commands, npu, replace(memory_map, assumptions=m)) for m in JUDGED}
    found = {name: excess_cycles(line.slots) for name, line in lines.items()}
    return {name: cycles for name, cycles in found.items() if cycles >= ROUNDING}


@pytest.mark.parametrize(
    ("model", "npu", "kind"),
    [(*key.split("."), "") for key in np.load(GOLDEN / "u55_u65_streams_of_vela_5_0.npz")]
    + [
        (model, f"u85-{macs}", "." + kind[0] if kind else "")
        for model, macs, *kind in (key.split(".") for key in np.load(GOLDEN / "u85_streams_of_vela_5_0.npz"))
    ],
)
def test_measured_streams_keep_the_rate_of_memories(model: str, npu: str, kind: str) -> None:
    target = accelerator(f"ethos-{npu}")
    usual = "Shared_Sram" if npu.startswith("u55") else "Dedicated_Sram"
    memory_map = around(target, kind[1:] if kind.endswith("Sram") or kind.endswith("Only") else usual)
    assert excess(measured(model, target, kind), target, memory_map) == {}


LONG = ("deeplabv3_dm05_uint8",)  # two minutes each; NPU_MEMPLAN_LONG=1 runs them
NETWORKS = sorted(
    path
    for folder in ("models", "zoo")
    for path in shared_folder(folder).glob("*.tflite")
    if path.stem not in LONG or os.environ.get("NPU_MEMPLAN_LONG")
)


LARGE_BYTES = 200_000  # the search in larger ones is the same
NPUS = ("u55-128", "u65-512", "u85-256")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "npu"), [(path, NPUS[i % len(NPUS)]) for i, path in enumerate(NETWORKS)], ids=lambda v: Path(v).stem
)
def test_networks_of_vela_keep_the_rate_of_memories(model: Path, npu: str) -> None:
    options = CompileOptions(accelerator=f"ethos-{npu}").resolve_defaults()
    memory_map = options.memory_map()
    assert memory_map is not None
    try:
        compiled = compile_tflite(model.read_bytes(), VelaOptions(f"ethos-{npu}"), model.stem)
    except VelaError as error:
        pytest.skip(f"Vela refuses it: {error}")
    for call in compiled.parsed.npu_calls:
        commands = tuple(decode(call.words, call.accelerator.language))
        assert excess(commands, call.accelerator, memory_map) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [path for path in NETWORKS[:12] if path.stat().st_size < LARGE_BYTES], ids=lambda path: path.stem
)
def test_default_programs_keep_the_rate_of_memories(model: Path) -> None:
    """The search looks for copies that cost nothing."""
    options = CompileOptions(accelerator="ethos-u55-256", effort="quick").resolve_defaults()
    memory_map = options.memory_map()
    assert memory_map is not None
    for launch in compiler.plan_model(model, options).sources.launches.values():
        assert excess(tuple(launch.commands), launch.accelerator, memory_map) == {}
