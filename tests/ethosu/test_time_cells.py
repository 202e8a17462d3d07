"""The estimate, held to counts that others published of Arm's FVPs (docs/time_validation.md has the tables)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.time_cells import HEADINGS, MARK, Cell, cells, grouped, mean, summary
from benchmarks.vela_layers import own_estimate
from npu_memplan.ethosu.arch import Language, accelerator
from npu_memplan.ethosu.program.access import Role
from npu_memplan.ethosu.stream.decode import Command, Operation, decode
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.ethosu.time import Direction, Estimate, MemoryMap, Pulse, estimate, load_system
from npu_memplan.ethosu.time.compute import multiplier_cycles
from npu_memplan.ethosu.time.cost import resource_use
from npu_memplan.ethosu.time.timeline import TimingModel
from npu_memplan.ethosu.time.work import work_of
from npu_memplan.target_data import load_memory_mode
from npu_memplan.vela.compiler import VelaOptions, VelaResult, compile_tflite
from tests.support.needs import need_data
from tests.support.real_data import REPOSITORY, shared_folder
from tests.support.traffic import bytes_of

LIMITS = {  # of all counts of a group
    "ethos-u55 networks": (0.96, 1.03),
    "ethos-u65 networks": (0.95, 1.05),
    "ethos-u55 networks, adapters off": (0.95, 1.061),
    "ethos-u65 networks, adapters off": (0.95, 1.05),
    "ethos-u85 networks": (0.95, 1.09),
    "conv1x1 base": (0.67, 1.25),
    "conv3x3 base": (0.69, 1.14),
    "dw3x3 base": (0.6, 1.24),
}
U55 = VelaOptions("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Shared_Sram")


@pytest.fixture(scope="module")
def fvp() -> Path:
    return need_data(shared_folder("fvp"))


def compiled(fvp: Path, model: str, options: VelaOptions) -> VelaResult:
    return compile_tflite((fvp / "models" / f"{model}.tflite").read_bytes(), options, model)


def timed(network: VelaResult, memory_map: MemoryMap) -> Estimate:
    (call,) = network.parsed.npu_calls
    return estimate(decode(call.words), call.accelerator, memory_map)


def around(system: str, mode: str) -> MemoryMap:
    return load_system(system).memory_map(mode, dict(enumerate(load_memory_mode(mode).pools, start=1)))


@pytest.fixture(scope="module")
def found(fvp: Path) -> list[Cell]:
    return list(cells(fvp))


@pytest.mark.slow
def test_the_page_says_what_every_published_count_comes_to(found: list[Cell]) -> None:
    page = (REPOSITORY / "docs" / "time_validation.md").read_text(encoding="utf-8")
    said = page.partition(MARK)[2].splitlines()
    table = said[said.index(HEADINGS[0]) :]
    assert table[: table.index("")] == summary(found)


@pytest.mark.slow
@pytest.mark.parametrize("group", LIMITS)
def test_every_published_count_is_met(found: list[Cell], group: str) -> None:
    least, most = LIMITS[group]
    ratios = {cell.name: cell.ratio for cell in grouped(found)[group]}
    assert {name: ratio for name, ratio in ratios.items() if not least <= ratio <= most} == {}


@pytest.mark.slow
def test_single_convolutions_are_met_on_average(found: list[Cell]) -> None:
    """Each kind under each condition, by the geometric mean; three in four alone, too."""
    kinds = {name: cells for name, cells in grouped(found).items() if name.startswith(("conv", "dw"))}
    assert len(kinds) == 10
    assert {name: mean(cell.ratio for cell in cells) for name, cells in kinds.items()} == {
        name: pytest.approx(1, abs=0.15) for name in kinds
    }
    ratios = [cell.ratio for cells in kinds.values() for cell in cells]
    assert sum(0.8 <= ratio <= 1.25 for ratio in ratios) >= 0.75 * len(ratios)


@pytest.mark.parametrize(
    ("words", "latency", "published"),
    [(25, 64, 179_059), (50, 64, 105_059), (100, 64, 77_059), (0, 64, 77_059), (50, 16, 103_059), (200, 16, 34_059)],
)
def test_the_flash_sweep_is_followed(fvp: Path, words: int, latency: int, published: int) -> None:
    """rnnoise, one stream, only the external timing adapter changed."""
    base = around("FVP_Ethos_U55_High_End", "Shared_Sram")
    flash = replace(base.stream, read=Direction(latency, 2), pulse=Pulse(320, 80, words))
    total = timed(compiled(fvp, "rnnoise_INT8", U55), MemoryMap({**base.regions, 0: flash}, flash)).total
    assert total == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize(
    ("model", "core", "axi0", "axi1"),
    [
        ("kws_micronet_m", "legacy", (132_130, 48_252), 17_544),
        ("ad_medium_int8", "legacy", (485_194, 138_111), 56_245),
        ("rnnoise_INT8", "regor", (530, 376), 13_911),
    ],
)
def test_beats_by_port_are_those_published(fvp: Path, model: str, core: str, axi0: tuple[int, int], axi1: int) -> None:
    """The evaluation kit's own documents are of an older Vela; the core named makes its streams, or nearly."""
    network = compiled(fvp, model, replace(U55, accelerator="ethos-u55-128", core=core))
    found = timed(network, around("FVP_Ethos_U55_High_End", "Shared_Sram"))
    assert (found.beats(0, False), found.beats(0, True)) == pytest.approx(axi0, rel=0.03)
    assert found.beats(1, False) == pytest.approx(axi1, rel=0.03)


