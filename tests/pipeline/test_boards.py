"""Boards: a compile's pools, memories and clock are the board's; where a model fits, and what it says where not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.boards import HEAD, NETWORKS, line
from npu_memplan import compiler
from npu_memplan.artifact import Artifact
from npu_memplan.board_rows import fit_cells, on_boards
from npu_memplan.cache import ProgramCache
from npu_memplan.errors import RefusalError
from npu_memplan.ethosu.time import Needs
from npu_memplan.files.folders import ContentStore
from npu_memplan.frontend.start import vela_options
from npu_memplan.options import CompileOptions, OptionError
from npu_memplan.process.incidents import STRICT
from npu_memplan.target_data import board_names, load_board
from tests.support.entry import QUICK
from tests.support.real_data import REPOSITORY, Models

HELLO = REPOSITORY / "tests" / "models" / "hello_world_int8.tflite"
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def test_a_board_gives_pools_memories_and_clock(cli, shared_model: Models, tmp_path: Path) -> None:
    cli.ok("compile", shared_model("kws_ref_model"), "--board", "alif-e7-hp", "-o", tmp_path / "out")
    artifact = Artifact.load(tmp_path / "out")
    (taken,) = (note for note in artifact.notes if note.startswith("selected: "))
    assert f"{artifact.estimated_cycles:,} cycles in {artifact.pool_bytes('sram'):,} bytes" in taken
    board = load_board("alif-e7-hp")
    assert [pool.size_bytes for pool in artifact.problem.pools] == [board.memory("SRAM0").size_bytes]
    assert artifact.target.accelerator == "ethos-u55-256"
    assert artifact.timing is not None
    assert artifact.timing.clock_hz == board.clock.npu_hz == 400e6
    assert {memory for layer in artifact.layers for memory in layer.bytes} == {"SRAM0", "MRAM"}
    # Alif's figures: 8 bytes x 0.121 a cycle from MRAM
    assert artifact.estimated_cycles is not None
    assert artifact.estimated_cycles > sum(layer.bytes.get("MRAM", 0) for layer in artifact.layers) / (8 * 0.121)
    head = (tmp_path / "out" / "memory.txt").read_text().splitlines()
    by_model = artifact.timing.by_model
    assert next(iter(by_model.values())) == artifact.estimated_cycles
    least, most = (artifact.timing.milliseconds(end(by_model.values())) for end in (min, max))
    used = artifact.pool_bytes("sram")
    assert " ".join(head[:2]) == (
        f"{artifact.name}: fits on alif-e7-hp; sram {used:,} of 4,194,304 bytes, {artifact.plan.status.value}; "
        f"NPU about {least:.3f} to {most:.3f} ms (estimated)"
    )
    assert head[3] == "Memories of alif-e7-hp"
    assert re.fullmatch(rf"SRAM0 +pool sram +{used:,} +4,194,304 +99\.\d %", head[6].rstrip())
    assert "constants, command streams" in head[7]


def test_a_pool_moves_to_the_place_that_has_room() -> None:
    options = CompileOptions(board="alif-e7-hp").resolve_defaults()
    few, many = (options.memory_map(needs=Needs({"sram": size}, 0)) for size in (1000, 5 << 20))
    assert few is not None
    assert many is not None
    assert few.regions[1].name == "SRAM0"
    assert many.regions[1].name == "SRAM0"  # none is large enough: the largest, which is then said to be short
    imx = CompileOptions("ethos-u65-256", board="nxp-imx93").resolve_defaults().memory_map()
    assert imx is not None
    assert [(region, memory.name, memory.port) for region, memory in sorted(imx.regions.items())] == [
        (0, "DRAM", 1),
        (1, "DRAM", 1),
        (2, "OCRAM", 0),
    ]
    assert imx.clock_hz == 1e9


def test_what_does_not_fit_is_reported_before_anything_is_written(cli, shared_model: Models, tmp_path: Path) -> None:
    model = shared_model("tf2_mobilenet_v2_1.0_224_ptq")
    made = cli("compile", model, "--board", "renesas-ra8p1", "--objective", "bytes", "-o", tmp_path / "out")
    assert made.code == 2
    assert "does not fit MRAM of board renesas-ra8p1: constants, command streams need 3," in made.err
    assert "it has 1,048,576 bytes" in made.err
    assert "compile --board all says where it fits" in made.err.replace("\n", " ")
    assert not (tmp_path / "out").exists()
    made = cli(
        "compile", model, "--board", "RA8P1", "--pool", "sram=20000", "--objective", "bytes", "-o", tmp_path / "o"
    )
    assert made.code == 2
    assert "does not fit pool sram:" in made.err
    assert re.search(r"available +20,000 bytes", made.err)


@pytest.mark.parametrize(
    ("board", "memory", "size", "said"),
    [
        ("nuvoton-m55m1", "FLASH", 1 << 20, ""),
        ("nuvoton-m55m1", "HYPERRAM", 3 << 20, "HYPERRAM is empty at power-on: load 3,145,728 bytes of constants at "
         "start (no memory here keeps them)"),
        ("nuvoton-m55m1", "SRAM01", 1000, "SRAM01 is empty at power-on: load 1,000 bytes of constants at start (from "
         "FLASH)"),
        ("nxp-imx93", "DRAM", 1, "DRAM is empty at power-on: load 1 bytes of constants at start (no memory here keeps "
         "them)"),
        ("corstone-300-u55", "DDR", 1, ""),  # emulators and FVPs load it with the program
    ],
)  # fmt: skip
def test_a_memory_that_is_empty_at_power_on_is_to_be_loaded(board: str, memory: str, size: int, said: str) -> None:
    found = load_board(board)
    assert found.loading_of(found.memory(memory), size) == said


def test_a_fit_says_what_has_to_be_loaded(cli, tmp_path: Path) -> None:
    said = r"DRAM is empty at power-on: load [\d,]+ bytes of constants at start \(no memory here keeps them\)"
    made = cli.ok("compile", HELLO, "--board", "nxp-imx93", *QUICK, "-o", tmp_path / "out")
    assert re.search(said, made.out)
    assert re.search(said, " ".join((tmp_path / "out" / "memory.txt").read_text().split()))
    file = tmp_path / "v.tflite"
    cli.ok("compile", HELLO, "--board", "nxp-imx93", *QUICK, "--emit", "vela-tflite", "-o", file)
    checked = cli("check", file, "--board", "nxp-imx93").out
    assert re.search(rf"ok +memory +file: .* fit OCRAM, DRAM of nxp-imx93; OCRAM{said[4:]}", checked)
    everywhere = " ".join(cli.ok("compile", HELLO, "--board", "all", *QUICK).out.split())
    assert re.search(rf"nxp-imx93: {said}", everywhere)
    assert "alif-e7-hp: " not in everywhere


def test_the_npus_own_memory_is_compared_with_that_of_other_boards(cli) -> None:
    made = cli.ok("compile", HELLO, "--board", "all", *QUICK)
    rows = {line.split()[0]: line.split() for line in made.out.splitlines() if line.count("/") >= 2}
    assert rows["nxp-imx93"][3].endswith("/384")
    assert rows["nxp-imx93"][4].endswith(f"/{256 << 10}")
    boards = "corstone-300-u65, corstone-315, corstone-320, nxp-imx93"
    assert f"Of {boards}, the column flash has DRAM" in " ".join(made.out.split())


def test_constants_go_where_there_is_room_or_where_they_are_asked_to_be(cli, tmp_path: Path) -> None:
    many = (
        CompileOptions("ethos-u55-256", board="nuvoton-m55m1")
        .resolve_defaults()
        .memory_map(needs=Needs(constants=3 << 20))
    )
    assert many is not None
    assert many.regions[0].name == "HYPERRAM"
    cli.ok("compile", HELLO, "--board", "Ensemble E7", "--constant-pool", "OSPI", "-o", tmp_path / "out")
    artifact = Artifact.load(tmp_path / "out")
    assert artifact.target.board == "alif-e7-hp"
    memory_map = artifact.memory_map
    assert memory_map is not None
    assert (memory_map.regions[0].name, memory_map.regions[0].clock_scale, memory_map.regions[0].read.latency) == (
        "OSPI",
        0.052,
        108,
    )
    assert "OffChipFlash_clock_scale=0.052" in vela_options(artifact.target).sections


def test_all_boards_say_where_it_fits(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu_memplan.command_line.LINE_SECONDS", 0)  # between two lines of progress in a pipe
    made = cli("compile", HELLO, "--board", "all", "--effort", "quick", "--json")
    assert f"({len(board_names()) - 1} of {len(board_names())}): --board nxp-imx93" in made.err
    assert made.code == 0, made.err
    rows = {row["board"]: row for row in json.loads(made.out)}
    assert tuple(rows) == board_names()
    known = [row for row in rows.values() if row["memories"]]
    assert len(known) >= 13
    for row in known:
        assert row["fits"], row
        assert 0 < row["milliseconds"] <= row["most_milliseconds"]
    cli.ok("compile", HELLO, *rows["himax-we2"]["flags"], "--json", "-o", tmp_path / "out")
    artifact = Artifact.load(tmp_path / "out")
    assert artifact.timing is not None
    assert artifact.estimated_cycles is not None
    assert artifact.timing.milliseconds(artifact.estimated_cycles) == rows["himax-we2"]["milliseconds"]
    assert rows["himax-we2"]["memories"][0]["bytes"] == artifact.pool_bytes("sram")


def test_a_row_has_the_objective_of_a_compile(shared_model: Models, tmp_path: Path) -> None:
    model, cache = shared_model("micro_speech_quantized"), ProgramCache(ContentStore(tmp_path / "cache", 1 << 24))
    quick = CompileOptions(effort="quick")
    (fast,) = on_boards(model, quick, ("himax-we2",), cache=cache)
    (small,) = on_boards(model, replace(quick, objective="bytes"), ("himax-we2",), cache=cache)
    made = cache.get_program(
        model, CompileOptions("ethos-u55-64", board="himax-we2", effort="quick"), pytest.fail
    ).artifact
    assert made.timing is not None
    assert made.timing.milliseconds(made.estimated_cycles or 0) == fast.milliseconds
    assert fast.to_dict()["memories"][0]["bytes"] == made.pool_bytes("sram")
    assert (fast.milliseconds or 0) < (small.milliseconds or 0)
    assert (fast.verdict, small.verdict) == ("fits", "fits")


@pytest.mark.parametrize("options", [CompileOptions(effort="quick"), CompileOptions(objective="bytes")])
def test_boards_of_the_same_npu_memories_and_cpu_share_a_compile(options: CompileOptions) -> None:
    """Corstone-300 and -310 do; Alif's E3 and E7 HE differ in a size and a speed. No size that nobody asked for is
    printed.
    """
    names = ("corstone-300-u55", "corstone-310", "alif-e3-he", "alif-e7-he")
    parts: list[str] = []
    rows = on_boards(HELLO, options, names, lambda part, *_: parts.append(part))
    assert len(parts) == 3
    assert not any("--pool" in part for part in parts)
    (alone,) = on_boards(HELLO, options, names[1:2])
    assert alone.to_dict() == rows[1].to_dict()
    assert rows[0].to_dict() | {"board": "", "flags": ""} == rows[1].to_dict() | {"board": "", "flags": ""}


def test_a_row_that_fits_otherwise_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compiler.plan_model

    def planned(model: Path, options: CompileOptions, **more: Any) -> Any:
        if options.for_cycles:
            raise RefusalError("does not fit")
        return plan(model, options, **more)

    monkeypatch.setattr(compiler, "plan_model", planned)
    (row,) = on_boards(HELLO, CompileOptions(), ("himax-we2",))
    assert (row.fits, row.verdict, fit_cells(row)[1]) == (True, "fits with --objective bytes", "bytes")
    assert "--objective bytes" in " ".join(row.to_dict()["flags"])
    (row,) = on_boards(HELLO, CompileOptions(objective="bytes"), ("himax-we2",))
    assert (row.verdict, fit_cells(row)[1]) == ("fits", "yes")


def test_a_fault_on_one_board_is_reported_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT)
    plan = compiler.plan_model

    def planned(model: Path, options: CompileOptions, **more: Any) -> Any:
        if options.accelerator == "ethos-u55-128":
            raise KeyError("no such view")
        return plan(model, options, **more)

    monkeypatch.setattr(compiler, "plan_model", planned)
    broken, sound = on_boards(HELLO, CompileOptions(objective="bytes"), ("alif-e7-he", "alif-e7-hp"))
    assert not broken.fits
    assert broken.verdict.startswith("internal fault: --board alif-e7-he ")
    assert broken.verdict.endswith(": KeyError: 'no such view'")
    assert broken.to_dict()["faults"]
    assert sound.fits
    assert sound.faults == ()


@pytest.mark.parametrize("network", NETWORKS)
def test_a_row_of_the_page_is_what_the_tool_says(
    network: str, real_network: Models, request: pytest.FixtureRequest
) -> None:
    path = REPOSITORY / "docs" / "boards.md"
    page = path.read_text(encoding="utf-8")
    header = next(text for text in page.splitlines() if text.startswith("| network"))
    boards = [cell.strip() for cell in header.split("|")[2:-1]]
    (row,) = (text for text in page.splitlines() if text.startswith(f"| {network} |"))
    found = on_boards(real_network(network), CompileOptions(objective="bytes", effort="quick"), boards)
    if request.config.getoption("--update-golden"):
        path.write_text(page.replace(row, line(network, found)), encoding="utf-8")
    else:
        assert row == line(network, found), "run pytest tests/pipeline/test_boards.py --update-golden, read the change"


def test_the_page_has_all_boards_and_networks() -> None:
    page = (REPOSITORY / "docs" / "boards.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in text.split("|")[1:-1]] for text in page.splitlines() if text.startswith("| ")]
    assert rows[0] == ["network", *board_names()]
    assert [row[0] for row in rows[1:]] == list(NETWORKS)
    assert page.startswith(HEAD)


def test_boards_are_listed_with_sources(cli) -> None:
    listed = cli.ok("boards")
    for name in board_names():
        assert name in listed.out
    one = cli("boards", "himax-we2").out
    assert "FLASH    0x3a000000    16 MiB  read only, reached by host, npu; AXI1 at 1.6 % of its port" in one
    assert "not known: SRAM2 (0x36000000): no size was found in public text" in one
    assert cli("boards", "x").code == 2


def test_a_board_has_its_own_npus_only() -> None:
    with pytest.raises(
        OptionError, match="board himax-we2 has ethos-u55-64, not ethos-u55-256; leave --accelerator out"
    ):
        CompileOptions(board="himax-we2").resolve_defaults()


def test_the_table_of_boards_is_whole_in_80_columns(cli, shared_model: Models) -> None:
    options = "--board", "all", *QUICK
    made = cli.ok("compile", shared_model("tf2_mobilenet_v2_1.0_224_ptq"), *options)
    lines = made.out.splitlines()
    assert "…" not in made.out
    assert max(map(len, lines[1:])) <= 80
    cells = {line.split()[0]: line.split()[1:] for line in lines[3 : 3 + len(board_names())]}
    assert lines[0] == "tf2_mobilenet_v2_1.0_224_ptq.tflite fits 15 of 16 boards: " + ", ".join(
        name for name in board_names() if name != "renesas-ra8p1"
    )
    assert tuple(cells) == board_names()
    *first, constants = cells["renesas-ra8p1"][:4]
    assert first == ["no", "u55-256", "1470/1872"]
    assert re.fullmatch(r"3[45]\d\d/1024", constants)
    assert cells["himax-we2"][0] == "yes"
    assert re.search(r"^renesas-ra8p1: MRAM is short by 2,4\d\d,\d{3} bytes$", made.out, re.M)


@pytest.mark.parametrize("board", ["alif-e7-hp", "alif-e8-u85", "nxp-imx93"])
def test_check_and_simulate_have_the_cycles_of_the_compile(
    board: str, cli: Callable[..., Any], shared_model: Models, tmp_path: Path
) -> None:
    requested = "--board", board, "--npu-compiler", "vela", "--objective", "bytes", "--no-check", "--json"
    model, file = shared_model("hello_world_int8"), tmp_path / "vela.tflite"
    made = cli("compile", model, *requested, "-o", tmp_path / "out")
    emitted = cli("compile", model, *requested, "--emit", "vela-tflite", "-o", file)
    assert made.code == emitted.code == 0, made.err + emitted.err
    milliseconds = json.loads(made.out)["estimated_ms"]
    assert json.loads(emitted.out)["estimated_ms"] == milliseconds
    simulated = json.loads(cli("simulate", file, "--board", board, "--json").out)
    assert 1000 * sum(simulated["npu_bounds"].values()) / simulated["npu_clock_hz"] == milliseconds
    checked = json.loads(cli("check", file, "--board", board, "--json").out)
    assert checked["npu_ms"] == milliseconds
    assert checked["npu_ms_by_model"] == json.loads(emitted.out)["estimated_ms_by_model"]
    least, most = (end(checked["npu_ms_by_model"].values()) for end in (min, max))
    assert f"\nabout {least:.3f} to {most:.3f} ms at " in cli("simulate", file, "--board", board).out


def test_a_pool_that_is_too_small_says_so_on_every_board() -> None:
    """A board without Dedicated_Sram, which no advice may ask for, is no other error."""
    wanted = CompileOptions(pools={"sram": 64}, effort="quick")
    (row,) = on_boards(DIGITS, wanted, ["alif-e8-u85"])
    assert re.fullmatch(r"does not fit: pool sram needs [\d,]+ bytes, 64 are there", row.verdict)
    assert not row.fits


def test_a_row_has_the_time_of_a_compile_where_the_clock_of_the_cpu_is_unknown(cli, tmp_path: Path) -> None:
    wanted = CompileOptions(host_ops=("SOFTMAX",), effort="quick")
    (row,) = on_boards(DIGITS, wanted, ["corstone-300-u55"])
    cli.ok("compile", DIGITS, *row.options.to_cli_args(), "-o", tmp_path / "out")
    assert row.milliseconds == pytest.approx(Artifact.load(tmp_path / "out").total_milliseconds[0])
    assert fit_cells(row)[-1].endswith(" % ?")
