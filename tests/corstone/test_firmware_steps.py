"""Firmware on emulators: several inferences in one boot, and the stack that it measures by its paint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.emulators import unicorn as runner
from fvp_runner.runner import create
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.problem import BufferKind
from tests.states.test_variables import SHAPE, running_sum
from tests.support.entry import invoke
from tests.support.plain_artifacts import plain_artifact, write

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("qemu", "unicorn_engine")]
MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def say(*words: object) -> str:
    return str(invoke(*words, code=None).output)


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, constants of which lie in its pool for good."""
    folder = tmp_path_factory.mktemp("steps") / "digits"
    say(
        "compile", MODEL, "-o", folder, "--effort", "quick", "--no-check", "--resident", "8KiB", "--npu-compiler", "tvm"
    )
    return folder


@pytest.mark.parametrize("runner", ["qemu", "unicorn"])
def test_twenty_inferences_after_one_init(runner: str, resident: Path, tmp_path: Path) -> None:
    kept, steps = tmp_path / "out.npy", ("--steps", 20, "--input", "random:5", "--output", tmp_path / "out.npy")
    result = json.loads(say("run", resident, "--on", runner, "--reference", MODEL, "--json", *steps))
    assert (result["bit_exact"], result["outputs"][0]["elements"]) == (True, 200)
    outputs = np.load(kept)
    assert outputs.shape == (20, 1, 10)
    assert not np.array_equal(outputs[0], outputs[19])


def test_an_inference_that_damages_a_resident_constant_is_noticed(resident: Path, tmp_path: Path) -> None:
    """The first inference is right; with a new boot for each, all would be."""
    broken = tmp_path / "broken"
    shutil.copytree(resident, broken)
    artifact = Artifact.load(broken)
    constant = next(b for b in artifact.problem.buffers if b.kind is BufferKind.RESIDENT)
    at = artifact.plan.placement(constant.name).offset_bytes
    source = broken / "src" / "digits.c"
    text = source.read_text()
    line = text.rindex("  return status;", 0, text.index("\n}\n", text.index("int32_t digits_run(")))
    damage = f"  for (int i = 0; i < {constant.size_bytes}; ++i) pools[0][{at} + i] ^= 0x55;\n"
    source.write_text(text[:line] + damage + text[line:])
    run = ("run", broken, "--on", "unicorn", "--reference", MODEL)
    assert "against tflite-micro: bit-exact" in say(*run)
    assert "against tflite-micro: bit-exact" not in say(*run, "--steps", 2)


def test_states_are_kept_from_one_inference_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "sum.tflite").write_bytes(running_sum())
    say("compile", tmp_path / "sum.tflite", "-o", tmp_path / "sum", "--accelerator", "none")
    np.save(tmp_path / "in.npy", np.ones((6, *SHAPE), np.int8))
    words = ("--reference", tmp_path / "sum.tflite", "--steps", 6, "--input", tmp_path / "in.npy", "--json")
    assert json.loads(say("run", tmp_path / "sum", "--on", "qemu", *words))["bit_exact"]


IN = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)
STEP = """
int32_t toy_step(uint8_t *const pools[]) {{
  volatile uint8_t local[{bytes}];
  for (uint32_t i = 0; i < sizeof local; i++) local[i] = (uint8_t)(pools[0][i & 15u] + i);
  for (uint32_t i = 0; i < 16; i++) pools[0][32 + i] = local[sizeof local - 16 + i];
  return 0;
}}
"""


def toy(folder: Path, local_bytes: int) -> Path:
    """An artifact whose step keeps `local_bytes` on the stack."""
    write(plain_artifact("toy", "none", 4096, (IN,), (OUT,)), folder, STEP.format(bytes=local_bytes))
    return folder


@pytest.mark.parametrize("local_bytes", [64, 5000])
def test_the_paint_shows_how_deep_the_stack_pointer_went(
    tmp_path: Path, local_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unicorn import UC_HOOK_CODE, arm_const

    lowest: list[int] = []
    start = runner._UnicornMachine.__init__

    def watched(self: Any, *arguments: Any) -> None:
        start(self, *arguments)
        seen = lambda uc, *_: lowest.append(uc.reg_read(arm_const.UC_ARM_REG_SP))  # noqa: E731
        self._uc.hook_add(UC_HOOK_CODE, seen)

    monkeypatch.setattr(runner._UnicornMachine, "__init__", watched)
    machine: Any = create("unicorn", toy(tmp_path, local_bytes), RunOptions())
    result = machine.run([np.arange(16, dtype=np.int8).reshape(1, 16)])
    depth = machine.firmware.elf.find_symbol("__stack_top").address - min(sp for sp in lowest if sp)
    used, there = result.stack
    assert there == machine.firmware.board.firmware.stack_bytes
    assert local_bytes < depth < local_bytes + 256
    assert used <= depth
    assert depth - used <= 16, "the deepest words may be reserved and not written"


def test_what_the_driver_keeps(tmp_path: Path) -> None:
    """The figure of docs/corstone.md."""
    machine: Any = create("qemu", toy(tmp_path, 16), RunOptions())
    symbols = machine.firmware.elf.symbols
    assert symbols["info"].size_bytes + symbols["totals"].size_bytes == 96


def test_qemu_measures_it_too(tmp_path: Path) -> None:
    result = create("qemu", toy(tmp_path, 2000), RunOptions()).run([np.zeros((1, 16), np.int8)])
    assert result.stack is not None
    assert 2000 < result.stack[0] < 2256