def test_a_placement_in_slower_memory_is_never_faster(fvp: Path) -> None:
    network = compiled(fvp, "kws_micronet_m", U55)
    totals = [
        timed(network, around("Ethos_U55_High_End_Embedded", mode)).total for mode in ("Sram_Only", "Shared_Sram")
    ]
    half = load_system("Ethos_U55_Deep_Embedded").memory_map("Shared_Sram", {1: "sram"})
    assert totals[0] < totals[1] < timed(network, half).total


def test_an_estimate_is_never_below_what_its_memories_need(fvp: Path) -> None:
    for model in ("kws_micronet_m", "ad_medium_int8", "rnnoise_INT8"):
        for system in ("Ethos_U55_High_End_Embedded", "Ethos_U55_Deep_Embedded"):
            memory_map = around(system, "Shared_Sram")
            found = timed(compiled(fvp, model, U55), memory_map)
            for memory in (memory_map.regions[0], memory_map.regions[1]):
                moved = sum(bytes_of(share, memory.name) for share in found.shares)
                assert found.total >= moved / (8 * memory.clock_scale)


U85_SYSTEM = {128: "Low", 256: "Low", 512: "Mid", 1024: "Mid_1024", 2048: "High"}
SWEEP = {  # rnnoise: latency of the external memory -> published cycles
    256: {0: 21_086, 125: 26_086, 250: 36_086, 500: 62_086, 1000: 116_086},
    512: {0: 16_086, 250: 31_086, 500: 55_086, 1000: 101_086, 2000: 197_086},
    1024: {0: 11_086, 250: 28_086, 500: 49_086, 1000: 95_086},
    2048: {0: 11_086, 250: 30_086, 500: 54_086, 1000: 102_086},
}


def measured(model: str, macs: int) -> list[Command]:
    """The stream that was measured, of Vela 5.0.0 (`--optimise Performance`, Arm's vela.ini)."""
    streams = np.load(REPOSITORY / "tests" / "golden" / "u85_streams_of_vela_5_0.npz")
    return decode(tuple(map(int, streams[f"{model}.{macs}"])), Language.U85)


def u85_around(macs: int, latency: int | None = None, write: int | None = None) -> MemoryMap:
    """`latency` of reads from the external memory; writes take half of it where `write` does not say."""
    base = around(f"FVP_Ethos_U85_SYS_DRAM_{U85_SYSTEM[macs]}", "Dedicated_Sram")
    if latency is None:
        return base
    dram, write = base.regions[1], latency // 2 if write is None else write
    slow = replace(dram, read=replace(dram.read, latency=latency), write=replace(dram.write, latency=write))
    return MemoryMap({i: slow if memory == dram else memory for i, memory in base.regions.items()}, slow)


