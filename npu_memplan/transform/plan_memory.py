"""`PlanMemory`: one static plan for everything a Relax module allocates.

Invariant: a planned function carries its pools as attributes and is never planned again, so the
pass is idempotent. Every plan is verified before it is written into the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..extract import ExtractionError
from ..extract.build import GETS, OWNS
from ..extract.liveness import Storage, labels, serves
from ..extract.program import Program, RelaxTensor, entry_symbols
from ..extract.tir import operator_of
from ..options import NO_NPU, CompileOptions
from ..planners import prefetch
from ..problem import Plan, Pool, Problem
from ..request import Loaded, Request
from ..rewrite.main import join_parts, rewrite_program
from ..rewrite.pools import Apart, Definitions, PlannedPool, PoolSlot, pools_of
from ..rewrite.primfunc import Kernels
from ..stages import Extracted, extract_problem
from ..vocabulary import POOLS, RUN_TIME, UPPER_BOUND
from .config import PlanOptions, check_options, check_symbols, options
from .legalize import legalize
from .order import lower
from .symbolic import plan_symbolic
from .typed_pass import TypedPass, typed_pass


@typed_pass
class PlanMemory(TypedPass):
    """Plans every Relax function of a module on `pools` and rewrites it to run there.

    A parameter that is left None comes from the scope around it (`config`, `pass_context`), or is the default of
    `PlanOptions`.

    Parameters
    ----------
    pools : iterable of Pool, optional
        Where tensors may be, best first; one pool `workspace` without a limit when left out.
    planner : str, optional
        Name of a registered planner.
    constant_pools : iterable of Pool, optional
        Where constants are, best first; without any they stay wherever the run time keeps them.
    use_workspace_io : bool, optional
        Functions take the pools (uint8 tensors) and find inputs and outputs in them; otherwise they keep their
        signature and make the pools themselves.
    overlaps : bool, optional
        Use overlaps, in place and partial, that loads and stores prove.
    reorder : bool, optional
        Let independent calls change places when that lowers the peak.
    alignment : int, optional
        Least alignment of a buffer, in bytes: a power of two. Left out, a buffer has what is required: the size of its
        elements, 16 where a kernel has vectors or threads, 64 for a tensor object.
    seed : int, optional
        Of the planner: the same seed gives the same plan.
    bounds : mapping of str to int, optional
        Greatest values of shape symbols, each one of a parameter of a Relax function.
    worst_case : bool, optional
        With bounds, pools have the size that the greatest values need; if False (not with `use_workspace_io`) the size
        that the actual values do, by formula. Left out, it is False where no pool has a size and `use_workspace_io` is
        off.
    share : bool, optional
        Functions that no other one calls take their pools from the caller, which keeps them (`KeptPools`).
    poison : int, optional
        Byte that fills pools of the run time first; None: they are not filled.

    Raises
    ------
    PlanningError
        Hard pool sizes cannot be met; with the numbers.
    ExtractionError
        Something cannot be planned.
    ConfigError
        An option has a value of the wrong kind, names what is not there, or contradicts another one.

    Notes
    -----
    Inside a `Sequential` TVM turns these into its own errors with the same text.
    """

    def __init__(
        self,
        pools: Iterable[Pool] | None = None,
        planner: str | None = None,
        *,
        constant_pools: Iterable[Pool] | None = None,
        use_workspace_io: bool | None = None,
        overlaps: bool | None = None,
        reorder: bool | None = None,
        alignment: int | None = None,
        seed: int | None = None,
        bounds: Mapping[str, int] | None = None,
        worst_case: bool | None = None,
        share: bool | None = None,
        poison: int | None = None,
    ) -> None:
        self.given = check_options(**{name: value for name, value in locals().items() if name != "self"})

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module with each function planned that is not planned yet."""
        return self.plan(module) if _open_functions(module) else module

    def plan(self, module: Any) -> Any:
        """`transform_module` of a module with functions that are not planned."""
        chosen = options(self.given)
        functions = _relax_functions(module).values()
        check_symbols(chosen.bounds, (symbol.name for f in functions for symbol in entry_symbols(f)))
        module = legalize(module)
        names = _open_functions(module)
        uses = {gv.name_hint: _Uses.of_function(f) for gv, f in module.functions.items()}
        called = {gv.name_hint for caller in _relax_functions(module) for gv in uses[caller].references}
        outlines: dict[Any, Any] = {}  # of kernels that several functions call
        extracted = (_extract_function(_part(module, name, uses), name, chosen, called, outlines) for name in names)
        plans = Plans(len(names))
        laid = [lay(one, plans) for one in extracted]
        calls = (call for one in laid for call in one.extracted.program.calls)
        replaced = {call.function for call in calls if not call.added} - _used_functions(names, uses)
        kernels = Kernels({gv.name_hint for gv in module.functions} - replaced)
        for one in laid:
            kernels.share(one.extracted.program, one.pools, one.slots, one.apart)
        parts = {name: _rewritten(one, chosen, kernels) for name, one in zip(names, laid, strict=True)}
        return join_parts(module, parts, replaced)


