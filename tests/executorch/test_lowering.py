"""What `ethos_u_partitioner` makes of Vela's blocks; `test_lowering_exported` has it inside ExecuTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from fvp_runner.executorch import commands
from npu_memplan.errors import InternalError
from npu_memplan.executorch.replanning import ScratchError, ScratchGoal
from npu_memplan.executorch_lowering.partitioner import PartitionerError, ethos_u_partitioner, plan_blocks
from npu_memplan.models.executorch.delegates import BACKEND, read_blocks
from npu_memplan.models.executorch.program import Delegate, read_program

U55 = Path(__file__).resolve().parents[1] / "models" / "three_convolutions_u55.pte"
VELA = 39808  # bytes of Vela's scratch


def made(goal: ScratchGoal) -> tuple[bytes, bytes]:
    """Vela's blocks, and those that are planned again."""
    delegate = read_program(U55.read_bytes()).methods[0].delegates[0]
    return bytes(delegate.data), plan_blocks(bytes(delegate.data), delegate.specs, goal)


def scratch(data: bytes) -> int:
    return read_blocks(Delegate(BACKEND, memoryview(data), 0, False), {}, "x").scratch_bytes


@pytest.mark.parametrize(
    ("goal", "size", "changed"),
    [
        (ScratchGoal("bytes"), 30256, True),
        (ScratchGoal("bytes", "quick"), 30256, True),
        (ScratchGoal(), VELA, False),
        (ScratchGoal(pool_bytes=VELA - 16), 30256, True),
        (ScratchGoal(pool_bytes=VELA), VELA, False),  # Vela's own takes fewer cycles than what is smaller
        (ScratchGoal(pool_bytes=1 << 20), None, True),  # more bytes, fewer waits
        (ScratchGoal(pool_bytes=1 << 20, effort="max", board="corstone-300-u55"), None, True),
    ],
)
def test_goals(goal: ScratchGoal, size: int | None, changed: bool) -> None:
    before, after = made(goal)
    assert scratch(before) == VELA
    assert (scratch(after) == size) if size is not None else (VELA < scratch(after) <= 1 << 20)
    assert (before != after) is changed


def test_a_pool_that_is_too_small_says_by_how_much() -> None:
    text = "needs at least 30,256 bytes of scratch, the pool has 30,000: 256 too few"
    with pytest.raises(ScratchError, match=text):
        made(ScratchGoal(pool_bytes=30000))


def test_other_outputs_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(*_: object, **__: object) -> None:
        raise InternalError("another output")

    monkeypatch.setattr(commands, "compare_programs", differ)
    with pytest.raises(InternalError, match="another output"):
        made(ScratchGoal("bytes"))


def test_bad_use_is_named() -> None:
    with pytest.raises(ScratchError, match="'least' is none of auto, cycles, bytes"):
        ScratchGoal("least")
    with pytest.raises(PartitionerError, match="give either an EthosUCompileSpec or a board"):
        ethos_u_partitioner()
