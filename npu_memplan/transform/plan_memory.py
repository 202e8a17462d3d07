"""`PlanMemory`: one static plan for everything a Relax module allocates.

Invariant: a planned function carries its pools as attributes and is never planned again, so the
pass is idempotent. Every plan is verified before it is written into the module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from .. import verify
from ..extract import ExtractionError
from ..extract.build import GETS, OWNS
from ..extract.devices import labels, serves
from ..extract.liveness import Storage
from ..extract.program import Program, RelaxTensor
from ..extract.sizes import entry_symbols
from ..extract.tir import nodes_of
from ..options import NO_NPU, CompileOptions
from ..planners import last_pool
from ..problem import Pool
from ..request import Loaded, Request
from ..rewrite.aliasing import Apart, settled
from ..rewrite.definitions import Definitions
from ..rewrite.main import references, rewrite_program, users_of
from ..rewrite.pools import PlannedPool, PoolSlot, pools_of
from ..stages import Extracted, extract_problem
from ..vocabulary import POOLS, RUN_TIME, UPPER_BOUND
from . import recompute
from .config import PlanOptions, check_symbols, checked, options
from .legalize import legalize
from .lower import lower
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
    recompute : bool, optional
        Where pools with sizes are too small, compute values again before later readers, at the least extra cost
        that is found; results are the same bit for bit.
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
        recompute: bool | None = None,
        alignment: int | None = None,
        seed: int | None = None,
        bounds: Mapping[str, int] | None = None,
        worst_case: bool | None = None,
        share: bool | None = None,
        poison: int | None = None,
    ) -> None:
        self.given = checked(**{name: value for name, value in locals().items() if name != "self"})

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module with each function planned that is not planned yet."""
        if not _open_functions(module):
            return module
        chosen = options(self.given)
        functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
        check_symbols(chosen.bounds, (symbol.name for f in functions for symbol in entry_symbols(f)))
        module = legalize(module)
        users = users_of(module)
        called = _called(module)
        for name in _open_functions(module):
            elsewhere = {used for used, others in users.items() if others - {name}}
            module = plan_function(module, name, chosen, elsewhere, called)
            for others in users.values():
                others.discard(name)
            for used in references(module[name]):  # Relax functions as before, and kernels of its own
                if used not in users and isinstance(module[used], tvm.tirx.PrimFunc):
                    for called_there in references(module[used]):
                        users.setdefault(called_there, set()).add(used)
                users.setdefault(used, set()).add(name)
        return settled(module)


def _open_functions(module: Any) -> list[str]:
    """Names of the Relax functions that are not planned."""
    functions = module.functions.items()
    return [gv.name_hint for gv, f in functions if isinstance(f, relax.Function) and POOLS not in f.attrs]


def plan_function(
    module: Any, name: str, chosen: PlanOptions, elsewhere: Collection[str], called: Collection[str]
) -> Any:
    """`module` (in legal form) with the Relax function called `name` planned.

    `elsewhere` are the functions that others refer to, `called` those that Relax functions do, by name.
    """
    if chosen.bounds:
        gv = module.get_global_var(name)
        module.update_func(gv, module[gv].with_attr(UPPER_BOUND, dict(chosen.bounds)))
    requested = _request(name, chosen, called)
    if chosen.recompute:
        module = recompute.fit(module, requested)
    extracted = extract_problem(lower(Loaded.given(requested, module)))
    program = extracted.program
    pools, slots, definitions, apart = _lay(extracted)
    _check_hard(program, [s for s in extracted.lives if s.name not in slots], requested.pools)
    planned = rewrite_program(
        extracted.loaded.module,
        program,
        pools,
        slots,
        poison=chosen.poison,
        definitions=definitions,
        apart=apart,
        kept=requested.kept,
        elsewhere=elsewhere,
    )
    left = [[t.name, t.external or "its size has no upper bound"] for t in program.tensors if t.name not in slots]
    gv = planned.get_global_var(name)
    planned.update_func(gv, planned[gv].with_attr(RUN_TIME, left))
    return planned


def _request(name: str, chosen: PlanOptions, called: Collection[str]) -> Request:
    """What `chosen` means for the stages."""
    options = CompileOptions(
        NO_NPU, planner=chosen.planner, seed=chosen.seed, overlaps=chosen.overlaps, reorder=chosen.reorder
    )
    return Request(
        options,
        chosen.pools,
        chosen.constant_pools,
        function=name,
        io_in_pools=chosen.use_workspace_io,
        alignment=chosen.alignment,
        worst_case=bool(chosen.worst_case),
        run_time=True,
        kept=chosen.share and not chosen.use_workspace_io and name not in called,
    )


def _lay(extracted: Extracted) -> tuple[list[PlannedPool], dict[str, PoolSlot], Definitions, Apart]:
    """Pools, slots, the definitions that they use, and what knows which storages share no byte.

    A verified plan, or formulas where sizes depend on symbols.
    """
    problem, options = extracted.problem, extracted.loaded.request.options
    if extracted.sample is None:
        plan = last_pool.plan(problem, options.planner, options.seed)
        verify.check_own(problem, plan)
        return *pools_of(problem, plan, extracted.program), (), lambda first, second: False
    kernels = [[internal.name for internal in call.internals] for call in extracted.program.calls]
    found = plan_symbolic(problem, extracted.sample, options.planner, options.seed, kernels)
    pools, slots = pools_of(problem, found.plan, extracted.program)
    index = {p.name: i for i, p in enumerate(pools)}
    pools = [replace(p, size=found.sizes.get(p.name, p.size)) for p in pools]
    homes = {p.buffer: p.pool for p in found.plan.placements}
    slots.update((name, PoolSlot(index[homes[name]], offset, found.unit)) for name, offset in found.offsets.items())
    return pools, slots, found.definitions, found.apart


def _called(module: Any) -> set[str]:
    """Names of the Relax functions that Relax functions call, or use as values."""
    functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
    return {gv.name_hint for function in functions for gv in nodes_of(function.body, tvm.ir.GlobalVar)}


def _check_hard(program: Program, outside: Iterable[Storage], pools: Iterable[Pool]) -> None:
    """Pools that all have a size hold everything but what is the caller's; what is `outside` must be that."""
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
