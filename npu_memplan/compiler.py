"""From a model file to an artifact directory: the stages of `pipeline`, and the best of the programs that they make.

Invariant: `compile`, boards and sweeps all compile here; every error leaves the output as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import planners
from .artifact import Artifact
from .cache import ProgramCache
from .clock import limit_searches, pause_clock
from .files.folders import staged_directory
from .frontend.load import read_by_one
from .names import model_name
from .options import NO_NPU, CompileOptions, Objective
from .pipeline import build, extract_problem, lower, plan, read
from .process.incidents import gather_incidents
from .report.files import write_artifact
from .report.text.compile_result import does_not_fit
from .request import Loaded
from .stages import Compiled, Extracted, Planned
from .tuning.tune import make_resident, prefetch_weights, tune


def compile_model(
    model: Path | str,
    options: CompileOptions,
    output: Path | str,
    force: bool = False,
    cache: ProgramCache | None = None,
) -> Artifact:
    """Compile the file `model` into the directory `output`; every error leaves `output` as it was."""
    with staged_directory(Path(output), force) as folder:
        return write_artifact(plan_model(Path(model), options, cache=cache), folder)


def plan_model(model: Path, options: CompileOptions, cache: ProgramCache | None = None) -> Compiled:
    """Compile the file `model` in memory; what `cache` has is not compiled again.

    Faults and fallbacks are in its notes; in strict mode, faults of ours are raised.
    """
    if cache is not None:
        return cache.get_program(model, options, lambda: plan_model(model, options))
    with gather_incidents() as incidents, limit_searches(options.time_limit_s):
        made = build(plan_network(model, options))
    return replace(made, artifact=replace(made.artifact, notes=(*made.artifact.notes, *incidents.lines)))


def plan_network(model: Path, options: CompileOptions) -> Planned:
    """The best program of the file `model` and its plan, before anything is printed."""
    known: dict[object, Any] = {}
    load = model_loader(model, known)
    extracted: Extracted | None = None
    try:
        best = tune(options, load, model.name, extract_problem)
        if best is not None:
            return make_resident(best, lambda: tune(options, load, model.name, extract_problem, constants_near=True))
        with pause_clock():
            extracted = extract_problem(_lower_by_backend(model, options, known))
        planned = plan(extracted)
        return make_resident(prefetch_weights(planned), lambda: planned)
    except planners.PlanningError as error:
        problem = error.problem if extracted is None else extracted.problem
        if problem is None:
            raise
        name = model_name(options.name or model.stem)
        raise does_not_fit(error, replace(problem, name=name), str(model), options.resolve_defaults()) from None


def model_loader(model: Path, known: dict[object, Any] | None = None) -> Callable[[CompileOptions], Loaded]:
    """The function that reads and lowers the file `model` as options ask; `known` as for `read`."""
    known = {} if known is None else known

    def load(requested: CompileOptions) -> Loaded:
        with pause_clock():  # nothing is searched
            return _lower_by_backend(model, requested, known)

    return load


def _lower_by_backend(model: Path, options: CompileOptions, known: dict[object, Any]) -> Loaded:
    """Lower by the one backend that is chosen; where stripes need more bytes than they may, with sums by rows if that
    needs fewer.
    """
    whole = read_by_one(model, options, known)
    loaded = lower(whole)
    if options.accelerator == NO_NPU:
        return _prefer_host_rows(model, loaded)
    stripes = loaded.request.stripes if options.stripes else None
    if stripes is None or stripes.capacity_bytes is None:
        return loaded
    import tvm_ffi

    from .transform.order import required_bytes

    needed = required_bytes(loaded)
    if needed <= stripes.capacity_bytes:
        return loaded
    by_rows = read(model, replace(loaded.request, sums_by_rows=True), known)
    if tvm_ffi.structural_equal(by_rows.module, whole.module):
        return loaded  # there are no such sums
    by_rows = lower(by_rows)
    return by_rows if required_bytes(by_rows) < needed else loaded


def _prefer_host_rows(model: Path, loaded: Loaded) -> Loaded:
    """The same with operators of the CPU in turn, by rows, where that needs fewer bytes: for the fewest, or where the
    pools have too few.
    """
    request = loaded.request
    sizes = [pool.size_bytes for pool in request.pools]
    fewest = request.options.resolved_objective is Objective.BYTES
    if not fewest and None in sizes:
        return loaded
    from .transform.order import required_bytes

    needed = required_bytes(loaded)
    if not fewest and needed <= sum(size or 0 for size in sizes):
        return loaded
    import tvm_ffi

    by_rows = lower(read(model, replace(request, host_rows=True)))
    if tvm_ffi.structural_equal(by_rows.module, loaded.module):
        return loaded
    return by_rows if required_bytes(by_rows) < needed else loaded