def u85_cells(fvp: Path) -> dict[tuple[str, int], int]:
    rows = csv.DictReader((fvp / "cells.csv").read_text().splitlines())
    return {(r["model"], int(r["macs"])): int(r["npu_total_cycles"]) for r in rows if r["npu"] == "ethos-u85"}


def test_the_measured_streams_of_ethos_u85_are_met(fvp: Path) -> None:
    cells, found = u85_cells(fvp), {}
    for (model, macs), published in cells.items():
        npu = accelerator(f"ethos-u85-{macs}")
        found[model, macs] = estimate(measured(model, macs), npu, u85_around(macs)).total / published
    assert len(found) == 15
    assert {cell: ratio for cell, ratio in found.items() if not 0.9 <= ratio <= 1.11} == {}


def test_the_latency_sweep_of_ethos_u85_is_followed() -> None:
    for macs, published in SWEEP.items():
        stream, npu = measured("rnnoise_INT8", macs), accelerator(f"ethos-u85-{macs}")
        found = {latency: estimate(stream, npu, u85_around(macs, latency)).total for latency in published}
        assert list(found.values()) == sorted(found.values())
        ratios = {latency: found[latency] / published[latency] for latency in published}
        assert {latency: r for latency, r in ratios.items() if not 0.9 <= r <= 1.1} == {}


@pytest.mark.parametrize("name", ["u85-512", "u55-256"])
def test_commands_come_late_before_the_first_operation_and_behind_a_transfer(name: str) -> None:
    """On Ethos-U85; else they are there already."""
    npu, memory_map = accelerator(f"ethos-{name}"), u85_around(512)
    clock = TimingModel.at_start(npu, memory_map)
    answer = memory_map.stream.latency(False) + 128 / 16 if npu.language is Language.U85 else 0
    begin, words = clock.now, 70  # 280 bytes: three requests
    clock.fetch(words)
    assert clock.now == begin + 3 * answer
    clock.kernels.append(clock.now + 50)
    clock.wait(Op.KERNEL_WAIT, 0)
    clock.fetch(words)
    assert clock.now == clock.kernels[-1]
    clock.transfers.append(clock.now + 100)
    for _ in range(2):  # the second has nothing to wait for
        clock.wait(Op.DMA_WAIT, 0)
        assert clock.now == clock.transfers[-1] + answer


def test_a_kernel_whose_commands_a_pause_may_hold_starts_late() -> None:
    """They are requested when the kernel before starts: a long one hides all of a pause."""
    memory_map, npu = u85_around(512), accelerator("ethos-u85-512")
    clock = TimingModel.at_start(npu, memory_map)
    needs = next(  # a small kernel of SRAM alone
        use
        for use in (resource_use(c, npu, memory_map) for c in measured("rnnoise_INT8", 512) if isinstance(c, Operation))
        if use.operation.op is Op.ELEMENTWISE and {load.memory.name for load in use.loads} == {"sram"}
    )
    first = clock.kernel(needs, 0)
    second = clock.kernel(needs, 0)
    late = second.requested - first.stop - npu.launch_cycles
    assert late == pytest.approx((1000 - (first.stop - first.requested)) ** 2 / 2 / 5000)
    clock.engines = replace(clock.engines, start=second.stop - 1000)
    assert clock.kernel(needs, 0).requested == second.stop + npu.launch_cycles


@pytest.mark.parametrize(("macs", "read", "written"), [(256, 7_650, 36), (1024, 7_838, 36)])
def test_external_beats_of_ethos_u85_are_those_published(macs: int, read: int, written: int) -> None:
    found = estimate(measured("rnnoise_INT8", macs), accelerator(f"ethos-u85-{macs}"), u85_around(macs))
    assert found.beats(1, False) == pytest.approx(read, rel=0.002)
    assert found.beats(1, True) == written


SRAM_BEATS = {
    128: (60_729, 23_431),
    256: (41_813, 23_431),
    512: (22_294, 17_505),
    1024: (22_664, 17_760),
    2048: (15_673, 15_673),
}


