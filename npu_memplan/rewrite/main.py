"""Relax `main` on pools.

Invariant: statement order is the program's. When inputs and outputs are planned, `main` takes the
pools and returns nothing; otherwise it keeps its signature, makes the pools itself, and allocates
only what the plan left out.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ..extract.lower import prepare
from ..extract.program import (
    Fixed,
    Invoke,
    Plain,
    Program,
    Statement,
    Tensor,
    Value,
    View,
    result_views,
)
from ..extract.relax_walk import walk
from ..problem import BufferKind, Plan, Problem, used_bytes
from .primfunc import Slot, place

POOLS = "npu.pools"
"""Attribute of a planned main: (name, bytes used) of every pool parameter."""
PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES = "npu.placed_inputs", "npu.placed_outputs", "npu.placed_states"
"""Attributes of a planned main: name, dtype, shape, pool, offset_bytes, size_bytes of each tensor."""


def rewrite(module: Any, problem: Problem, plan: Plan) -> Any:
    """The planned module: `problem` was extracted from `module`, `plan` answers it.

    The problem's name is the name of the Relax function; its other functions stay as they are.
    """
    module = prepare(module)
    program = walk(module, problem.name)
    return _Rewriter(module, program, problem, plan).run()


class _Rewriter:
    def __init__(self, module: Any, program: Program, problem: Problem, plan: Plan) -> None:
        self.module = module
        self.program = program
        heights = used_bytes(problem, plan.placements)
        self.pools = [(pool.name, heights[pool.name]) for pool in problem.pools]
        index = {name: i for i, (name, _) in enumerate(self.pools)}
        self.slots = {p.buffer: Slot(index[p.pool], p.offset_bytes) for p in plan.placements}
        self.io_in_pools = all(t.name in self.slots for t in program.inputs) and all(
            leaf.tensor.name in self.slots for leaf in result_views(program.result) if isinstance(leaf, View)
        )
        self.builder = relax.BlockBuilder()
        self.functions: dict[Any, Any] = {}
        self.taken: set[str] = {gv.name_hint for gv in module.functions} - {c.function for c in program.calls}
        self.pool_vars: list[Any] = []

    def run(self) -> Any:
        function = self.program.function
        called = {call.function for call in self.program.calls}
        self.pool_vars = [relax.Var(name, relax.TensorType((max(1, size),), "uint8")) for name, size in self.pools]
        with self.builder.function(self.program.name, list(self.pool_vars), pure=False):
            for statement in self.program.statements:
                self.statement(statement)
            self.builder.emit_func_output(relax.Tuple([]))
        planned = self.builder.finalize()
        main = planned[self.program.name]
        for key, value in function.attrs.items() if function.attrs is not None else ():
            main = main.with_attr(key, value)
        main = main.with_attr(POOLS, [[name, size] for name, size in self.pools])
        for key, tensors in self.boundary().items():
            main = main.with_attr(key, tensors)
        planned.update_func(planned.get_global_var(self.program.name), main)
        for gv, other in self.module.functions.items():
            if gv.name_hint != self.program.name and gv.name_hint not in called:
                planned.update_func(ir.GlobalVar(gv.name_hint), other)
        if self.module.attrs is not None:
            planned = planned.with_attrs(dict(self.module.attrs.items()))
        return planned

    def boundary(self) -> dict[str, list[dict[str, Any]]]:
        """What the caller must know: where inputs, outputs and states lie."""
        inputs = [t for t in self.program.inputs if t.kind is not BufferKind.STATE]
        states = [t for t in self.program.inputs if t.kind is BufferKind.STATE]
        outputs = [leaf for leaf in result_views(self.program.result) if isinstance(leaf, View)]
        return {
            PLACED_INPUTS: [self.entry(t.name, t, t.shape, t.dtype) for t in inputs],
            PLACED_OUTPUTS: [self.entry(v.tensor.name, v.tensor, v.shape, v.dtype) for v in outputs],
            PLACED_STATES: [self.entry(t.name, t, t.shape, t.dtype) for t in states],
        }

    def entry(self, name: str, tensor: Tensor, shape: Any, dtype: str) -> dict[str, Any]:
        slot = self.slots[tensor.name]
        return {
            "name": name,
            "dtype": dtype,
            "shape": [int(extent) for extent in shape],
            "pool": self.pools[slot.pool][0],
            "offset_bytes": slot.offset,
            "size_bytes": tensor.size_bytes,
        }

    # -- statements --------------------------------------------------------------------------

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Invoke):
            self.invoke(statement)

    def invoke(self, call: Invoke) -> None:
        placed = place(call, self.pools, self.slots)
        key = (call.primfunc, self.key(call))
        if key not in self.functions:
            name = self.name(call.function)
            self.functions[key] = self.builder.add_func(placed.function.with_attr("global_symbol", name), name)
        arguments = [self.argument(a) for a in placed.arguments]
        self.builder.emit(relax.Call(self.functions[key], [*self.pool_vars, *arguments]))

    def key(self, call: Invoke) -> tuple[Any, ...]:
        """Calls with equal keys can share one planned PrimFunc."""
        names = [a.tensor.name if isinstance(a, View) else type(a).__name__ for a in call.arguments]
        names += [internal.name for internal in call.internals]
        return tuple(self.slots.get(name, name) for name in names)

    def name(self, wish: str) -> str:
        name, count = wish, 0
        while name in self.taken:
            count += 1
            name = f"{wish}_{count}"
        self.taken.add(name)
        return name

    def argument(self, value: Value) -> Any:
        assert isinstance(value, Fixed | Plain)
        return value.expr
