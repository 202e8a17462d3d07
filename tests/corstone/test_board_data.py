"""Board files: what ships is right, and a user's own file is checked with file and key in the message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npu_memplan.ethosu.arch import ACCELERATORS
from npu_memplan.options import CompileOptions, usual_accelerator
from npu_memplan.problem import Agent
from npu_memplan.target_data import (
    TargetDataError,
    accelerator_system,
    board_names,
    load_board,
    load_memory_mode,
    memory_mode_names,
    targets_folder,
)


def test_every_accelerator_has_a_system_that_exists() -> None:
    for name in ACCELERATORS:
        system = accelerator_system(name)
        assert system.memory_mode in memory_mode_names()
        assert name in load_board(system.board).accelerators


@pytest.mark.parametrize("name", board_names())
def test_boards_place_every_pool_where_the_npu_reaches_it(name: str) -> None:
    board = load_board(name)
    assert board.name == name
    for mode in memory_mode_names() if board.can_run else (board.memory_mode, *board.placements):
        placement = board.memory_placement(mode)
        for pool in load_memory_mode(mode).pools:
            for memory in placement.pools[pool]:
                assert board.memory(memory).agents == {Agent.HOST, Agent.NPU}
                assert not board.memory(memory).read_only
        assert placement.constants
        for memory in placement.constants:
            assert Agent.NPU in board.memory(memory).agents
    for memory in board.memories:
        if "TCM" in memory.name and not name.startswith("alif"):  # Alif's are seen by every master
            assert Agent.NPU not in memory.agents, "tightly coupled memory is the CPU's alone"


@pytest.mark.parametrize("name", board_names())
def test_every_figure_of_a_board_has_a_source_or_says_that_none_was_found(name: str) -> None:
    board = load_board(name)
    assert board.sources
    said = " ".join((*board.sources, *board.unknown))
    assert "speed" in said
    assert board.clock.npu_hz or "clock" in said
    used = {
        m for p in board.placements.values() for m in (*p.constants, *(n for names in p.pools.values() for n in names))
    }
    for memory in board.memories:
        assert memory.name not in used or memory.speed or memory.like, f"{memory.name} has neither a speed nor a model"
        assert memory.speed is None or memory.speed.source


def test_only_those_that_emulators_have_run_are_marked_as_run() -> None:
    run = ("corstone-300-u55", "corstone-300-u65", "corstone-310", "corstone-315", "corstone-320")
    for board in map(load_board, board_names()):
        assert board.state == ("emulated" if board.name in run else "described")
        assert board.name in run or "never run" in board.description
        assert board.can_run or board.fvp is board.qemu is None


def test_a_board_without_firmware_is_not_linked_for(tmp_path: Path) -> None:
    """It is there to fit and to time; half of what a linker needs is an error."""
    board = load_board("renesas-ra8p1")
    assert not board.can_run
    assert board.roomy_memory(("MRAM", "SRAM"), 1 << 20).name == "MRAM"
    assert board.roomy_memory(("MRAM", "SRAM"), (1 << 20) + 1).name == "SRAM"
    assert board.roomy_memory(("MRAM", "SRAM"), 1 << 30).name == "SRAM"
    with pytest.raises(TargetDataError, match=r"mine\.toml lacks \[uart\]: to run firmware a board needs"):
        load_board(own_board(tmp_path, (r"\[uart\]\nbase.*\nbaud_divisor.*\n", "")))


def test_memory_offsets_know_the_aliases() -> None:
    isram = load_board("corstone-300-u55").memory("ISRAM")
    assert isram.offset_of(0x21000010) == isram.offset_of(0x31000010) == 0x10
    assert isram.offset_of(0x21000000 + isram.size_bytes) is None


def own_board(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text()
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, count=1)
        assert count == 1, pattern
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_users_board_is_a_file(tmp_path: Path) -> None:
    board = load_board(own_board(tmp_path, (r'name = "corstone-300-u55"', 'name = "mine"')))
    assert board.name == "mine"
    assert load_board(str(tmp_path / "mine.toml")) == board


@pytest.mark.parametrize(
    "pattern, new, message",
    [
        (r"irq = 56", "", r"mine\.toml: npu is {.*: object missing required field `irq`"),
        (r"base = 0x48102000", 'base = "0x48102000"', r"npu\.base is '0x48102000': expected `int`, got `str`"),
        (r"base = 0x20000000", "base = 0x01080000", r"memories SRAM and DTCM overlap at 0x01080000"),
        (r'reach = \["host"\]', 'reach = ["dma"]', r"memory\[0\]\.reach\[0\] is 'dma': .*give one of 'host', 'npu'"),
        (
            r'sram = \["ISRAM"\]',
            'sram = ["TURBO"]',
            r"has no memory 'TURBO'; it has: ITCM, SRAM, DTCM, ISRAM, QSPI, DDR",
        ),
        (r"irq = 56", "irq = 200", r"npu\.irq 200 is not below vectors\.irq_count 96"),
        (r'sram = \["ISRAM"\]', "sram = []", r"\.pools.* expected `array` of length >= 1"),
        (r'constants = \["DDR"\]\n', "", r"missing required field `constants`"),
        (r'constants = \["DDR"\]', "constants = []", r"\.constants is .* expected `array` of length >= 1"),
        (r'sram = \["ISRAM"\]', 'sram = ["QSPI"]', r"puts pool 'sram' in memory QSPI, which is read only"),
        (r'sram = \["ISRAM"\]', 'sram = ["DTCM"]', r"in memory DTCM, which is none that the NPU reaches"),
        (r'sram = \["ISRAM"\]', 'srm = ["ISRAM"]', r"does not say where pool 'sram' goes"),
        (r"\[uart\]", "[uart", r"mine\.toml is not TOML"),
        (r"irq = 56", "irq = " + "9" * 5000, r"mine\.toml is not TOML"),
        (r"irq = 56", "irq = " + "[" * 5000 + "]" * 5000, r"mine\.toml is not TOML"),
        (r"irq = 56", "irq = 0x" + "9" * 5000, r"mine\.toml has a number of more than 64 bits"),
        (r'name = "corstone-300-u55"', r'name = "mine\\n"', r"name is 'mine\\n': expected `str` matching regex"),
        (r'name = "ISRAM"', r'name = "ISRAM\\n"', r"name is 'ISRAM\\n': expected `str` matching regex"),
        (
            r'cpu = "cortex-m55"',
            "cpu = 'm55\") execute_process(COMMAND id) #'",
            r"cpu is 'm55\"\) exec.*matching regex",
        ),
        (
            r'description = ".*"',
            'description = "*/ x /*"',
            r"description is '\*/ x /\*': expected `str` matching regex",
        ),
        (r"irq = 56", "irq = -1", r"npu\.irq is -1: expected `int` >= 0"),
        (r"size_bytes = 0x80000", "size_bytes = 0x180000000", r"size_bytes is 6442450944: expected `int` <= 4"),
    ],
)
def test_a_wrong_board_file_is_reported_exactly(tmp_path: Path, pattern: str, new: str, message: str) -> None:
    with pytest.raises(TargetDataError, match=message):
        load_board(own_board(tmp_path, (pattern, new)))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("RA8P1", "renesas-ra8p1"),
        ("ek-ra8p1", "renesas-ra8p1"),
        ("Ensemble E7", "alif-e7-hp"),
        ("ensemble_e7_he", "alif-e7-he"),
        ("ENSEMBLE E8", "alif-e8-u85"),
        ("I.MX 93", "nxp-imx93"),
        ("Corstone-310", "corstone-310"),
    ],
)
def test_a_product_is_a_board(said: str, meant: str) -> None:
    assert load_board(said).name == meant
    assert CompileOptions(usual_accelerator(said), board=said).resolve_defaults().board == meant


def test_no_two_boards_share_a_name() -> None:
    called: dict[str, str] = {}
    for name in board_names():
        for other in (name, *load_board(name).aliases):
            plain = "".join(c for c in other.casefold() if c.isalnum())
            assert called.setdefault(plain, name) == name, other
            assert load_board(other.upper()).name == name


@pytest.mark.parametrize(
    ("said", "meant"),
    [("RA8P2", "renesas-ra8p1"), ("alif-e9-hp", "alif-e7-hp"), ("corstone-330", "corstone-3"), ("E7", "alif-e7-h")],
)
def test_a_name_that_is_nearly_one_is_pointed_out(said: str, meant: str) -> None:
    with pytest.raises(TargetDataError, match=rf"unknown board '{said}'; did you mean .*{meant}.*\? known: "):
        load_board(said)


def test_a_file_beside_the_name_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(TargetDataError, match=r"unknown board 'mine'; did you mean the file mine.toml\? known: "):
        load_board("mine")


def test_two_memories_have_two_names(tmp_path: Path) -> None:
    text = (targets_folder() / "boards" / "alif-e7-hp.toml").read_text()
    (tmp_path / "b.toml").write_text(re.sub(r'^name = "SRAM1"', 'name = "SRAM0"', text, flags=re.M))
    with pytest.raises(TargetDataError, match=r"b.toml: two memories are called SRAM0; give each a name of its own"):
        load_board(tmp_path / "b.toml")


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        TargetDataError, match=r"unknown board 'x'; known: alif-e3-he, .*corstone-300-u55, .*your own board file"
    ):
        load_board("x")
    with pytest.raises(TargetDataError, match=r"cannot read .*nothing\.toml: No such file"):
        load_board(tmp_path / "nothing.toml")
    with pytest.raises(TargetDataError, match=r"unknown memory mode 'x'; known: Sram_Only, Shared_Sram"):
        load_memory_mode("x")
    with pytest.raises(TargetDataError, match=r"unknown accelerator 'x'; known: ethos-u55-32"):
        accelerator_system("x")
    with pytest.raises(TargetDataError, match=r"does not say where pools go in memory mode 'Odd'.*placement\.Odd"):
        load_board("corstone-300-u55").memory_placement("Odd")
