"""Real sweeps: once computed is computed, what goes wrong is a result, and the others are unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions
from npu_memplan.process.incidents import STRICT
from npu_memplan.process.programs import start_program
from npu_memplan.sweep import CaseLimits, Outcome, Result, SweepError, Verification, cases, local_executor, run
from npu_memplan.sweep.case import Cost, Shortage, append_result, read_results
from npu_memplan.sweep.run import job_of, solve_case
from npu_memplan.sweep.table import csv_of, json_of
from npu_memplan.target_data import targets_folder

from .conftest import BAD, DIGITS, result, small_cases


def facts(result: Result) -> Result:
    """Everything but the cost, which is the machine's."""
    return replace(result, cost=Cost())


def children(process: int) -> list[int]:
    """Processes for cases that `process` has started."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            if b"sweep.measure" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


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
    assert small.reason == "needs 3,072 bytes of sram, which has 3,000"
    refused = told["digits", "none --stripes"]
    assert refused.outcome is Outcome.REFUSED
    assert refused.reason.startswith("--stripes cuts the NPU operations of native lowering")


def test_the_second_run_computes_nothing(small_sweep: Any) -> None:
    every, store, results = small_sweep
    again = run(every, object(), store=store)  # type: ignore[arg-type]  # submits nothing
    assert (again.results, again.computed) == (results, 0)


def test_any_executor_any_order_the_same_table(small_sweep: Any, tmp_path: Path) -> None:
    """One thread of somebody else's executor, backwards, where some are there already: the same bytes."""
    every, store, _ = small_sweep
    every = [every[0], every[1], every[3]]  # what takes little time
    first = run(every, store=store)
    with ThreadPoolExecutor(1) as executor:
        run(every[1:2], executor, store=tmp_path / "r")
        run(every[::-1], executor, store=tmp_path / "r")
    table = run(every, store=tmp_path / "r").table()
    assert csv_of(table) == csv_of(first.table())
    assert json_of(table) == json_of(first.table())
    assert children(os.getpid()) == []


def test_an_executor_of_distributed(small_sweep: Any) -> None:
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    every, _, results = small_sweep
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        (found,) = run(every[:1], client.get_executor()).results.values()
    assert facts(found) == facts(results[every[0].key])


def test_an_executor_of_submitit(small_sweep: Any, tmp_path: Path) -> None:
    submitit = pytest.importorskip("submitit", reason="needs submitit")
    every, _, results = small_sweep
    executor = submitit.LocalExecutor(folder=tmp_path)
    executor.update_parameters(timeout_min=5)
    (found,) = run(every[:1], executor).results.values()
    assert facts(found) == facts(results[every[0].key])


def test_what_crashes_hangs_or_eats_is_a_result_and_the_others_are_unharmed(small_sweep: Any, tmp_path: Path) -> None:
    every, _, results = small_sweep
    planners = ("crash", "hang", "eat", "defect", "auto")
    bad = cases(
        [DIGITS],
        [CompileOptions("ethos-u55-128", planner=name, objective="bytes", effort="quick") for name in planners],
        plugins=[BAD],
    )
    hang, limits = bad.pop(1), CaseLimits(memory_bytes=600 << 20)
    with local_executor(1) as executor:
        timed_out = run([hang], executor, limits=CaseLimits(seconds=4)).results[hang.key]
        swept = run([*bad, every[0]], executor, store=tmp_path / "r", limits=limits)
    assert (timed_out.outcome, timed_out.reason) == (Outcome.TIMED_OUT, "took longer than the limit of 4 s")
    told = [(swept.results[case.key].outcome, swept.results[case.key].reason) for case in bad]
    assert told == [
        (Outcome.CRASHED, "its process ended by SIGSEGV"),
        (Outcome.OUT_OF_MEMORY, "needs more than the limit of 629,145,600 bytes of memory"),
        (Outcome.CRASHED, "KeyError: 'a defect'"),
        (Outcome.FITS, ""),
    ]
    assert facts(swept.results[every[0].key]) == facts(results[every[0].key])
    assert children(os.getpid()) == []
    assert run(bad, store=tmp_path / "r", limits=limits).computed == 0
    assert swept.missing == []


def test_a_fault_and_a_fallback_inside_a_case_are_in_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(STRICT)
    (case,) = cases(
        [DIGITS], [CompileOptions("ethos-u55-128", planner="half", objective="bytes", effort="quick")], plugins=[BAD]
    )
    found = run([case], store=tmp_path / "r").results[case.key]
    assert found.outcome is Outcome.FITS
    assert found.incidents == (
        "internal fault: the better half: KeyError: 'a defect'",
        "the other half stands in, in sweep",
    )
    assert found.faulty
    again = run([case], store=tmp_path / "r")
    assert again.computed == 0
    assert facts(again.results[case.key]) == facts(found)


def test_a_board_of_ones_own_travels_and_constants_need_room_on_it(tmp_path: Path) -> None:
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text()
    small = text.replace("size_bytes = 0x800000", "size_bytes = 0x1000").replace(
        "size_bytes = 0x40000000", "size_bytes = 0x1000"
    )
    assert small != text
    (tmp_path / "own.toml").write_text(small)
    options = [CompileOptions(board=name, effort="quick") for name in (str(tmp_path / "own.toml"), "corstone-300-u55")]
    own, shipped = run(cases([DIGITS], options)).results.values()
    assert shipped.outcome is Outcome.FITS
    assert own.outcome is Outcome.NO_ROOM
    assert "is short by" in own.reason


