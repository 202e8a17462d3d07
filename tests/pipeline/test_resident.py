"""`compile --resident`: constants in the fast pool for good, put there once by `NAME_init()`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fvp_runner.base import RunOptions
from fvp_runner.host import runner as host
from fvp_runner.host.shadow import UnwrittenInputError
from npu_memplan.artifact import Artifact
from npu_memplan.problem import BufferKind, Lifetime
from npu_memplan.verify import Constraint, verify
from tests.support.needs import need_runner

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
QUICK = ("--effort", "quick")


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with all that its NPU calls read in SRAM."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    out = tmp_path_factory.mktemp("resident") / "out"
    compile_model(MODEL, CompileOptions(resident="all", effort="quick"), out)
    return out


def test_twenty_calls_are_bit_exact_after_one_init(cli: Callable, resident: Path) -> None:
    cli.bit_exact(resident, MODEL, "--steps", 20)
    artifact = Artifact.load(resident)
    assert artifact.resident_bytes > 0
    assert artifact.init_cycles >= artifact.resident_bytes // 16
    found = [b for b in artifact.problem.buffers if b.kind is BufferKind.RESIDENT]
    assert [b.lifetimes for b in found] == [(Lifetime(0, len(artifact.problem.points)),)]
    assert "resident constants" in (resident / "memory.txt").read_text()


def test_firmware_loads_them_too(cli: Callable, resident: Path) -> None:
    need_runner("unicorn")
    ran = cli("run", resident, "--on", "unicorn", "--reference", MODEL)
    assert ran.out.splitlines()[0].endswith("bit-exact"), ran.err


def test_a_missing_init_is_found(cli: Callable, resident: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(resident, broken)
    source = broken / "src" / "digits.c"
    text = source.read_text()
    body = text[text.index("int32_t digits_init(") : text.index("int32_t digits_run(")]
    without = re.sub(r"  status = \w+\(pools\);.*\n", "  (void)pools;\n", body)
    assert without != body
    source.write_text(text.replace(body, without))
    runner = host.create(broken, RunOptions(verify=False))
    with pytest.raises(UnwrittenInputError, match="digits_init leaves"):
        runner.reset()
    assert cli("run", broken, "--on", "local", "--reference", MODEL).code != 0


def test_the_verifier_keeps_resident_bytes_for_all_of_the_program(resident: Path) -> None:
    artifact = Artifact.load(resident)
    problem, plan = artifact.problem, artifact.plan
    assert verify(problem, plan) == ()
    kept = next(b for b in problem.buffers if b.kind is BufferKind.RESIDENT)
    first = next(b for b in problem.buffers if b.kind is not BufferKind.RESIDENT)
    at = plan.placement(kept.name)
    moved = [replace(p, offset_bytes=at.offset_bytes) if p.buffer == first.name else p for p in plan.placements]
    found = verify(problem, replace(plan, placements=tuple(moved)))
    assert Constraint.OVERLAP in {v.constraint for v in found}
    shorter = replace(kept, lifetimes=(Lifetime(1, len(problem.points)),))
    buffers = tuple(shorter if b is kept else b for b in problem.buffers)
    found = verify(replace(problem, buffers=buffers), plan)
    assert {v.constraint for v in found} == {Constraint.RESIDENT}


def test_auto_uses_the_room_that_a_pool_has(cli: Callable, tmp_path: Path) -> None:
    requested = (MODEL, "--json", "--pool", "sram=24KiB", *QUICK)
    plain = cli("compile", *requested, "-o", tmp_path / "plain")
    made = cli.ok("compile", *requested, "--resident", "auto", "-o", tmp_path / "auto")
    assert plain.json["resident_bytes"] == plain.json["init_cycles"] == 0
    assert 0 < made.json["resident_bytes"] <= made.json["pools"][0]["used_bytes"] <= 24 * 1024
    assert made.json["estimated_cycles"] < plain.json["estimated_cycles"]
    cli.bit_exact(tmp_path / "auto", MODEL)


OTHERS = [
    ("--accelerator ethos-u65-512 --memory-mode Dedicated_Sram", ""),
    ("--accelerator ethos-u55-64", ""),
    ("--accelerator ethos-u85-256", ""),
    ("--board alif-e7-hp", ""),  # the pool has the choice of two fast memories
    ("", "trained_lstm_int8"),  # states
    ("--accelerator ethos-u65-256 --memory-mode Dedicated_Sram", "trained_lstm_int8"),  # and states in DRAM
]


@pytest.mark.parametrize(("options", "name"), OTHERS)
def test_other_npus_and_pools(cli: Callable, tmp_path: Path, options: str, name: str, shared_model: Callable) -> None:
    model = shared_model(name) if name else MODEL
    made = cli.ok("compile", model, *options.split(), *QUICK, "--json", "--resident", "all", "-o", tmp_path / "out")
    assert made.json["resident_bytes"] > 0
    artifact = Artifact.load(tmp_path / "out")
    assert bool(artifact.states) == bool(name)
    kept = [b.name for b in artifact.problem.buffers if b.kind is BufferKind.RESIDENT]
    assert {artifact.plan.placement(buffer).pool for buffer in kept} == {"sram"}
    cli.bit_exact(tmp_path / "out", model, "--steps", 5)


@pytest.mark.parametrize("name", ["ad01_int8"])
def test_more_resident_bytes_save_cycles(cli: Callable, tmp_path: Path, name: str, shared_model: Callable) -> None:
    model = shared_model(name)
    found = []
    for number, size in enumerate(("none", 50_000, 100_000, "all")):
        out = tmp_path / str(number)
        made = cli.ok("compile", model, "--effort", "quick", "--no-check", "--json", "--resident", size, "-o", out)
        found.append(made.json["estimated_cycles"])
        cli.bit_exact(out, model, "--steps", 2)
    assert all(less < more for more, less in pairwise(found))
    assert found[-1] < 0.2 * found[0]  # flash is hardly read any more


def test_the_program_is_chosen_again_for_constants_in_sram(
    cli: Callable, tmp_path: Path, shared_model: Callable
) -> None:
    """What flash made of it, convolutions in slices, is not kept: all in the pool is as good as Sram_Only."""
    model, quick = shared_model("kws_ref_model"), ("--effort", "quick", "--no-check", "--json")
    found = {}
    for name, options in (("resident", ("--resident", "all")), ("sram", ("--memory-mode", "Sram_Only"))):
        made = cli.ok("compile", model, *quick, *options, "-o", tmp_path / name)
        found[name] = made.json["estimated_cycles"]
    assert found["resident"] <= 1.05 * found["sram"]
    cli.bit_exact(tmp_path / "resident", model, "--steps", 20)
