"""From a model file to an artifact directory: the whole story, one stage a line.

Invariant: every stage takes the result of the one before and nothing else; what the later
stages need is in the module, the problem and the plan.

What needs TVM is imported inside the stages: TVM takes a second to load, and loads while Vela works.
"""

from __future__ import annotations

import hashlib
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import planners, verify
from .artifact import Artifact
from .artifact.timing import layers_csv
from .codegen.interface import Interface, identifier
from .ethosu.arch import accelerator
from .ethosu.program.primfunc import from_primfunc
from .files.staging import staged_directory
from .frontend.attributes import quantised
from .frontend.load import Loaded, load_model
from .options import CompileOptions
from .planners import prefetch
from .problem import Plan, Problem
from .report.text.memory_txt import memory_text
from .report.text.no_room import no_room
from .vocabulary import is_npu

if TYPE_CHECKING:
    from .codegen.sources import Sources

__all__ = ["CompileOptions", "Compiled", "build", "compile_model", "plan_model", "pose", "write"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything a compile makes, in memory."""

    artifact: Artifact
    module: Any  # the planned IRModule
    script: str  # the same as TVMScript
    sources: Sources


def compile_model(model: Path | str, options: CompileOptions, output: Path | str, force: bool = False) -> Artifact:
    """Compile the file `model` into the directory `output`; every error leaves `output` as it was."""
    with staged_directory(Path(output), force) as folder:
        return write(plan_model(Path(model), options), folder)


def plan_model(model: Path, options: CompileOptions, beyond: str = "") -> Compiled:
    """Compile the file `model` in memory; pool `beyond` may become larger than it is, where nothing fits it."""
    options = options.resolved()
    loaded = load_model(model, options)
    if options.reorder:
        loaded = _reordered(loaded)
    if options.stripes:
        loaded = _in_stripes(loaded, options)
    problem, program = _posed(loaded, options)
    try:
        problem, plan = _planned(problem, options, beyond)
    except planners.PlanningError as error:
        raise no_room(error, replace(problem, name=_name(loaded, options)), str(model), options) from None
    verify.check(problem, plan)
    return build(loaded, options, problem, plan, program)


def _planned(problem: Problem, options: CompileOptions, beyond: str) -> tuple[Problem, Plan]:
    """The plan, and the problem that it solves: with room for copies to run ahead if asked for and possible, without
    the size of pool `beyond` if it cannot be kept.
    """
    try:
        return _plan(problem, options)
    except planners.PlanningError:
        if not beyond:
            raise
        pools = tuple(replace(pool, size_bytes=None) if pool.name == beyond else pool for pool in problem.pools)
        return _plan(replace(problem, pools=pools), options)


def _plan(problem: Problem, options: CompileOptions) -> tuple[Problem, Plan]:
    limits = (options.planner, options.time_limit_s, options.seed)
    if options.prefetch:
        try:
            return (roomy := prefetch.with_room(problem)), planners.plan(roomy, *limits)
        except planners.PlanningError:
            pass  # the pools are too small for that
    return problem, prefetch.plan(problem, *limits)


def _reordered(loaded: Loaded) -> Loaded:
    from .extract import prepare
    from .transform.order import reorder

    return replace(loaded, module=reorder(prepare(loaded.module)))


def _in_stripes(loaded: Loaded, options: CompileOptions) -> Loaded:
    from .transform.stripes import stripe

    pools = options.planned_pools()  # feature maps rather lie in the last; with two, inputs and outputs do not
    module = stripe(
        loaded.module,
        pools[-1].size_bytes,
        io_in_pools=len(pools) == 1,
        reuse_inputs=options.reuse_inputs,
        where=options.memory_map(),
    )
    cut = replace(loaded, module=module)
    # a function knows its own buffers only: what other calls need may make the peak anyway
    alone = len(loaded.module.functions) == 2  # main and one function
    return cut if alone or _required(cut, options) < _required(loaded, options) else loaded


def _required(loaded: Loaded, options: CompileOptions) -> int:
    """Bytes that all pools together need, whatever they have."""
    problem = _posed(loaded, options)[0]
    unlimited = replace(problem, pools=tuple(replace(pool, size_bytes=None) for pool in problem.pools))
    return sum(usage.used_bytes for usage in planners.plan(unlimited).usage)


def pose(loaded: Loaded, options: CompileOptions) -> Problem:
    """The planning problem of a loaded model."""
    return _posed(loaded, options)[0]


def _posed(loaded: Loaded, options: CompileOptions) -> tuple[Problem, Any]:
    from .extract import Options, extract_program

    constant_pools = options.planned_constant_pools()
    how = Options(overlaps=options.overlaps, reuse_inputs=options.reuse_inputs, constant_pools=constant_pools)
    return extract_program(loaded.module, options.planned_pools(), how)


def build(loaded: Loaded, options: CompileOptions, problem: Problem, plan: Plan, program: Any = None) -> Compiled:
    """Put `plan` into the module and print it; the plan is taken as it is, right or wrong.

    `program` is what the problem was extracted from; it is found again when it is not given.
    """
    from .artifact.described import timed
    from .codegen.sources import print_sources
    from .rewrite import rewrite

    module = rewrite(loaded.module, problem, plan)
    program = program or _posed(loaded, options)[1]
    artifact = _describe(loaded, options, problem, plan, module, program)
    where = artifact.memory_map
    with ThreadPoolExecutor(1) as beside:  # TVM prints without holding Python's lock
        script = beside.submit(module.script, show_meta=True)
        sources = print_sources(module, Interface.of(artifact))
    artifact = replace(
        artifact,
        constants_bytes=sources.constants_bytes,
        stream_bytes=sources.stream_bytes,
    )
    if where is not None:
        artifact = timed(artifact, sources.launches, where)
    if artifact.timing is not None and loaded.vela_cycles:
        timing = replace(artifact.timing, vela_cycles=loaded.vela_cycles, vela_stream_cycles=loaded.vela_stream_cycles)
        artifact = replace(artifact, timing=timing)
    return Compiled(artifact, module, script.result(), sources)


def _describe(
    loaded: Loaded, options: CompileOptions, problem: Problem, plan: Plan, module: Any, program: Any
) -> Artifact:
    from .artifact.described import calls_of, operators_of, slots_of
    from .vocabulary import PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES

    main = module["main"]
    npu = [f for f in loaded.module.functions.values() if is_npu(f)]
    return Artifact(
        name=_name(loaded, options),
        source=loaded.path.name,
        source_sha256=hashlib.sha256(loaded.data).hexdigest(),
        target=options,
        problem=replace(problem, name=_name(loaded, options)),  # the function it came from is called main
        plan=plan,
        regions=tuple(0 if pool.read_only else i + 1 for i, pool in enumerate(problem.pools)),
        inputs=slots_of(main.attrs[PLACED_INPUTS], quantised(main, "input")),
        outputs=slots_of(main.attrs[PLACED_OUTPUTS], quantised(main, "output")),
        states=slots_of(main.attrs[PLACED_STATES], quantised(main, "state")),
        calls=calls_of(program, problem),
        operators=operators_of(main),
        vela_arena_bytes=loaded.vela_arena_bytes,
        npu_operations=sum(len(from_primfunc(f).operations) for f in npu),
        notes=loaded.notes + ((plan.note,) if plan.note else ()),
    )


def _name(loaded: Loaded, options: CompileOptions) -> str:
    return identifier(options.name or loaded.path.stem)


def write(compiled: Compiled, folder: Path) -> Artifact:
    """Write the files of the artifact into an empty directory."""
    sources = folder / "src"
    sources.mkdir()
    paths = compiled.sources.write(sources)
    files = {f"source {path.name}": f"src/{path.name}" for path in paths}
    files |= {"memory": "memory.txt", "module": "planned.tvmscript"}
    if compiled.artifact.layers:
        files["layers"] = "layers.csv"
        peak = accelerator(compiled.artifact.target.accelerator).macs
        (folder / "layers.csv").write_text(layers_csv(compiled.artifact.layers, peak), encoding="utf-8")
    artifact = replace(compiled.artifact, files=files)
    (folder / "planned.tvmscript").write_text(compiled.script, encoding="utf-8")
    (folder / "memory.txt").write_text(memory_text(artifact), encoding="utf-8")
    artifact.save(folder)
    return artifact


class _CallableModule(types.ModuleType):
    """`npu_memplan.pipeline` is this module and, as users of Relax expect, also a function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from .transform import pipeline

        return pipeline(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
