"""One case, computed: the same stages as `npu-memplan compile`, and `run` where requested.

Invariant: a result depends on the job alone; an error of the model, the options or a plug-in is a result with its
reason. Runs in a process of its own, which may crash (`run.solve_case`).
"""

from __future__ import annotations

import pickle
import re
import resource
import sys
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact.board_fit import fit_of
from ..compiler import plan_model
from ..errors import NpuMemplanError
from ..exactness import Exactness
from ..files.folders import scratch_folder
from ..planners import PlanningError
from ..process.incidents import gather_incidents
from ..report.files import write_artifact
from ..versions import versions
from .case import Content, Cost, Outcome, Result, Runs, Shortage
from .run import JOB, RESULT, CaseJob, out_of_memory

if TYPE_CHECKING:
    from ..artifact import Artifact

_REASON = 600  # characters
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def main(folder: str) -> None:
    """Compute the job in `folder`, and write its result there."""
    place = Path(folder)
    job: CaseJob = pickle.loads((place / JOB).read_bytes())
    result = measure_case(job)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
    cost = Cost(cpu_seconds=cpu_s, memory_bytes=1024 * max(usage.ru_maxrss for usage in used))
    (place / RESULT).write_bytes(replace(result, cost=cost).json_line())


def measure_case(job: CaseJob) -> Result:
    """The result of `job`, whatever happens short of the end of this process."""
    here = versions(bool(job.case.verification.runner))
    if here != job.versions:
        return Result(job.key, Outcome.NOT_TRIED, _other_versions(dict(job.versions), dict(here)))
    with scratch_folder("sweep") as folder, gather_incidents() as incidents:
        result = _result_of(job, folder)
        return replace(result, incidents=tuple(_without_place(line, folder) for line in incidents.lines))


def _result_of(job: CaseJob, folder: Path) -> Result:
    """The result of `job`, whatever is raised."""
    try:
        return _measure_case(job, folder)
    except PlanningError as error:
        short = Shortage(error.pool, error.required_bytes, error.available_bytes)
        text = f"needs {error.required_bytes:,} bytes of {error.pool}, which has {error.available_bytes:,}"
        return Result(job.key, Outcome.NO_ROOM, text, shortage=short)
    except NotHereError as error:
        return Result(job.key, Outcome.NOT_TRIED, str(error))
    except NpuMemplanError as error:
        return Result(job.key, Outcome.REFUSED, _without_place(str(error), folder))
    except MemoryError:
        return out_of_memory(job)
    except Exception as error:  # a defect, of ours or of a plug-in: the case's, not the sweep's
        return Result(job.key, Outcome.CRASHED, f"{type(error).__name__}: {_without_place(str(error), folder)}")


def _measure_case(job: CaseJob, folder: Path) -> Result:
    case = job.case
    path = folder / f"model{case.model.path.suffix.lower()}"
    path.write_bytes(case.model.data)
    options = case.options
    for number, (field, file) in enumerate(case.option_files.items()):
        named = folder / f"{field}{number}{file.path.suffix}"
        named.write_bytes(file.data)
        changed: dict[str, Any] = {field: str(named)}
        options = replace(options, **changed)
    for plugin in case.plugins:
        _import_plugin(plugin)
    compiled = plan_model(path, options)
    artifact, runs = compiled.artifact, None
    if case.verification.runner:
        output = folder / "artifact"
        output.mkdir()
        artifact = write_artifact(compiled, output)
        runs = _compared_runs(job, path, output, artifact)
    return _case_result(job.key, artifact, runs)


def _case_result(key: str, artifact: Artifact, runs: Runs | None) -> Result:
    fit = fit_of(artifact)
    if fit is not None and fit.shortest_memory is not None:  # constants too have to find room on a board
        lacks = Shortage(
            fit.shortest_memory.memory.name, fit.shortest_memory.used_bytes, fit.shortest_memory.memory.size_bytes
        )
        return Result(key, Outcome.NO_ROOM, fit.verdict, shortage=lacks)
    claims = Counter(operator.claim.exactness for operator in artifact.operators)
    return Result(
        key,
        Outcome.FITS,
        pools={pool.name: artifact.pool_bytes(pool.name) for pool in artifact.run_pools},
        constants_bytes=artifact.constants_bytes,
        stream_bytes=artifact.stream_bytes,
        vela_bytes=sum(artifact.vela_arena_bytes.values()),
        cycles=artifact.estimated_cycles,
        least_cycles=min(artifact.timing.by_model.values()) if artifact.timing else None,
        most_cycles=max(artifact.timing.by_model.values()) if artifact.timing else None,
        clock_hz=artifact.timing.clock_hz if artifact.timing else 0,
        npu_operations=artifact.npu_operations,
        host_operations=artifact.host_operations,
        host_cycles=artifact.host_cycles,
        host_clock_hz=artifact.host_clock_hz,
        plan=artifact.plan.status.value,
        operators={level.value: claims[level] for level in Exactness if claims[level]},
        runs=runs,
    )


def _import_plugin(plugin: Content) -> None:
    """Run a Python file in this process, as a module of its own."""
    module = types.ModuleType(f"npu_memplan_sweep_plugin_{plugin.sha256[:16]}")
    exec(compile(plugin.data, f"plug-in {plugin.sha256[:16]}", "exec"), module.__dict__)
    sys.modules[module.__name__] = module


def _compared_runs(job: CaseJob, path: Path, output: Path, artifact: Artifact) -> Runs:
    """The artifact in `output` on its runner, against the reference of `path`, for each seed."""
    from fvp_runner import (
        NpuModelError,
        RunCheckError,
        RunOptions,
        RunTimeoutError,
        compare_outputs,
        create,
        missing,
        open_reference,
    )

    from ..files.arrays import read_inputs

    requested = job.case.verification
    reason = missing(requested.runner)
    if reason is not None:
        raise NotHereError(f"runner {requested.runner} cannot run: {reason}")
    reference = open_reference(path, artifact.target.io)
    options = RunOptions(timeout_s=job.limits.seconds, pools_after=False)
    exact, largest, stopped = 0, 0.0, ""
    try:
        runner = create(requested.runner, output, options)
        for seed in range(requested.seeds):
            values = read_inputs(artifact.name, artifact.inputs, [f"random:{seed}"])
            names = [slot.name for slot in artifact.outputs]
            verdict = compare_outputs(requested.runner, names, runner.run(values).outputs, reference.run(values))
            exact += verdict.bit_exact
            largest = max([largest, *(float(output.max_abs_diff) for output in verdict.outputs)])
    except (NpuModelError, RunCheckError, RunTimeoutError) as error:
        stopped = _without_place(str(error), output)
    return Runs(requested.runner, requested.seeds, exact, largest, reference.what, stopped)


class NotHereError(NpuMemplanError):
    """A run needs something that is not on this machine; that says nothing of the case."""


def _without_place(text: str, folder: Path) -> str:
    """The text, without what differs from one run to the next."""
    text = text.strip().replace(f"{folder}{'/'}", "").replace(str(folder.parent), "") or "no message"
    return _ADDRESS.sub("0x...", text)[:_REASON]


def _other_versions(requested: Mapping[str, str], here: Mapping[str, str]) -> str:
    pairs = [(name, version, here.get(name, "none")) for name, version in requested.items()]
    different = [f"{name} {found} in place of {version}" for name, version, found in pairs if found != version]
    return f"a worker has {', '.join(different)}; install there what is installed here"
