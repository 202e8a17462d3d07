"""Conformance tests that tosa-tools makes while this runs: Vela's streams on the NPU model equal its reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fvp_runner.npu_model.spec.u85 import CONFIRMED
from npu_memplan.exactness import TOSA_EXACT
from tests.support.entry import invoke
from tests.support.tosa_case import EQUAL, try_case

from .conftest import CONTROL, OPERATORS


def _first(conformance: Path, operator: str) -> Path:
    """A test of the operator, not of booleans, of which Vela gathers none."""
    return next(
        case for case in sorted((conformance / operator).iterdir()) if "_b_" not in case.name or "any" in operator
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_streams_equal_the_reference_model(conformance: Path, operator: str, u85_of: Callable[..., str]) -> None:
    case = _first(conformance, operator)
    trial = try_case(case, u85_of(case.name))
    assert (trial.name, trial.outcome, trial.why) == (case.name, EQUAL, "")
    assert trial.features <= CONFIRMED
    assert trial.kinds <= TOSA_EXACT[trial.operator]


@pytest.mark.parametrize("operator", CONTROL)
def test_both_sides_of_jumps_equal_the_reference_model(
    conformance: Path, operator: str, u85_of: Callable[..., str]
) -> None:
    cases = {case.name.rpartition("_")[2]: case for case in (conformance / operator).iterdir()}  # one of each condition
    assert cases.keys() == ({"iter0", "iter1", "iter4"} if operator == "while_loop" else {"cond0", "cond1"})
    for case in cases.values():
        trial = try_case(case, u85_of(case.name))
        assert (trial.name, trial.outcome, trial.why) == (case.name, EQUAL, "")


def test_simulate_compiles_runs_and_compares(conformance: Path) -> None:
    path = _first(conformance, "select") / "test.tosa"
    said = invoke("simulate", path, "--accelerator", "ethos-u85-256", "--reference", path, code=None)
    assert (said.exit_code, said.output.splitlines()[-1]) == (0, "bit-exact"), said.output
    without = invoke("simulate", path, code=None)
    assert "test.tosa is TOSA, which Vela compiles first: give --accelerator, e.g. ethos-u85-256" in str(
        without.exception
    )


def test_a_compiled_graph_runs_on_its_planned_pools(conformance: Path, tmp_path: Path) -> None:
    path = _first(conformance, "matmul") / "test.tosa"
    arguments = [str(path), "--accelerator", "ethos-u85-256", "-o", str(tmp_path / "made"), "--json"]
    compiled = invoke("compile", *arguments)
    assert json.loads(compiled.stdout)["exactness"]["exact"] == 1
    arguments = [str(tmp_path / "made"), "--on", "local", "--reference", str(path), "--json"]
    ran = invoke("run", *arguments)
    assert json.loads(ran.stdout)["bit_exact"]


@pytest.mark.parametrize("more", [["--accelerator", "none"], ["--host-ops", "ADD"]])
def test_options_that_tosa_has_no_use_for(conformance: Path, tmp_path: Path, more: list[str]) -> None:
    path = _first(conformance, "sub") / "test.tosa"
    said = invoke("compile", path, "-o", tmp_path / "made", *more, code=None)
    assert said.exit_code
    assert "test.tosa is TOSA, " in str(said.exception)
    assert not (tmp_path / "made").exists()


def test_native_lowering_names_the_operator_that_it_has_no_layer_for(conformance: Path, tmp_path: Path) -> None:
    path = _first(conformance, "sub") / "test.tosa"  # of 32-bit values
    said = invoke("compile", path, "-o", tmp_path / "made", "--npu-compiler", "tvm", code=None)
    assert said.exit_code
    assert "test.tosa has no native lowering: its outputs: " in str(said.exception)
    assert not (tmp_path / "made").exists()