def _relax_functions(module: Any) -> dict[str, Any]:
    """The Relax functions of a module by name."""
    return {gv.name_hint: f for gv, f in module.functions.items() if isinstance(f, relax.Function)}


def _open_functions(module: Any) -> list[str]:
    """Names of the Relax functions that are not planned."""
    return [name for name, f in _relax_functions(module).items() if POOLS not in f.attrs]


@dataclass(frozen=True, slots=True)
class _Uses:
    """The functions that a function refers to, and the calls in it."""

    references: Sequence[Any]
    calls: Sequence[Any]

    @classmethod
    def of_function(cls, function: Any) -> _Uses:
        """Those of a function, in textual order."""
        references: list[Any] = []
        calls: list[Any] = []
        kinds = [(tvm.ir.GlobalVar, references.append), (tvm.ir.Call, calls.append)]
        tvm_ffi.structural_walk(function.body, kinds, order="pre")
        return cls(references, calls)


def _used_functions(planned: Collection[str], uses_in: Mapping[str, _Uses]) -> set[str]:
    """Names of functions that are used, by `uses_in`, other than by calls in those functions that are `planned`."""
    found: set[str] = set()
    for name, own in uses_in.items():
        uses = Counter(used.name_hint for used in own.references)
        for call in own.calls if name in planned else ():
            is_tir = operator_of(call).startswith(("relax.call_tir", "relax.vm.call_tir"))
            called = call.args[0] if is_tir else call.op
            if isinstance(called, tvm.ir.GlobalVar):
                uses[called.name_hint] -= 1
        found.update(name for name, count in uses.items() if count > 0)
    return found


