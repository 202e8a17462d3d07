"""Real sweeps: once computed is computed, what goes wrong is a result, and the others are unharmed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions
from npu_memplan.process.incidents import STRICT
from npu_memplan.sweep import CaseLimits, Outcome, Result, SweepError, Verification, cases, run
from npu_memplan.sweep.executors.specs import LocalProcesses, open_executor
from npu_memplan.sweep.results import Cost
from npu_memplan.sweep.table.export import csv_of, json_of
from npu_memplan.sweep.worker.guard import family, solve
from npu_memplan.sweep.worker.job import job_of, model_of
from npu_memplan.target_data import targets_folder

from .conftest import BAD, DIGITS, small_cases


def facts(result: Result) -> Result:
    """Everything but the cost, which is the machine's."""
    return replace(result, cost=Cost())


def children() -> list[int]:
    """Processes for cases that this one has started."""
    mine = list(family(os.getpid()))[1:]
    return [process for process in mine if b"sweep.worker" in Path(f"/proc/{process}/cmdline").read_bytes()]


def test_results_are_those_of_compile(small_sweep: Any) -> None:
    every, _, results = small_sweep
    for case in every:
        found = results[case.key]
        if case.options.pools or case.options.stripes:
            continue
        artifact = plan_model(case.model.path, case.options).artifact
        assert found.outcome is Outcome.FITS
        assert found.pools == {"sram": artifact.pool_bytes("sram")}
        assert (found.constants_bytes, found.stream_bytes) == (artifact.constants_bytes, artifact.stream_bytes)
        assert (found.cycles, found.plan) == (artifact.estimated_cycles, artifact.plan.status.value)
        assert (found.host_cycles, found.host_clock_hz) == (artifact.host_cycles, artifact.host_clock_hz)
        assert sum(found.operators.values()) == len(artifact.operators)
        assert found.cost.cpu_seconds > 0


def test_what_does_not_fit_or_compile_says_why(small_sweep: Any) -> None:
    every, _, results = small_sweep
    told = {(c.network, c.target): results[c.key] for c in every}
    small = told["digits", "ethos-u55-256 --pool sram=3000"]
    assert small.outcome is Outcome.NO_ROOM
    assert small.reason == "needs 6,144 bytes of sram, which has 3,000"
    refused = told["digits", "none --stripes"]
    assert refused.outcome is Outcome.REFUSED
    assert refused.reason.startswith("--stripes cuts the NPU operations of native lowering")


