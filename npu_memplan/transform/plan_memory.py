"""`PlanMemory`: one static plan for everything a Relax module allocates.

Invariant: a planned function carries its pools as attributes and is never planned again, so the
pass is idempotent. Every plan is verified before it is written into the module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from .. import planners, verify
from ..extract.build import Options, build
from ..extract.relax_walk import walk
from ..extract.symbolic import plan_symbolic
from ..problem import Pool
from ..rewrite.main import POOLS, rewrite_program, slots_of
from ..rewrite.primfunc import Slot
from .legalize import legalize

UPPER_BOUND = "tir_var_upper_bound"
"""TVM's attribute of a Relax function: name of a shape symbol -> its greatest value."""

DYNAMIC_POOL = "dynamic"
"""Name of the pool of storages whose sizes are only known when the function is called."""

DEFAULT_POOLS = (Pool("workspace"),)


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.PlanMemory")
class PlanMemory:
    """Plans every Relax function of a module on `pools` and rewrites it to run there.

    Without `use_workspace_io` functions keep their signature and make the pools themselves; with
    it they take the pools (uint8 tensors) and find inputs and outputs in them.
    """

    def __init__(
        self,
        pools: Sequence[Pool] = DEFAULT_POOLS,
        planner: str = "auto",
        *,
        use_workspace_io: bool = False,
        overlaps: bool = True,
        alignment: int = 16,
        seed: int = 0,
        bounds: Mapping[str, int] | None = None,
        poison: int | None = None,
    ) -> None:
        self.pools = tuple(pools)
        self.planner = planner
        self.use_workspace_io = use_workspace_io
        self.overlaps = overlaps
        self.alignment = alignment
        self.seed = seed
        self.bounds = dict(bounds or {})
        self.poison = poison

    def transform_module(self, module: Any, context: Any) -> Any:
        """The planned module."""
        open_functions = [
            gv.name_hint
            for gv, f in module.functions.items()
            if isinstance(f, relax.Function) and not (f.attrs is not None and POOLS in f.attrs)
        ]
        if not open_functions:
            return module
        module = legalize(module)
        for name in open_functions:
            if name in {gv.name_hint for gv in module.functions}:
                module = self.plan(module, name)
        return module

    def plan(self, module: Any, name: str) -> Any:
        if self.bounds:
            gv = module.get_global_var(name)
            module.update_func(gv, module[gv].with_attr(UPPER_BOUND, self.bounds))
        options = Options(self.use_workspace_io, self.overlaps, True, self.alignment)
        program = walk(module, name)
        problem, lives = build(program, self.pools, options)
        plan = planners.plan(problem, self.planner, seed=self.seed)
        verify.check(problem, plan)
        pools, slots = slots_of(problem, plan)
        symbolic = plan_symbolic(program, lives)
        if symbolic.offsets:
            pools.append((DYNAMIC_POOL, symbolic.size))
            slots.update((n, Slot(len(pools) - 1, offset)) for n, offset in symbolic.offsets.items())
        return rewrite_program(module, program, pools, slots, poison=self.poison)