def test_artifacts_are_run_against_their_reference(small_sweep: Any) -> None:
    every, _, _ = small_sweep
    requested = [replace(every[0], verification=Verification("local", 2))]
    (found,) = run(requested).results.values()
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
    swept = run(wrong)
    (row,) = swept.table().rows
    assert row.exact is False
    assert row.exactness == "differs in 2 of 2"


def test_other_versions_on_a_worker_are_no_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    every = small_cases()
    monkeypatch.setattr("npu_memplan.versions.versions", lambda run: (("npu_memplan", "9"),))
    swept = run([every[0]], store=tmp_path / "r")
    (found,) = swept.missing
    assert "in place of 9; install there what is installed here" in found.reason
    assert not list(tmp_path.glob("*")), "nothing is kept"


class _Losing(ThreadPoolExecutor):
    """Loses the worker of each call, as clusters do."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(_lose)


def _lose() -> Result:
    raise ConnectionError("the worker is gone")


def test_a_lost_worker_is_no_result(tmp_path: Path) -> None:
    refused = small_cases()[3]
    with _Losing(1) as executor:
        swept = run([refused, replace(refused, network="again")], executor, store=tmp_path / "r")
    assert len(swept.table().rows) == 2
    assert [r.reason for r in swept.missing] == ["its worker was lost: ConnectionError: the worker is gone"]
    assert not (tmp_path / "r").exists()


def test_a_broken_executor_stops_with_what_it_has(tmp_path: Path) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(SweepError, match=r"the executor takes no more cases: .*; run the sweep again to go on"):
        run(small_cases()[:1], executor, store=tmp_path / "r")


def test_killed_and_resumed_it_is_the_same_table(tmp_path: Path) -> None:
    """SIGKILL in the middle; nothing of it stays behind, and what was done is not done again."""
    options = [
        word for n in range(4) for word in ("--option", f"--pool sram={64 + n}KiB --objective bytes --effort quick")
    ]
    command = [sys.executable, "-m", "npu_memplan", "sweep", str(DIGITS), "-o", str(tmp_path), "--jobs", "1", *options]
    store, done, deadline = tmp_path / "results.jsonl", 0, time.monotonic() + 280
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kin: list[int] = []
    while (not done or not kin) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        done = store.read_bytes().count(b"\n") if store.exists() else 0
        kin = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(_is_alive(each) for each in kin):
        assert time.monotonic() < deadline, "something of a killed sweep is still running"
        time.sleep(0.05)
    done = store.read_bytes().count(b"\n")
    store.write_bytes(store.read_bytes() + b'{"key": "half')
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"4 cases: 4 fits; {4 - done} computed now" in said.stdout
    assert 1 <= done < 4
    assert sum(Result.of_line(line) is not None for line in store.read_bytes().splitlines()) == 4


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_an_interrupted_sweep_ends_what_runs(delay_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a process that was just started, and that its thread does not know yet."""

    def start(*arguments: Any, **options: Any) -> Any:
        process = start_program(*arguments, **options)
        time.sleep(delay_s)
        return process

    monkeypatch.setattr(sys.modules["npu_memplan.sweep.run"], "start_program", start)
    (hang,) = cases(
        [DIGITS], [CompileOptions("ethos-u55-128", planner="hang", objective="bytes", effort="quick")], plugins=[BAD]
    )
    started = time.monotonic()

    with local_executor(1) as executor:
        executor.submit(solve_case, job_of(hang, CaseLimits()))
        while not children(os.getpid()):
            time.sleep(0.02)
    assert children(os.getpid()) == []
    assert time.monotonic() - started < CaseLimits().seconds


def test_a_line_reads_back() -> None:
    full = result(4096, 100, runs=2, operators={"exact": 3}, cost=Cost(1.5, 1.25, 9, "x\nü"))
    short = Result("k", Outcome.NO_ROOM, "why", shortage=Shortage("sram", 9, 8))
    for one in (full, short):
        assert Result.of_line(one.json_line()) == one
        assert one.json_line().count(b"\n") == 1


def test_half_a_line_is_no_result(tmp_path: Path) -> None:
    """Cut at every byte: what was whole before is there, the cut one is not; what is added then is."""
    first, second, third = (
        Result("a", Outcome.FITS),
        Result("b", Outcome.CRASHED, 'said "} {"'),
        Result("c", Outcome.FITS),
    )
    whole, path = first.json_line() + second.json_line(), tmp_path / "r"
    for cut in range(len(first.json_line()), len(whole)):
        path.write_bytes(whole[:cut])
        read = {"a": first} if cut < len(whole) - 1 else {"a": first, "b": second}
        assert read_results(path, "abc", CaseLimits()) == read
        append_result(path, third)
        assert read_results(path, "abc", CaseLimits()) == {**read, "c": third}


@pytest.mark.parametrize(
    ("kept", "limits", "holds"),
    [
        (Result("k", Outcome.TIMED_OUT, "", 5.0), CaseLimits(5.0), True),
        (Result("k", Outcome.TIMED_OUT, "", 5.0), CaseLimits(6.0), False),
        (Result("k", Outcome.OUT_OF_MEMORY, "", 1 << 30), CaseLimits(1.0, 1 << 30), True),
        (Result("k", Outcome.OUT_OF_MEMORY, "", 1 << 30), CaseLimits(1.0, 2 << 30), False),
        (Result("k", Outcome.CRASHED), CaseLimits(), True),
    ],
)
def test_what_a_limit_ended_is_tried_again_under_a_larger_one(
    kept: Result, limits: CaseLimits, holds: bool, tmp_path: Path
) -> None:
    append_result(tmp_path / "r", kept)
    assert bool(read_results(tmp_path / "r", ["k"], limits)) == holds