def test_the_second_run_computes_nothing(small_sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    every, store, results = small_sweep
    monkeypatch.setattr("npu_memplan.sweep.drive.open_executor", lambda spec: pytest.fail("asked an executor"))
    again = run(every, "processes:2", store=store)
    assert (again.results, again.computed) == (results, 0)


def test_any_executor_any_order_the_same_table(small_sweep: Any, tmp_path: Path) -> None:
    """One thread of somebody else's executor, backwards, where some are there already: the same bytes."""
    every, store, _ = small_sweep
    first = run(every, store=store)
    with ThreadPoolExecutor(1) as executor:
        run(every[3:5], executor, store=tmp_path)
        run(every[::-1], executor, store=tmp_path)
    table = run(every, store=tmp_path).table()
    assert csv_of(table) == csv_of(first.table())
    assert json_of(table) == json_of(first.table())
    assert children() == [], "the processes end with the executor's threads"


def test_what_crashes_hangs_or_eats_is_a_result_and_the_others_are_unharmed(small_sweep: Any, tmp_path: Path) -> None:
    every, _, results = small_sweep
    planners = ("crash", "hang", "eat", "defect", "auto")
    bad = cases(
        [DIGITS], [CompileOptions("ethos-u55-128", planner=name, objective="bytes") for name in planners], plugins=[BAD]
    )
    limits = CaseLimits(seconds=6, memory_bytes=600 << 20)
    swept = run([*bad, every[0], every[4]], "processes:1", store=tmp_path, limits=limits)
    told = [(swept.results[case.key].outcome, swept.results[case.key].reason) for case in bad]
    assert told == [
        (Outcome.CRASHED, "its process ended by SIGSEGV"),
        (Outcome.TIMED_OUT, "took longer than the limit of 6 s"),
        (Outcome.OUT_OF_MEMORY, "took more than the limit of 629,145,600 bytes of memory"),
        (Outcome.CRASHED, "KeyError: 'a defect'"),
        (Outcome.FITS, ""),
    ]
    for case in (every[0], every[4]):
        assert facts(swept.results[case.key]) == facts(results[case.key])
    assert swept.results[bad[2].key].cost.memory_bytes < 1 << 30, "ended soon after the limit"
    assert children() == []
    again = run(bad, store=tmp_path, limits=limits)
    assert again.computed == 0
    assert swept.missing == []


def test_a_fault_and_a_fallback_inside_a_case_are_in_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(STRICT)
    (case,) = cases([DIGITS], [CompileOptions("ethos-u55-128", planner="half", objective="bytes")], plugins=[BAD])
    found = run([case], "processes:1", store=tmp_path).results[case.key]
    assert found.outcome is Outcome.FITS
    assert found.incidents == (
        "internal fault: the better half: KeyError: 'a defect'",
        "the other half stands in, in sweep",
    )
    assert found.faulty
    again = run([case], "processes:1", store=tmp_path)
    assert again.computed == 0
    assert facts(again.results[case.key]) == facts(found)


def test_where_nobody_can_watch_an_allocation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc the memory is not seen, and the limit of what is writable ends it."""
    monkeypatch.setattr("npu_memplan.sweep.worker.guard.resident_bytes", lambda process: 0)
    greedy = cases([DIGITS], [CompileOptions("ethos-u55-128", planner="eat", objective="bytes")], plugins=[BAD])
    (found,) = run(greedy, "processes:1", limits=CaseLimits(60, 500 << 20)).results.values()
    assert (found.outcome, found.reason) == (Outcome.OUT_OF_MEMORY, "an allocation was refused")
    assert not found.holds_for(CaseLimits(60, 501 << 20))


def test_processes_of_pythons_own_pool(small_sweep: Any) -> None:
    every, _, results = small_sweep
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        (found,) = run(every[2:3], executor).results.values()
    assert facts(found) == facts(results[every[2].key])


def test_a_board_of_ones_own_travels_and_constants_need_room_on_it(tmp_path: Path) -> None:
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text()
    small = text.replace("size_bytes = 0x800000", "size_bytes = 0x1000").replace(
        "size_bytes = 0x2000000", "size_bytes = 0x1000"
    )
    assert small != text
    (tmp_path / "own.toml").write_text(small)
    options = [CompileOptions(board=str(tmp_path / "own.toml")), CompileOptions(board="corstone-300-u55")]
    own, shipped = run(cases([DIGITS], options), "processes:1").results.values()
    assert shipped.outcome is Outcome.FITS
    assert own.outcome is Outcome.NO_ROOM
    assert "is short by" in own.reason


def test_artifacts_are_run_against_their_reference(small_sweep: Any) -> None:
    every, _, _ = small_sweep
    requested = [replace(every[0], verification=Verification("local", 2))]
    (found,) = run(requested, "processes:1").results.values()
    assert found.runs is not None
    assert (found.runs.runner, found.runs.seeds, found.runs.exact, found.runs.stopped) == ("local", 2, 2, "")
    assert found.runs.reference == "tflite-micro"


def test_a_result_that_differs_from_the_reference_shows(tmp_path: Path, small_sweep: Any) -> None:
    """A plug-in that lets the NPU model compute something else: the sweep says that it is not exact."""
    plugin = tmp_path / "wrong.py"
    plugin.write_text(
        "from fvp_runner.host.runner import LocalRunner\n"
        "from dataclasses import replace\n"
        "right = LocalRunner.run\n"
        "def run(self, inputs):\n"
        "    ran = right(self, inputs)\n"
        "    return replace(ran, outputs=tuple(o ^ 1 for o in ran.outputs))\n"
        "LocalRunner.run = run\n"
    )
    every, _, _ = small_sweep
    wrong = cases([DIGITS], [every[0].options], Verification("local", 2), [plugin])
    swept = run(wrong, "processes:1")
    (row,) = swept.table().rows
    assert row.exact is False
    assert row.exactness == "differs in 2 of 2"


def test_other_versions_on_a_worker_are_no_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    every = small_cases()
    monkeypatch.setattr("npu_memplan.versions.versions", lambda run: (("npu_memplan", "9"),))
    swept = run([every[0]], "processes:1", store=tmp_path)
    (found,) = swept.missing
    assert "in place of 9; install there what is installed here" in found.reason
    assert not list(tmp_path.glob("*")), "nothing is kept"


class _Losing(ThreadPoolExecutor):
    """Loses the worker of the first calls, as clusters do."""

    def __init__(self, losses: int) -> None:
        super().__init__(1)
        self.losses = losses

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.losses -= 1
        if self.losses >= 0:
            return super().submit(_lose)
        return super().submit(fn, *args, **kwargs)


def _lose() -> Result:
    raise ConnectionError("the worker is gone")


@pytest.mark.parametrize(("losses", "outcome"), [(2, Outcome.REFUSED), (3, Outcome.NOT_TRIED)])
def test_a_lost_worker_is_tried_again(losses: int, outcome: Outcome, tmp_path: Path) -> None:
    refused = small_cases()[3]
    with _Losing(losses) as executor:
        swept = run([refused, replace(refused, network="again")], executor, store=tmp_path)
    assert [result.outcome for result in swept.results.values()] == [outcome]
    assert len(swept.table().rows) == 2
    if outcome is Outcome.NOT_TRIED:
        assert swept.missing[0].reason == "its worker was lost 3 times: ConnectionError: the worker is gone"


def test_what_runs_is_ended_when_it_is_cancelled() -> None:
    """Also a process that is still starting; another executor's goes on."""
    (job, model), patience = (job_of(small_cases()[3], CaseLimits()), model_of(small_cases()[3])), CaseLimits(300)
    (hang,) = cases([DIGITS], [CompileOptions("ethos-u55-128", planner="hang", objective="bytes")], plugins=[BAD])
    with LocalProcesses(1) as other, LocalProcesses(2) as executor:
        assert other.submit(solve, job, model).result(60).outcome is Outcome.REFUSED
        mine = children()
        hanging = [executor.submit(solve, job_of(hang, patience), model_of(hang)) for _ in range(3)]
        while len(children()) < len(mine) + 2:
            time.sleep(0.02)
        started = time.monotonic()
        executor.shutdown(cancel_futures=True)
        assert time.monotonic() - started < 60
        assert hanging[2].cancelled()
        assert [future.result(1).outcome for future in hanging[:2] if not future.cancelled()].count(Outcome.FITS) == 0
        assert children() == mine


def test_a_broken_executor_stops_with_what_it_has(tmp_path: Path) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(SweepError, match=r"the executor takes no more cases: .*; run the sweep again to go on"):
        run(small_cases()[:1], executor, store=tmp_path)


def _command(folder: Path) -> list[str]:
    model = str(DIGITS)
    options = [word for seed in range(12) for word in ("--option", f"--seed {seed} --optimise Size --objective bytes")]
    return [
        sys.executable,
        "-m",
        "npu_memplan",
        "sweep",
        model,
        "-o",
        str(folder),
        "--executor",
        "processes:1",
        *options,
    ]


def test_killed_and_resumed_it_is_the_same_table(tmp_path: Path) -> None:
    """SIGKILL twice in the middle; nothing of it stays behind, and what was done is not done again."""
    done = 0
    for _ in range(2):
        process = subprocess.Popen(_command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started = done
        deadline = time.monotonic() + 120
        while done <= started + 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            done = sum(path.read_bytes().count(b"\n") for path in (tmp_path / "killed").glob("results/*.jsonl"))
        kin = list(family(process.pid))
        assert len(kin) > 1
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _wait_until_gone(kin)
    said = subprocess.run(_command(tmp_path / "killed"), capture_output=True, text=True, check=True)
    assert f"12 cases: 12 fits; {12 - done} computed now" in said.stdout
    assert 6 <= done < 12
    assert said.stderr == ""
    lines = [line for path in (tmp_path / "killed").glob("results/*.jsonl") for line in path.read_bytes().splitlines()]
    assert len(lines) == 12, "none was computed twice"


def _wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(_alive(process) for process in processes):
        assert time.monotonic() < deadline, "something of a killed sweep is still running"
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_package_adds_an_executor_by_an_entry_point(
    small_sweep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata of an installed package, on the path: one new name, and one of ours, which stays ours."""
    info = tmp_path / "somebody-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[npu_memplan.executors]\nthreads = threads_of_somebody:make\nprocesses = threads_of_somebody:make\n"
    )
    (tmp_path / "threads_of_somebody.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\nmake = lambda text: ThreadPoolExecutor(int(text))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    every, store, _ = small_sweep
    there, own = run(every[:2], "threads:1", store=tmp_path / "store"), run(every[:2], store=store)
    assert csv_of(there.table()) == csv_of(own.table())
    with open_executor("processes:1") as ours:
        assert isinstance(ours, LocalProcesses)
