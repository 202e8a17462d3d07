"""`run --steps` on emulators: inferences one after another in one boot, states and resident constants kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from npu_memplan.artifact import Artifact
from npu_memplan.cli import cli
from npu_memplan.problem import BufferKind
from tests.states.test_variables import SHAPE, running_sum

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("qemu", "unicorn_engine")]
MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def say(*words: object) -> str:
    return str(CliRunner().invoke(cli, [str(word) for word in words]).output)


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
