"""The linear stages of a compile: read -> lower -> extract -> plan -> build.

Invariant: every stage takes the result of the one before and nothing else (`stages` says what that is); `plan` checks
its plan, `build` takes any. `compiler` joins them with the search for the best program; `tvmc compile` calls them
too; `PlanMemory` enters at `lower`, with the module that it is given.

What needs TVM is imported inside the stages: TVM takes a second to load, and loads while Vela works.
"""

from __future__ import annotations

from dataclasses import replace

from . import stages, verify
from .clock import pause_clock
from .frontend.load import read
from .planners import prefetch
from .process.incidents import report_phase
from .request import Loaded
from .stages import Compiled, Extracted, Planned

__all__ = ["build", "extract_problem", "lower", "plan", "read"]


def lower(loaded: Loaded) -> Loaded:
    """The stage `lower`: the passes over the module that the request asks for."""
    report_phase("passes")
    if loaded.request.stripes is None and not (loaded.request.reorder and loaded.may_reorder):
        return loaded  # the passes over modules take long to import
    from .transform.order import lower

    return lower(loaded)


def extract_problem(loaded: Loaded) -> Extracted:
    """The planning problem of a loaded model."""
    report_phase("extracting buffers")
    return stages.extract_problem(loaded)


def plan(extracted: Extracted) -> Planned:
    """A verified plan, and the problem it solves: with room for copies, where requested."""
    report_phase("planning memory")
    requested, problem = extracted.loaded.request, extracted.problem
    how = requested.options.planner, requested.options.time_limit_s, requested.seed, requested.options.prefetch
    problem, answer = prefetch.solve(problem, *how)
    verify.check_own(problem, answer)
    return Planned(replace(extracted, problem=problem), answer)


def build(planned: Planned) -> Compiled:
    """Put the plan into the module and print it; the plan is taken as it is, right or wrong."""
    with pause_clock():
        return _build_compiled(planned)


def _build_compiled(planned: Planned) -> Compiled:
    report_phase("writing streams and C")
    from .codegen.description import describe_artifact, with_sources
    from .codegen.interface import Interface
    from .codegen.script import share_constants
    from .codegen.sources import print_sources
    from .rewrite import rewrite

    extracted = planned.extracted
    module = rewrite(extracted.loaded.module, extracted.problem, planned.plan, program=extracted.program)
    artifact = describe_artifact(extracted.loaded, extracted.program, extracted.problem, planned.plan, module)
    script = share_constants(module).script(show_meta=True)
    sources = print_sources(module, Interface.from_artifact(artifact))
    return Compiled(with_sources(artifact, sources, extracted.loaded), module, script, sources)