def _part(module: Any, name: str, uses: Mapping[str, _Uses]) -> Any:
    """The module of the function called `name` and of what it refers to, by `uses`; no other concerns its plan."""
    wanted, found = [module.get_global_var(name)], {}
    while wanted:
        gv = wanted.pop()
        if gv.name_hint not in found:
            found[gv.name_hint] = gv
            if gv.name_hint == name or isinstance(module[gv], tvm.tirx.PrimFunc):
                wanted += uses[gv.name_hint].references
    functions = {gv: module[gv] for gv in found.values()}
    return tvm.IRModule(functions, module.attrs, dict(module.global_infos.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A function with its plan: pools, where storages lie, definitions these use, and which share no byte."""

    extracted: Extracted
    pools: list[PlannedPool]
    slots: dict[str, PoolSlot]
    definitions: Definitions
    apart: Apart


def _extract_function(
    module: Any, name: str, chosen: PlanOptions, called: Collection[str], outlines: dict[Any, Any]
) -> Extracted:
    """The planning problem of the Relax function called `name` in `module` (in legal form)."""
    if chosen.bounds:
        gv = module.get_global_var(name)
        module.update_func(gv, module[gv].with_attr(UPPER_BOUND, dict(chosen.bounds)))
    loaded = Loaded.from_module(_request(name, chosen, called), module)
    return extract_problem(lower(loaded, outlines), outlines)


def _rewritten(laid: Laid, chosen: PlanOptions, kernels: Kernels) -> Any:
    """The module of one function, planned."""
    program, requested = laid.extracted.program, laid.extracted.loaded.request
    planned = rewrite_program(
        laid.extracted.loaded.module,
        program,
        laid.pools,
        laid.slots,
        poison=chosen.poison,
        definitions=laid.definitions,
        apart=laid.apart,
        kept=requested.kept,
        kernels=kernels,
    )
    left = [[t.name, t.external or "its size has no upper bound"] for t in program.tensors if t.name not in laid.slots]
    gv = planned.get_global_var(program.name)
    planned.update_func(gv, planned[gv].with_attr(RUN_TIME, left))
    return planned


def _request(name: str, chosen: PlanOptions, called: Collection[str]) -> Request:
    """The request that `chosen` makes of the stages."""
    options = CompileOptions(NO_NPU, planner=chosen.planner, overlaps=chosen.overlaps)
    return Request(
        options,
        chosen.pools,
        chosen.constant_pools,
        function=name,
        io_in_pools=chosen.use_workspace_io,
        alignment=chosen.alignment,
        seed=chosen.seed,
        worst_case=bool(chosen.worst_case),
        reorder=chosen.reorder,
        run_time=True,
        kept=chosen.share and not chosen.use_workspace_io and name not in called,
    )


class Plans:
    """Plans of the functions of a module: problems that are equal but for names, in one order, are planned once."""

    def __init__(self, functions: int) -> None:
        self._several = functions > 1
        self._known: dict[Any, tuple[Plan, Mapping[str, int]]] = {}

    def plan(self, problem: Problem, planner: str, seed: int) -> Plan:
        """A verified plan."""
        names = sorted(buffer.name for buffer in problem.buffers)
        places = {name: place for place, name in enumerate(names)}  # what a planner decides by is their order
        key = _without_names(problem, places) if self._several else None
        if key in self._known:
            plan, known = self._known[key]
            return replace(plan, placements=tuple(replace(p, buffer=names[known[p.buffer]]) for p in plan.placements))
        plan = prefetch.plan_last_pool(problem, planner, seed)
        if key is not None:
            self._known[key] = plan, places
        return plan


def _without_names(problem: Problem, places: Mapping[str, int]) -> tuple[Any, ...]:
    """A problem with `places` for the names of its buffers, and without what only people read."""
    return (
        *map(repr, problem.pools),
        tuple((places[b.name], b.size_bytes, b.lifetimes, b.alignment, b.pools, b.agents) for b in problem.buffers),
        tuple((b.kind, b.fixed, b.read_bytes, b.write_bytes) for b in problem.buffers),
        tuple((places[first], places[second]) for first, second in problem.conflicts),
        tuple(tuple((places[name], inner) for name, inner in group.members) for group in problem.aliases),
        tuple((places[o.first], places[o.second], o.lowest, o.highest) for o in problem.overlaps),
        tuple((places[known.buffer], known.reads, known.writes) for known in problem.accesses),
        problem.branches,
        len(problem.points),
    )


def lay(extracted: Extracted, plans: Plans) -> Laid:
    """A verified plan, or formulas where sizes depend on symbols."""
    problem, options = extracted.problem, extracted.loaded.request.options
    program = extracted.program
    if extracted.sample is None:
        plan = plans.plan(problem, options.planner, extracted.loaded.request.seed)
        pools, slots = pools_of(problem, plan, program)
        laid = Laid(extracted, pools, slots, (), lambda first, second: False)
    else:
        kernels = [[internal.name for internal in call.internals] for call in program.calls]
        found = plan_symbolic(problem, extracted.sample, options.planner, extracted.loaded.request.seed, kernels)
        pools, slots = pools_of(problem, found.plan, program)
        index = {p.name: i for i, p in enumerate(pools)}
        pools = [replace(p, size=found.sizes.get(p.name, p.size)) for p in pools]
        homes = {p.buffer: p.pool for p in found.plan.placements}
        slots |= {name: PoolSlot(index[homes[name]], offset, found.unit) for name, offset in found.offsets.items()}
        laid = Laid(extracted, pools, slots, found.definitions, found.apart)
    _check_hard(program, [s for s in extracted.lives if s.name not in slots], extracted.loaded.request.pools)
    return laid


def _check_hard(program: Program, outside: Iterable[Storage], pools: Iterable[Pool]) -> None:
    """Refuse storages outside the pools, other than the caller's, where all pools have a size."""
    devices = labels(program.vdevices)
    found = []
    for storage in outside:
        own = [p for p in pools if not devices or serves(p, devices[storage.device])]
        why = storage.external if isinstance(storage, RelaxTensor) else ""
        if why not in (OWNS, GETS) and all(p.size_bytes is not None for p in own):
            size = "" if storage.size_bytes is None else f"{storage.size_bytes} bytes, "
            found.append(f"{storage.name!r} ({size}{why or 'its size has no upper bound'})")
    if found:
        named = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
        sizes = ", ".join(f"{p.name!r} of {p.size_bytes} bytes" for p in pools)
        raise ExtractionError(
            f"{program.name!r} was given hard pools only ({sizes}), but these would lie outside them, wherever the run"
            f" time allocates them: {named}; add a pool without a size to allow that, give shape symbols bounds"
            " (bounds={...}), or call packed functions in destination-passing style (R.call_dps_packed)"
        )
