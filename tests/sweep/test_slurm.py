"""Slurm's face by submitit, on submitit's own local cluster: the same calls, processes in place of nodes."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.options import CompileOptions
from npu_memplan.sweep import SweepError, cases, run
from npu_memplan.sweep.executors.slurm import SubmititExecutor, slurm_executor
from npu_memplan.sweep.table.export import csv_of

from .conftest import DIGITS

submitit = pytest.importorskip("submitit", reason="needs submitit (pip install npu_memplan[slurm])")


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[SubmititExecutor]:
    local = submitit.LocalExecutor(folder=tmp_path / "jobs")
    local.update_parameters(timeout_min=5)
    with SubmititExecutor(local, cases_a_job=5) as found:
        yield found


def test_a_sweep_by_jobs_of_several_cases(executor: SubmititExecutor, tmp_path: Path) -> None:
    every = cases([DIGITS], [CompileOptions("none", seed=seed) for seed in range(8)])
    swept = run(every, executor, store=tmp_path / "results")
    assert swept.missing == []
    assert len(list((tmp_path / "jobs").glob("*_result.pkl"))) == 2, "eight cases are two jobs"
    assert csv_of(swept.table()) == csv_of(run(every, "processes:1").table())


def test_a_lost_job_fails_its_own_calls_alone(executor: SubmititExecutor) -> None:
    good = [executor.submit(len, "x" * n) for n in range(4)]
    bad = [executor.submit(_die), *(executor.submit(len, "y") for _ in range(5))]
    wait([*good, *bad], 120)
    errors = [future.exception() is not None for future in (*good, *bad)]
    assert errors == [True] * 5 + [False] * 5, "the job of the first five calls died, the other did not"
    assert [future.result() for future in bad[1:]] == [1] * 5


def test_a_job_imports_nothing_from_the_folder_it_runs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("enum", "numpy", "pickle", "submitit", "this"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")
    monkeypatch.chdir(tmp_path)
    with slurm_executor("3,cluster=local") as found:
        python = shlex.split(found._executor._executor.python)
    done = subprocess.run([*python, "-u", "-m", "this", "folder"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The Zen of Python")


def _die() -> None:
    import os

    os._exit(3)


def test_what_is_asked_of_slurm_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NPU_MEMPLAN_SUBMITIT", str(tmp_path))
    with pytest.raises(SweepError, match="--executor slurm:20: "):
        slurm_executor("20")
    with pytest.raises(SweepError, match="give slurm:JOBS,KEY=VALUE"):
        slurm_executor("20,partition")
    found: Any = slurm_executor("3,cluster=local,timeout_min=5")
    assert found.submit(len, "abc").result(60) == 3
    assert found.window == 3 * 2 * 25
    found.shutdown()
