"""The bytes that a module takes when TVM plans it and when `PlanMemory` does, beside the bound of any plan.

Invariant: both plans are counted by one rule: the bytes that a function allocates for tensors between calls, results
left out, which are the caller's; TVM's plan takes what the kernel with the largest allocations takes, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, relax, tirx

from ..extract import extract_from
from ..extract.liveness import labels
from ..extract.program import (
    ExtractionError,
    Program,
    Unknown,
    element_bytes,
    entry_symbols,
    number,
    size_bytes,
    static_extent,
)
from ..extract.symbolic import as_expr
from ..extract.tir import nodes_of, operator_of
from ..options import NO_NPU, CompileOptions
from ..planners.bounds import load_peak
from ..planners.model import Model
from ..problem import Pool
from ..request import Request
from ..vocabulary import POOL_DEVICES, POOLS, UPPER_BOUND
from .config import ConfigError, check_values
from .legalize import legalize
from .plan_memory import PlanMemory
from .workspace import pool_sizes


@dataclass(frozen=True, slots=True)
class FunctionBytes:
    """Bytes that a function takes on a device, without its inputs and results.

    `tvm_bytes` are the storages of TVM's plan and `tvm_internal_bytes` what its kernel with the largest allocations
    takes; `planned_bytes` are the pools of `PlanMemory` and what it leaves to the run time; no plan of the calls in
    their order takes less than `bound_bytes`. `device` is "" in a module without virtual devices. Copies between
    devices are in our plan; the run time makes those of TVM, which are not counted.
    """

    function: str
    device: str
    tvm_bytes: int
    tvm_internal_bytes: int
    planned_bytes: int
    bound_bytes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Bytes by function and device, at these values of the shape symbols."""

    symbols: Mapping[str, int]
    rows: tuple[FunctionBytes, ...]

    def table(self) -> str:
        """The comparison as a Markdown table."""
        lines = [
            "| function | device | TVM's plan | in kernels | ours | bound | ours / TVM |",
            "|---|---|--:|--:|--:|--:|--:|",
        ]
        for row in self.rows:
            numbers = (row.tvm_bytes, row.tvm_internal_bytes, row.planned_bytes, row.bound_bytes)
            theirs = row.tvm_bytes + row.tvm_internal_bytes
            ratio = f"{row.planned_bytes / theirs:.2f}" if theirs else "-"
            cells = [row.function, row.device or "-", *(f"{n:,}" for n in numbers), ratio]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)


def compare(module: Any, symbols: Mapping[str, int] | None = None, **given: Any) -> Comparison:
    """Bytes of each Relax function of a module, for `npu_memplan.analysis.compare`.

    Parameters
    ----------
    module : IRModule
        Not planned yet.
    symbols : mapping of str to int, optional
        Values of the shape symbols that sizes depend on; those left out are their bounds, if they have any.
    **given
        Parameters of `PlanMemory`.

    Raises
    ------
    ConfigError
        A shape symbol has neither a value nor a bound, or a value that it cannot have.
    ExtractionError
        There is no module, or it has a plan already.
    """
    _check_module(module)
    plan = PlanMemory(**given)
    bounds = {**_bounds(module), **(given.get("bounds") or {})}
    values = {**bounds, **check_values(symbols or {}, bounds)}
    planned = plan(module)
    known = _with_sizes(module, values)
    legal = legalize(known)
    # TVM's planner ends the process where the sizes of an `if` have symbols (apache/tvm #20191).
    branches = any(nodes_of(f.body, relax.If) for f in legal.functions.values() if isinstance(f, relax.Function))
    theirs = planned_by_tvm(known if branches else module)
    devices = labels(list(module.global_infos.get("vdevice", [])))
    rows: list[FunctionBytes] = []
    for name in sorted(gv.name_hint for gv, f in legal.functions.items() if isinstance(f, relax.Function)):
        problem, program, _, _ = extract_from(
            legal, Request(_OPTIONS, _POOLS, function=name, io_in_pools=False, alignment=1)
        )
        model = Model(replace(problem, accesses=()))
        least = {p.targets[0] if devices else "": load_peak(model, i).bytes for i, p in enumerate(problem.pools)}
        stock, inside = _bytes_by_device(allocations(theirs[name]), values), internal_bytes(program)
        ours = _planned_bytes(planned, name, values)
        for i, device in enumerate(devices or ("",)):
            rows.append(FunctionBytes(name, device, stock[i], inside[i], ours[i], least.get(device, 0)))
    return Comparison(values, tuple(rows))


ALLOCATE = "relax.memory.alloc_storage"
_OPTIONS, _POOLS = CompileOptions(NO_NPU), (Pool("workspace"),)


def _check_module(module: Any) -> None:
    """Refuse what is no module, and a module in which a plan has placed allocations."""
    if not isinstance(module, ir.IRModule):
        raise ExtractionError(f"an IRModule is needed, not {type(module).__name__}; give the module before PlanMemory")
    for gv, function in module.functions.items():
        if isinstance(function, relax.Function) and (
            POOLS in function.attrs or any(operator_of(c) == ALLOCATE for c in nodes_of(function.body, ir.Call))
        ):
            raise ExtractionError(f"{gv.name_hint!r} is planned already; give the module as it was before")


