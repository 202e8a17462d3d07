"""`compile --constant-pool`: weights and tables of NPU and host in planned read-only pools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.problem import BufferKind
from tests.support.entry import QUICK
from tests.support.needs import need_runner

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@pytest.mark.parametrize(
    "options",
    [("--host-ops", "FULLY_CONNECTED"), ("--npu-compiler", "tvm"), ("--accelerator", "none")],
    ids=["host and npu", "tvm", "host"],
)
def test_a_run_on_constant_pools_is_bit_exact(cli, tmp_path, options) -> None:
    out = tmp_path / "out"
    cli.ok("compile", MODEL, *options, "--constant-pool", "near=2KiB", "--constant-pool", "flash", "-o", out)
    cli.bit_exact(out, MODEL)
    artifact = Artifact.load(out)
    assert [(p.name, p.read_only) for p in artifact.problem.pools][-2:] == [("near", True), ("flash", True)]
    assert artifact.regions == (1, 0, 0)
    assert artifact.pool_bytes("near") <= 2048
    assert artifact.constants_bytes == artifact.pool_bytes("near") + artifact.pool_bytes("flash") > 0
    kinds = {b.kind for b in artifact.problem.buffers if b.pools == ("near", "flash")}
    assert kinds == {BufferKind.CONSTANT}
    memory = (out / "memory.txt").read_text()
    assert "Peak of flash" in memory
    rows = {tuple(line.split()[:4]) for line in memory.splitlines()}
    assert ("planned", "pool", "flash", f"{artifact.pool_bytes('flash'):,}") in rows
    assert ("weights", "and", "tables", "read-only") in rows
    explained = cli("explain", out).out
    flash = explained[explained.index("digits: pool flash") :]
    assert "the model" in flash
    assert "wait at the peak" not in flash  # constants always do


def test_firmware_finds_constant_pools_in_their_sections(cli, tmp_path) -> None:
    need_runner("unicorn")
    out = tmp_path / "out"
    cli.ok("compile", *QUICK, MODEL, "--constant-pool", "flash", "-o", out)
    ran = cli("run", out, "--on", "unicorn", "--reference", MODEL)
    assert ran.out.splitlines()[0].endswith("bit-exact"), ran.err
    assert "digits_flash_constants" in (out / "src" / "digits_npu.c").read_text()


def test_without_a_constant_pool_the_plan_is_as_before(cli, tmp_path) -> None:
    cli.ok("compile", *QUICK, MODEL, "-o", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert [p["name"] for p in document["pools"]] == ["sram"]
    assert "constant" not in {b["kind"] for b in document["buffers"]}
    assert not (tmp_path / "out" / "src" / "digits_constants.c").exists()


def test_too_large_constants_are_refused_with_the_numbers(cli, tmp_path) -> None:
    refused = cli("compile", *QUICK, MODEL, "--constant-pool", "flash=1KiB", "-o", tmp_path / "out")
    assert refused.code == 2
    assert "digits does not fit pool flash:" in refused.err
    assert "available  1,024 bytes (1.00 KiB)" in refused.err
    assert "  one more --constant-pool behind it, for what it does not hold" in refused.err
    assert "made by the model" in refused.err
    assert not (tmp_path / "out").exists()