@pytest.mark.parametrize("macs", SRAM_BEATS)
def test_beats_of_sram_are_those_published(macs: int) -> None:
    """kws: inputs stay inside the NPU while several depths of output blocks are made of them."""
    found = estimate(measured("kws_micronet_m", macs), accelerator(f"ethos-u85-{macs}"), u85_around(macs))
    assert (found.beats(0, False), found.beats(0, True)) == SRAM_BEATS[macs]


def pointwise(macs: int) -> tuple[float, int]:
    """The cycles of the first 1x1 convolution of 276 to 276 channels in ad, and those of its multipliers."""
    npu, memory_map = accelerator(f"ethos-u85-{macs}"), u85_around(macs)
    shares = estimate(measured("ad_medium_int8", macs), npu, memory_map).shares
    cycles, multiplied, channels = 0, 0, 0
    for share in (share for share in shares if share.operation.op is Op.CONV):
        work = work_of(share.operation, npu)
        if (work.ifm.depth, work.made.height) == (276, 16) and channels < 276:  # made in two kernels
            cycles, channels = cycles + share.cycles, channels + work.made.depth
            multiplied += multiplier_cycles(work, npu)
    assert channels == 276
    return cycles, multiplied


def test_multipliers_take_eight_input_channels_at_once() -> None:
    """The last 20 of 276 are three steps; published are 80,028 cycles (`cells_operators.csv`)."""
    cycles, multiplied = pointwise(256)
    assert multiplied == 78_400
    assert cycles == pytest.approx(80_028, rel=0.02)


def test_the_next_input_is_read_while_the_last_depth_of_blocks_is_made() -> None:
    """16 channels are made sooner than the next blocks' input is there; published are 49,028 and 50,028 cycles."""
    cycles, multiplied = pointwise(512)
    assert cycles == pytest.approx(49_500, rel=0.03)
    assert cycles > 1.15 * multiplied


def test_scales_are_requested_block_by_block() -> None:
    """Blocks of 16 channels have 160 bytes of scales, and the buffer 256: an answer is awaited for each."""
    npu, memory_map = accelerator("ethos-u85-512"), u85_around(512)
    kernels = [share.operation for share in estimate(measured("kws_micronet_m", 512), npu, memory_map).shares]
    found = [
        (load, work_of(operation, npu))
        for operation in kernels
        if operation.op is Op.DEPTHWISE
        for load in resource_use(operation, npu, memory_map).loads
        if load.role is Role.SCALES and load.memory.name == "dram"
    ]
    load, work = next((load, work) for load, work in found if work.block.depth == 16)
    assert load.asking >= (work.blocks - 1) * load.latency


@pytest.mark.slow
def test_single_convolutions_of_ethos_u85_move_the_published_beats(found: list[Cell]) -> None:
    """Where the installed Vela makes the stream that was measured: inputs stay from one depth of blocks to the next."""
    same = [
        cell
        for kind in ("conv1x1", "conv3x3", "dw3x3")
        for cell in grouped(found)[f"{kind} base"]
        if cell.beats and cell.beats[2:] == cell.moved[2:]
    ]
    assert len(same) >= 60
    assert {cell.name: cell.moved for cell in same if cell.beats != cell.moved} == {}


@pytest.mark.slow
def test_velas_cores_disagree_on_a_pool(fvp: Path, real_network: Callable[[str], Path]) -> None:
    """Its compiled core takes 4 cycles a kernel element, the old one and ours one; a published count agrees with us."""
    model, npu, result = real_network("kws_ref_model"), "ethos-u55-256", "functional_1/average_pooling2d/AvgPool"
    compiled_core = dict(own_estimate(model, npu))[result]
    old_core = dict(own_estimate(model, npu, "--debug-force-legacy-core"))[result]
    multiplying = 125 * 64 // 8  # a micro-block has 8 channels
    assert 4 * multiplying * 1.25 <= compiled_core <= 4 * multiplying * 1.4
    assert multiplying * 1.25 <= old_core <= multiplying * 2
    pool = next(
        row
        for row in csv.DictReader((fvp / "cells_operators.csv").read_text().splitlines())
        if row["op"] == "AvgPool 25x5" and row["macs"] == "256"
    )
    assert int(pool["vela_cycles"]) > 3.9 * int(pool["active"])