def _bounds(module: Any) -> dict[str, int]:
    """Bounds of shape symbols that the functions of a module have."""
    found: dict[str, int] = {}
    for function in module.functions.values():
        if isinstance(function, relax.Function) and UPPER_BOUND in function.attrs:
            found |= {str(n): int(v) for n, v in function.attrs[UPPER_BOUND].items()}
    return found


def planned_by_tvm(module: Any) -> Any:
    """`module` with operators lowered, private functions in their callers, and allocations as TVM plans them."""
    passes = relax.transform
    devices = [passes.RealizeVDevice()] if module.global_infos.get("vdevice") else []
    return ir.transform.Sequential(
        [
            passes.LambdaLift(),
            passes.InlinePrivateFunctions(),
            *devices,
            passes.LegalizeOps(),
            passes.RewriteDataflowReshape(),
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.StaticPlanBlockMemory(),
        ]
    )(module)


def allocations(function: Any, *, storages: bool = True) -> list[tuple[Any, int]]:
    """(bytes, an expression; device) of each storage and tensor that a function allocates, results not included."""
    bindings = [b for block in _blocks(function.body) for b in block.bindings if isinstance(b, relax.VarBinding)]
    values = {b.var: b.value for b in bindings}
    results: set[Any] = set()
    wanted = [function.body.body]
    while wanted:  # through renamings and tuples
        value = wanted.pop()
        if isinstance(value, ir.Var):
            results.add(value)
            wanted += [values[value]] if isinstance(values.get(value), ir.Var | relax.Tuple) else []
        elif isinstance(value, relax.Tuple):
            wanted += list(value.fields)
    found: list[tuple[Any, int]] = []
    for var, value in values.items():
        if storages and operator_of(value) == ALLOCATE:
            found.append((value.args[0].values[0], static_extent(value.args[1]) or 0))
        elif operator_of(value) == "relax.builtin.alloc_tensor" and var not in results:
            found.append((tensor_bytes(var.ty), static_extent(value.args[2]) or 0))
    return found


def _blocks(expr: Any) -> Iterator[Any]:
    """The blocks of bindings of an expression, those of branches included."""
    for block in expr.blocks if isinstance(expr, relax.SeqExpr) else ():
        yield block
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                yield from _blocks(binding.value.true_branch)
                yield from _blocks(binding.value.false_branch)


def tensor_bytes(ty: Any) -> Any:
    """The bytes of a tensor of this type, an expression."""
    total: Any = element_bytes(str(ty.dtype))
    for extent in ty.shape.values:
        total = total * extent
    return total


def internal_bytes(program: Program) -> Counter[int]:
    """The bytes of the kernel with the largest allocations, by device."""
    found: Counter[int] = Counter()
    kernels = {(call.primfunc, call.device) for call in program.calls}
    shared = {function: allocated_bytes(function) for function, _ in kernels}
    for function, device in kernels:
        found[device] = max(found[device], shared[function])
    return found


def allocated_bytes(function: Any) -> int:
    """Bytes of global memory that a PrimFunc allocates after StorageRewrite; its sizes must be known."""
    own = tirx.transform
    passes = [own.FlattenBuffer(), own.StmtSimplify(), own.VectorizeLoop(), own.StorageRewrite()]
    lowered = ir.transform.Sequential(passes)(ir.IRModule({"kernel": function}))["kernel"]
    buffers = [statement.buffer for statement in nodes_of(lowered.body, tirx.AllocBuffer)]
    return sum(size_bytes(b.shape, str(b.dtype)) or 0 for b in buffers if b.scope() == "global")


def _with_sizes(module: Any, values: Mapping[str, int]) -> Any:
    """`module` with its shape symbols replaced by their values."""
    for gv, function in module.functions.items():
        needed = sorted({v.name for v in entry_symbols(function)}) if isinstance(function, relax.Function) else []
        if missing := [n for n in needed if n not in values]:
            raise ConfigError(
                f"sizes of {gv.name_hint!r} depend on {', '.join(missing)} without a value or a bound; give"
                f" symbols={{{missing[0]!r}: ...}}"
            )
        if needed:
            module = relax.transform.BindSymbolicVars({n: values[n] for n in needed}, gv.name_hint)(module)
    return module


def _bytes_by_device(found: Sequence[tuple[Any, int]], values: Mapping[str, int]) -> Counter[int]:
    """The sums of sizes; what depends on data counts as 0, on either side."""
    sums: Counter[int] = Counter()
    for size, device in found:
        known = {v: values[v.name] for v in nodes_of(as_expr(size), ir.Var) if v.name in values}
        try:
            sums[device] += number(size, known)
        except Unknown:
            continue
    return sums


def _planned_bytes(planned: Any, name: str, values: Mapping[str, int]) -> Counter[int]:
    """The pools of a planned function, and the tensors that it leaves to the run time."""
    function = planned[name]
    sizes = pool_sizes(planned, values, name)
    devices = [int(d) for d in function.attrs.get(POOL_DEVICES, [0] * len(sizes))]
    sums = Counter(dict.fromkeys(devices, 0))
    for device, size in zip(devices, sizes.values(), strict=True):
        sums[device] += size
    sums.update(_bytes_by_device(allocations(function, storages=False), values))
    return sums
