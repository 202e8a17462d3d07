"""From a model file to an artifact directory: read -> lower -> extract -> plan -> prefetch_weights -> build -> write.

Invariant: every stage takes the result of the one before and nothing else (`stages` says what that is); `plan` checks
its plan, `build` takes any. `compile`, `--fit` and `tvmc compile` call these same stages; `PlanMemory` enters at
`lower`, with the module that it is given.

What needs TVM is imported inside the stages: TVM takes a second to load, and loads while Vela works.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from . import planners, stages, verify
from .artifact import Artifact
from .clock import limited, paused
from .codegen.interface import Interface
from .files.staging import staged_directory
from .frontend.load import read
from .options import CompileOptions
from .planners import prefetch
from .process.incidents import gathering
from .process.phases import report_phase
from .report.text.does_not_fit import does_not_fit
from .report.writing import write
from .request import Loaded, request
from .stages import Compiled, Extracted, Planned
from .tuning.fallback import read_by_one
from .tuning.tune import prefetch_weights, tune

__all__ = [
    "CompileOptions",
    "build",
    "compile_model",
    "extract_problem",
    "lower",
    "plan",
    "plan_model",
    "prefetch_weights",
    "read",
    "write",
]


def compile_model(model: Path | str, options: CompileOptions, output: Path | str, force: bool = False) -> Artifact:
    """Compile the file `model` into the directory `output`; every error leaves `output` as it was."""
    with staged_directory(Path(output), force) as folder:
        return write(plan_model(Path(model), options), folder)


def plan_model(model: Path, options: CompileOptions, beyond: str = "") -> Compiled:
    """Compile the file `model` in memory; pool `beyond` may become larger than it is, where nothing fits it.

    What went otherwise than it should is told in its notes; with `strictly`, faults of ours are raised.
    """
    with gathering() as incidents, limited(options.time_limit_s):
        made = _made(model, options, beyond)
    return replace(made, artifact=replace(made.artifact, notes=(*made.artifact.notes, *incidents.lines)))


def _made(model: Path, options: CompileOptions, beyond: str) -> Compiled:
    def load(requested: CompileOptions) -> Loaded:
        with paused():  # nothing is searched
            return lower(read(model, request(requested)))

    best = None if beyond else tune(options, load, model.name, extract_problem)
    if best is not None:
        return build(best)
    with paused():
        extracted = extract_problem(lower(read_by_one(model, options, beyond)))
    try:
        return build(prefetch_weights(plan(extracted)))
    except planners.PlanningError as error:
        loaded = extracted.loaded
        raise does_not_fit(
            error, replace(extracted.problem, name=loaded.name), str(model), loaded.request.options
        ) from None


def lower(loaded: Loaded) -> Loaded:
    """The passes that were asked for."""
    report_phase("passes")
    from .transform.lower import lower

    return lower(loaded)


def extract_problem(loaded: Loaded) -> Extracted:
    """The planning problem of a loaded model."""
    report_phase("extracting buffers")
    return stages.extract_problem(loaded)


def plan(extracted: Extracted) -> Planned:
    """A verified plan, and the problem it solves: with room for copies, or pool `beyond` larger, where asked for."""
    report_phase("planning memory")
    requested, problem = extracted.loaded.request, extracted.problem
    how = (
        requested.options.planner,
        requested.options.time_limit_s,
        requested.options.seed,
        requested.options.prefetch,
    )
    try:
        problem, answer = prefetch.solve(problem, *how)
    except planners.PlanningError:
        if not requested.beyond:
            raise
        pools = tuple(
            replace(pool, size_bytes=None) if pool.name == requested.beyond else pool for pool in problem.pools
        )
        problem, answer = prefetch.solve(replace(problem, pools=pools), *how)
    verify.check_own(problem, answer)
    return Planned(replace(extracted, problem=problem), answer)


def build(planned: Planned) -> Compiled:
    """Put the plan into the module and print it; the plan is taken as it is, right or wrong."""
    with paused():
        return _built(planned)


def _built(planned: Planned) -> Compiled:
    report_phase("writing streams and C")
    from .codegen.described import describe, with_sources
    from .codegen.sources import print_sources
    from .rewrite import rewrite

    extracted = planned.extracted
    module = rewrite(extracted.loaded.module, extracted.problem, planned.plan)
    artifact = describe(extracted.loaded, extracted.program, extracted.problem, planned.plan, module)
    with ThreadPoolExecutor(1) as beside:  # TVM prints without holding Python's lock
        script = beside.submit(module.script, show_meta=True)
        sources = print_sources(module, Interface.of(artifact))
    return Compiled(with_sources(artifact, sources, extracted.loaded), module, script.result(), sources)
