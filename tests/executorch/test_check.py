"""`check` of `.pte` files: which pool is too small and by how much, whether pools fit a board together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from npu_memplan.cli import cli
from npu_memplan.executorch.board import PoolNeed, fit_pools
from npu_memplan.executorch.memory_map import live_bytes, placed_tensors
from npu_memplan.models.executorch.program import read_program
from npu_memplan.problem import Agent
from npu_memplan.target_data import BoardMemory
from tests.support.pte_file import Calls, Tensor, pte_file

MODELS = Path(__file__).resolve().parents[1] / "models"


def findings(name: str, board: str, *words: str, file: Path | None = None) -> list[tuple[str, str, str]]:
    path = file or MODELS / f"{name}.pte"
    done = CliRunner().invoke(cli, ["check", str(path), "--board", board, "--json", *words], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.output)
    assert (done.exit_code == 1) == bool(document["wrong"])
    return [(f["level"], f["topic"], f["text"]) for f in document["findings"]]


def test_a_program_that_fits_says_its_pools() -> None:
    found = findings("three_convolutions_u85", "corstone-320")
    assert not [f for f in found if f[0] == "WRONG"]
    texts = "\n".join(text for *_, text in found)
    assert "temp: the temporary allocator (scratch of the delegates) needs 81,920 bytes" in texts
    assert "buffer 1 of method 'forward': 61,440 bytes, at most 61,440 are needed at one time" in texts
    assert "1 call of delegates copy 12,288 bytes into the scratch, 10 out of it" in texts
    assert "fits board corstone-320: temp in " in texts


def test_fast_scratch_is_a_pool_of_its_own() -> None:
    found = findings("three_convolutions_u65", "corstone-300-u65", "--pool", "fast=32KiB", "--pool", "temp=12288")
    assert (
        "WRONG",
        "pools",
        "fast: ethosu_fast_scratch needs 39,808 bytes, the pool has 32,768: 7,040 too few",
    ) in found
    assert any(f[0] == "ok" and f[2].endswith("needs 12,288 of 12,288 bytes") for f in found)


def test_another_npu_is_named() -> None:
    found = findings("three_convolutions_u85", "corstone-300-u55")
    assert [f[1] for f in found if f[0] == "WRONG"] == ["accelerator"]


def test_a_planned_buffer_that_is_too_small_is_named(tmp_path: Path) -> None:
    data = bytearray((MODELS / "three_convolutions_u85.pte").read_bytes())
    place = data.rindex((61440).to_bytes(8, "little"))
    data[place : place + 8] = (61000).to_bytes(8, "little")
    (tmp_path / "m.pte").write_bytes(data)
    wrong = [f[1:] for f in findings("", "corstone-320", file=tmp_path / "m.pte") if f[0] == "WRONG"]
    assert ("planned", "value 1 of method 'forward' ends at byte 61,440 of planned buffer 1, which has 61,000: 440 too "
            "few") in wrong  # fmt: skip
    assert "run" in [topic for topic, _ in wrong]


def memory(name: str, size: int, *, npu: bool = True, read_only: bool = False) -> BoardMemory:
    agents = {Agent.HOST, Agent.NPU} if npu else {Agent.HOST}
    return BoardMemory(name, 0, size, frozenset(agents), read_only=read_only)


def test_pools_are_put_where_they_fit_together() -> None:
    memories = [memory("tcm", 50, npu=False), memory("sram", 100), memory("flash", 1000, read_only=True)]
    needs = [
        PoolNeed("temp", 90, True),
        PoolNeed("planned", 40, preferred=("sram",)),
        PoolNeed("file", 900, True, True),
    ]
    fit = fit_pools(needs, memories)
    assert fit.fits
    assert [home.name for _, home in fit.homes if home is not None] == ["sram", "tcm", "flash"]


def test_what_does_not_fit_lacks_the_fewest_bytes() -> None:
    fit = fit_pools([PoolNeed("temp", 90, True), PoolNeed("planned", 40)], [memory("a", 100), memory("b", 30)])
    assert not fit.fits
    assert [(short.name, used) for short, used in fit.short] == [("b", 40)]
    assert fit_pools([PoolNeed("temp", 1, True)], [memory("tcm", 9, npu=False)]).homes[0][1] is None


@pytest.mark.parametrize(("second", "expected"), [((1, 16), 48), ((1, 0), 32)])
def test_bytes_that_tensors_share_count_once(second: tuple[int, int], expected: int) -> None:
    values = [Tensor("int8", (16,), (1, 0)), Tensor("int8", (16,), second), Tensor("int8", (16,), (1, 32))]
    method = read_program(pte_file([Calls(
        values, [0], [2], [("kernel", "a.out", [0, 1]), ("kernel", "b.out", [1, 0, 2])], [0, 64])]
    )).methods[0]  # fmt: skip
    assert [(t.first, t.last) for t in placed_tensors(method)] == [(0, 2), (0, 2), (1, 2)]
    assert live_bytes(method) == {1: expected}
