"""From a model file to an artifact directory: read -> lower -> pose -> plan -> hasten -> build -> write.

Invariant: every stage takes the result of the one before and nothing else (`stages` says what that is); `plan` checks
its plan, `build` takes any. `compile`, `--fit` and `tvmc compile` call these same stages.

What needs TVM is imported inside the stages: TVM takes a second to load, and loads while Vela works.
"""

from __future__ import annotations

import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import planners, verify
from .artifact import Artifact
from .artifact.timing import layers_csv
from .codegen.interface import Interface
from .ethosu.arch import accelerator, has_own_lowering
from .files.staging import staged_directory
from .frontend.load import read
from .options import AUTO, NO_NPU, CompileOptions
from .planners import prefetch
from .report.text.board_fit import check_fit
from .report.text.memory_txt import memory_text
from .report.text.no_room import no_room
from .stages import Compiled, Loaded, Planned, Posed, request

if TYPE_CHECKING:
    from .ethosu.time import MemoryMap

__all__ = ["CompileOptions", "build", "compile_model", "hasten", "lower", "plan", "plan_model", "pose", "read", "write"]


def compile_model(model: Path | str, options: CompileOptions, output: Path | str, force: bool = False) -> Artifact:
    """Compile the file `model` into the directory `output`; every error leaves `output` as it was."""
    with staged_directory(Path(output), force) as folder:
        return write(plan_model(Path(model), options), folder)


def plan_model(model: Path, options: CompileOptions, beyond: str = "") -> Compiled:
    """Compile the file `model` in memory; pool `beyond` may become larger than it is, where nothing fits it."""
    best = _contest(model, options) if not beyond else None
    if best is not None:
        return build(best)
    if options.npu_compiler == AUTO:
        options = replace(options, npu_compiler="vela")
    posed = pose(lower(read(model, request(options, beyond))))
    try:
        return build(hasten(plan(posed)))
    except planners.PlanningError as error:
        loaded = posed.loaded
        raise no_room(error, replace(posed.problem, name=loaded.name), str(model), loaded.request.options) from None


def _contest(model: Path, options: CompileOptions) -> Planned | None:
    """The best of all programs of the model; None where one alone is asked for, or none fits."""
    options = options.resolved()
    where = _hurried(options)
    if where is None or not (options.npu_compiler == AUTO or (options.stripes and options.pools)):
        return None
    from .choose.contest import fastest

    try:
        best = fastest(options, where, lambda wanted: lower(read(model, request(wanted))))
    except planners.PlanningError:
        return None
    verify.check(best.posed.problem, best.plan)
    return best


def _hurried(options: CompileOptions) -> MemoryMap | None:
    """The memories that cycles are counted with, where cycles are what counts; None where bytes are."""
    return options.memory_map() if options.for_cycles and options.planner in prefetch.SEARCHING else None


def lower(loaded: Loaded) -> Loaded:
    """The passes that were asked for."""
    from .transform.lower import lower

    return lower(loaded)


def pose(loaded: Loaded) -> Posed:
    """The planning problem of a loaded model."""
    from .extract import pose

    return pose(loaded)


def plan(posed: Posed) -> Planned:
    """A verified plan, and the problem it solves: with room for copies, or pool `beyond` larger, where asked for."""
    asked, problem = posed.loaded.request, posed.problem
    how = (asked.options.planner, asked.options.time_limit_s, asked.options.seed, asked.options.prefetch)
    try:
        problem, answer = prefetch.solve(problem, *how)
    except planners.PlanningError:
        if not asked.beyond:
            raise
        pools = tuple(replace(pool, size_bytes=None) if pool.name == asked.beyond else pool for pool in problem.pools)
        problem, answer = prefetch.solve(replace(problem, pools=pools), *how)
    verify.check(problem, answer)
    return Planned(replace(posed, problem=problem), answer)


def hasten(planned: Planned) -> Planned:
    """The same program with constants that travel when the port is idle, verified, unless bytes are all that counts."""
    options = planned.posed.loaded.request.options
    where = _hurried(options)
    if where is None or not has_own_lowering(accelerator(options.accelerator)):
        return planned
    from .choose.ranking import Ranking
    from .choose.travel import travel

    faster = travel(planned, Ranking(where))
    verify.check(faster.posed.problem, faster.plan)
    return faster


def build(planned: Planned) -> Compiled:
    """Put the plan into the module and print it; the plan is taken as it is, right or wrong."""
    from .artifact.described import describe, with_sources
    from .codegen.sources import print_sources
    from .rewrite import rewrite

    module = rewrite(planned.posed.loaded.module, planned.posed.problem, planned.plan)
    artifact = describe(planned, module)
    with ThreadPoolExecutor(1) as beside:  # TVM prints without holding Python's lock
        script = beside.submit(module.script, show_meta=True)
        sources = print_sources(module, Interface.of(artifact))
    return Compiled(with_sources(artifact, sources, planned.posed.loaded), module, script.result(), sources)


def write(compiled: Compiled, folder: Path) -> Artifact:
    """Write the files of the artifact into an empty directory; `BoardFitError` when its board has no room for it."""
    check_fit(compiled.artifact)
    sources = folder / "src"
    sources.mkdir()
    files = {f"source {path.name}": f"src/{path.name}" for path in compiled.sources.write(sources)}
    files |= {"memory": "memory.txt", "module": "planned.tvmscript"}
    if compiled.artifact.layers or compiled.artifact.host_layers:
        files["layers"] = "layers.csv"
        (folder / "layers.csv").write_text(_layers(compiled.artifact), encoding="utf-8")
    artifact = replace(compiled.artifact, files=files)
    (folder / "planned.tvmscript").write_text(compiled.script, encoding="utf-8")
    (folder / "memory.txt").write_text(memory_text(artifact), encoding="utf-8")
    artifact.save(folder)
    return artifact


def _layers(artifact: Artifact) -> str:
    """The text of layers.csv; the host counts in its sums where that was asked for."""
    npu, clocks = artifact.target.accelerator, None
    if artifact.target.host_time:
        known = artifact.timing is not None and artifact.host_clock_hz
        clocks = artifact.timing.clock_hz / artifact.host_clock_hz if artifact.timing and known else 1.0
    peak = 1 if npu == NO_NPU else accelerator(npu).macs
    return layers_csv(artifact.layers, peak, artifact.host_layers, clocks)


class _CallableModule(types.ModuleType):
    """`npu_memplan.pipeline` is this module and, as users of Relax expect, also a function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from .transform import pipeline

        return pipeline(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
