"""A real cluster of dask on this machine: scheduler and workers as processes, one killed, one late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.options import CompileOptions
from npu_memplan.process.python_child import python_module
from npu_memplan.sweep import Outcome, Store, cases, run
from npu_memplan.sweep.table.export import csv_of, json_of
from tests.support.real_data import real_model

from .conftest import DIGITS

pytest.importorskip("distributed", reason="needs dask.distributed (pip install npu_memplan[dask])")


class Cluster:
    """A scheduler and workers of one thread each, without nannies that would start a killed one again."""

    def __init__(self, folder: Path, runs_in: Path | None = None) -> None:
        self.runs_in = runs_in
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.scheduler = self._start("scheduler", "--port", "0", "--host", "127.0.0.1", "--no-dashboard")
        deadline = time.monotonic() + 60
        while not (self.file.exists() and self.file.stat().st_size):
            assert time.monotonic() < deadline
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]
        self.workers: list[subprocess.Popen[bytes]] = []

    def add(self) -> None:
        flags = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder))
        self.workers.append(self._start("worker", *flags))

    def _start(self, what: str, *flags: str) -> subprocess.Popen[bytes]:
        command = python_module("dask", what, "--scheduler-file", str(self.file), *flags)
        return subprocess.Popen(command, cwd=self.runs_in, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


def test_one_worker_is_killed_and_one_comes_late(cluster: Cluster, tmp_path: Path) -> None:
    options = [
        CompileOptions(name, seed=seed, objective="bytes") for name in ("ethos-u55-128", "none") for seed in range(6)
    ]
    every = cases([DIGITS, real_model("hello_world_int8")], options)
    for _ in range(2):
        cluster.add()
    done = threading.Event()

    def disturb(count: int, total: int, newest: Any) -> None:
        if count == 4 and not done.is_set():
            os.kill(cluster.workers[0].pid, signal.SIGKILL)
            cluster.add()
            done.set()

    spec = cluster.address.replace("tcp:", "dask:")
    swept = run(every, spec, store=tmp_path / "results", progress=disturb)
    assert done.is_set()
    assert swept.missing == []
    assert len(swept.results) == len(every) == 24
    lines = [line for path in (tmp_path / "results").iterdir() for line in path.read_bytes().splitlines()]
    assert len(lines) == len(every)
    local = run(every, "processes:1").table()
    assert csv_of(swept.table()) == csv_of(local)
    assert json_of(swept.table()) == json_of(local)
    assert len(Store(tmp_path / "results").read()) == len(every)


def test_a_worker_imports_nothing_from_the_folder_it_runs_in(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("enum", "numpy", "tvm", "ethosu", "npu_memplan"):
        (hostile / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")
    cluster = Cluster(tmp_path, hostile)
    try:
        cluster.add()
        every = cases([DIGITS], [CompileOptions("ethos-u55-128", npu_compiler="vela", objective="bytes")])
        swept = run(every, cluster.address.replace("tcp:", "dask:"))
    finally:
        cluster.close()
    assert [result.outcome for result in swept.results.values()] == [Outcome.FITS]
