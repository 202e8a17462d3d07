"""Board files: what ships is right, and a user's own file is checked with file and key in the message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npu_memplan.ethosu.arch import ACCELERATORS
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
    for mode in memory_mode_names():
        placement = board.placement(mode)
        for pool in load_memory_mode(mode).pools:
            for memory in placement.pools[pool]:
                assert board.memory(memory).agents == {Agent.HOST, Agent.NPU}
                assert not board.memory(memory).read_only
    for memory in board.memories:
        if "TCM" in memory.name:
            assert Agent.NPU not in memory.agents, "tightly coupled memory is the CPU's alone"


def test_only_corstone_300_is_said_to_have_run() -> None:
    assert {n: load_board(n).state for n in board_names()} == {
        "corstone-300-u55": "emulated",
        "corstone-300-u65": "emulated",
        "corstone-310": "described",
        "corstone-315": "described",
        "corstone-320": "described",
    }


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
        (r"\[uart\]", "[uart", r"mine\.toml is not TOML"),
        (r"irq = 56", "irq = " + "9" * 5000, r"mine\.toml is not TOML"),
        (r"irq = 56", "irq = " + "[" * 5000 + "]" * 5000, r"mine\.toml is not TOML"),
        (r"irq = 56", "irq = -1", r"npu\.irq is -1: expected `int` >= 0"),
        (
            r"size_bytes = 0x80000",
            "size_bytes = 0x180000000",
            r"size_bytes is 6442450944: expected `int` <= 4",
        ),
    ],
)
def test_a_wrong_board_file_is_told_exactly(tmp_path: Path, pattern: str, new: str, message: str) -> None:
    with pytest.raises(TargetDataError, match=message):
        load_board(own_board(tmp_path, (pattern, new)))


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TargetDataError, match=r"unknown board 'x'; known: corstone-300-u55, .*your own board file"):
        load_board("x")
    with pytest.raises(TargetDataError, match=r"cannot read .*nothing\.toml: No such file"):
        load_board(tmp_path / "nothing.toml")
    with pytest.raises(TargetDataError, match=r"unknown memory mode 'x'; known: Sram_Only, Shared_Sram"):
        load_memory_mode("x")
    with pytest.raises(TargetDataError, match=r"unknown accelerator 'x'; known: ethos-u55-32"):
        accelerator_system("x")
    with pytest.raises(TargetDataError, match=r"does not say where pools go in memory mode 'Odd'.*placement\.Odd"):
        load_board("corstone-300-u55").placement("Odd")
