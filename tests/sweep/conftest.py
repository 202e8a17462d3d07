"""Sweeps to test with: a real one of small models, made once, and tables put together by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.options import CompileOptions
from npu_memplan.sweep import Case, Outcome, Result, cases, local_executor, run
from npu_memplan.sweep.case import Runs
from npu_memplan.sweep.table import CaseLabel, Table, table_of
from tests.support.real_data import REPOSITORY, real_model

DIGITS = REPOSITORY / "examples" / "digits" / "digits.tflite"
BAD = Path(__file__).with_name("bad_planners.py")


def small_cases() -> list[Case]:
    """Two models on four targets: everything fits but one, and one cannot be compiled."""
    targets = [
        CompileOptions("ethos-u55-128", objective="bytes", effort="quick"),
        CompileOptions(optimise="Size", objective="bytes", effort="quick"),
        CompileOptions(pools={"sram": 3000}),
        CompileOptions("none", stripes=True),
    ]
    return cases([DIGITS, real_model("hello_world_int8")], targets)


@pytest.fixture(scope="session")
def small_sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Case], Path, dict[str, Result]]:
    """`small_cases`, the file that holds them, and their results; computed by two processes."""
    store = tmp_path_factory.mktemp("sweep") / "results.jsonl"
    every = small_cases()
    with local_executor(2) as executor:
        return every, store, run(every, executor, store=store).results


@pytest.fixture
def made_table() -> Callable[..., Table]:
    """`made_table({("net", "ethos-u55-128"): result("..."), ...})`."""

    def make(results: dict[tuple[str, str], Result], models: str = "") -> Table:
        requested = [CaseLabel(n, t, t.split()[0], f"{n}{models}", f"{n}/{t}") for n, t in results]
        return table_of(requested, {f"{n}/{t}": r for (n, t), r in results.items()}, {"npu_memplan": "1"})

    return make


def result(sram: int, cycles: int | None, **more: Any) -> Result:
    """A result that fits, at 500 MHz."""
    runs = more.pop("runs", None)
    values: dict[str, Any] = {"constants_bytes": 1000, "stream_bytes": 24, "plan": "optimal", **more}
    pools = values.pop("pools", {"sram": sram})
    exact = None if runs is None else Runs("local", 2, runs)
    return Result("", Outcome.FITS, pools=pools, cycles=cycles, clock_hz=5e8, runs=exact, **values)
