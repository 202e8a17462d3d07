"""The verdict on a run, the choice of a runner, and what doctor says."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.base import RunnerError, RunnerMissingError, RunOptions
from fvp_runner.fvp import HINT as FVP_HINT
from fvp_runner.result import ComparisonError, RunResult, compare_output, compare_outputs
from fvp_runner.runner import RUNNERS
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.commands import doctor
from npu_memplan.process.incidents import gather_incidents
from tests.support.entry import invoke
from tests.support.plain_artifacts import plain_artifact, write

A = np.array([[1, -2, 3]], np.int8)


def test_the_json_form_is_the_contract() -> None:
    wrong = np.array([[1, 127, 3]], np.int8)
    result = compare_outputs("qemu", ["scores"], [wrong], [A])
    assert json.loads(result.to_json()) == {
        "runner": "qemu",
        "bit_exact": False,
        "outputs": [{"name": "scores", "elements": 3, "mismatches": 1, "max_abs_diff": 129}],
    }
    exact = compare_outputs(
        "fvp", ["scores"], [A], [A], runner_version="11.27", npu_cycles=5, cycles_are_estimates=False
    )
    document = exact.to_dict()
    assert document["bit_exact"] is True
    assert document["runner_version"] == "11.27"
    assert (document["npu_cycles"], document["npu_cycles_are_estimates"]) == (5, False)


def test_a_run_without_outputs_is_not_bit_exact() -> None:
    assert not RunResult("local", ()).bit_exact


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
def test_differences_of_whole_numbers_do_not_wrap(dtype: type) -> None:
    low, high = np.array([np.iinfo(dtype).min], dtype), np.array([np.iinfo(dtype).max], dtype)
    assert compare_output("x", low, high).max_abs_diff == int(high[0]) - int(low[0])


def test_floats_are_compared_exactly_and_nan_only_equals_nan() -> None:
    a = np.array([1.0, np.nan, np.nan, np.inf], np.float32)
    b = np.array([np.nextafter(np.float32(1), np.float32(2)), np.nan, 0.0, np.inf], np.float32)
    found = compare_output("x", a, b)
    assert (found.mismatches, found.max_abs_diff) == (2, np.inf)
    near = compare_output("x", a[:2], b[:2])
    assert (near.mismatches, near.max_abs_diff) == (1, 2.0**-23)
    assert compare_output("x", a, a).mismatches == 0


@pytest.mark.parametrize("other", [A.astype(np.uint8), A.reshape(3)])
def test_shape_and_type_must_agree(other: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(ComparisonError, match=r"output 'x' is int8\[1, 3\], the reference"):
        compare_outputs("local", ["x"], [A], [other])
    with pytest.raises(ComparisonError, match="local gave 1 output, the reference 0, the model names 1"):
        compare_outputs("local", ["x"], [A], [])


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tool on PATH, and neither optional Python package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FVP_PATH", raising=False)
    monkeypatch.delenv("CC", raising=False)
    known = doctor.metadata.version
    absent = ("unicorn", "tflite-micro", "ai-edge-litert", "onnx")

    def version(name: str) -> str:
        if name in absent:
            raise doctor.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(doctor.metadata, "version", version)


FVPS = "; ".join(f"FVP_Corstone_SSE-{name}" for name in ("300_Ethos-U55", "300_Ethos-U65", "310", "315", "320"))


def required(name: str) -> str:
    """What pyproject.toml requires of a package: the commands need no index that has npu_memplan."""
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    (found,) = set(re.findall(rf'^[^#\n]*"({name}[=<>][^"]*)"', text, re.M))
    limits = ",".join(sorted(found.removeprefix(name).split(",")))  # as metadata has them
    return name + limits


def test_doctor_on_a_bare_machine_prints_what_to_install(bare_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = invoke("doctor", code=None)
    assert result.exit_code == 1, "a C compiler is needed"
    tail = result.output.split("To install what is missing:\n")[1]
    assert tail.splitlines() == [
        "  apt-get install -y gcc libc6-dev",
        "Optional and absent:",
        f"  tflite-micro: pip install {required('tflite-micro')}",
        f"  unicorn: pip install '{required('unicorn')}'",
        "  arm-none-eabi-gcc; newlib for Arm; qemu-system-arm: apt-get install -y qemu-system-arm gcc-arm-none-eabi "
        "libnewlib-arm-none-eabi",
        f"  LiteRT: pip install '{required('ai-edge-litert')}'",
        f"  onnx: pip install '{required('onnx')}'",
        f"  {FVPS}: {FVP_HINT}",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "  sudo apt-get install -y gcc libc6-dev" in invoke("doctor", code=None).output


def test_doctor_keeps_what_is_needed_and_what_is_optional_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    all_there = tuple(dataclasses.replace(f, found=f.found or "1.0") for f in doctor.look())
    bare = tuple(f if f.needed else dataclasses.replace(f, found=None) for f in all_there)
    monkeypatch.setattr(doctor, "look", lambda: bare)
    result = invoke("doctor", code=None)
    assert result.exit_code == 0, "nobody needs what is optional"
    assert "absent   unicorn" in result.output
    assert "missing" not in result.output.split("\n\n")[0]
    assert "\n\nEverything needed is here.\nOptional and absent:\n  tflite-micro: pip install" in result.output
    assert result.output.count(FVP_HINT) == 1
    for needed in [f for f in all_there if f.needed]:
        without = tuple(dataclasses.replace(f, found=None) if f is needed else f for f in all_there)
        monkeypatch.setattr(doctor, "look", lambda without=without: without)
        result = invoke("doctor", code=None)
        assert (result.exit_code, result.output.splitlines()[-1]) == (1, f"  {needed.hint}")
    monkeypatch.setattr(doctor, "look", lambda: all_there)
    assert invoke("doctor", code=None).output.endswith("\n\nEverything needed is here.\n")


@pytest.mark.parametrize("value", ["'x", "   ", "no-such-cc -O3"])
def test_doctor_takes_any_cc(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CC", value)
    result = invoke("doctor", code=None)
    assert not isinstance(result.exception, Exception)
    missing = "missing  C compiler" in result.output
    assert (missing, result.exit_code) == ((False, 0) if value.isspace() else (True, 1))


def test_doctor_counts_a_tool_that_does_not_answer_as_missing(bare_machine: None, tmp_path: Path) -> None:
    broken = tmp_path / "qemu-system-arm"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    document = json.loads(invoke("doctor", "--json", code=None).output)
    (found,) = [f for f in document["findings"] if f["name"] == "qemu-system-arm"]
    assert found["found"] is None
    assert list(document["runners"]) == list(RUNNERS)
    assert all(document["runners"].values()), "none can run"


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    slot = TensorSlot("in", "int8", (1, 4), "sram", 0, 4, 1.0, 0)
    write(plain_artifact("toy", "ethos-u55-256", 64, (slot,), (slot,)), tmp_path / "toy", "")
    return tmp_path / "toy"


def test_the_best_runner_is_chosen_in_a_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    able: set[str] = set(RUNNERS)
    monkeypatch.setattr(runner, "missing", lambda name, options=None: None if name in able else f"no {name}")
    for name in ("fvp", "qemu", "unicorn", "local"):
        with gather_incidents() as told:
            assert runner.choose_runner() == name
        passed = ", ".join(runner.RUNNERS[: runner.RUNNERS.index(name)])
        line = f"runner {name} was taken: {passed} cannot run here (npu-memplan doctor says why)"
        assert told.fallbacks == ([line] if passed else [])
        able.remove(name)
    with pytest.raises(RunnerMissingError, match=r"(?s)no runner can run here:\n  fvp: no fvp\n  qemu: no qemu"):
        runner.choose_runner()


def test_the_local_runner_is_chosen_where_the_board_is_too_small(tmp_path: Path) -> None:
    slot = TensorSlot("in", "int8", (1, 4), "sram", 0, 4, 1.0, 0)
    code = "#include <stdint.h>\nint32_t large_step(uint8_t *const pools[]) { return pools == 0; }\n"
    write(plain_artifact("large", "ethos-u55-256", 64 << 20, (slot,), (slot,)), tmp_path / "large", code)
    with gather_incidents() as told:
        assert runner.create("auto", tmp_path / "large").name == "local"
    assert "runner local, which has no board, runs it instead of" in told.fallbacks[-1]
    assert "needs 64.00 MiB" in told.fallbacks[-1]
    with pytest.raises(RunnerError, match=r"needs 64\.00 MiB .* left on board"):
        runner.create("qemu", tmp_path / "large")


def test_a_missing_runner_says_what_to_install(toy: Path, bare_machine: None) -> None:
    with pytest.raises(RunnerMissingError, match=r"runner 'qemu' cannot run here: .*apt-get install qemu-system-arm"):
        runner.create("qemu", toy)
    with pytest.raises(RunnerMissingError, match=r"(?s)no runner can run here:.*fvp: .*qemu: .*unicorn: .*local: "):
        runner.create("auto", toy)
    with pytest.raises(RunnerError, match="unknown runner 'renode'; choose one of: fvp, qemu, unicorn, local"):
        runner.create("renode", toy)


def test_unicorn_refuses_a_cpu_it_does_not_have(unicorn_engine: None, toy: Path) -> None:
    with pytest.raises(RunnerMissingError, match=r"Unicorn has no cortex-m55; leave the CPU out"):
        runner.create("unicorn", toy, RunOptions(cpu="cortex-m55"))
