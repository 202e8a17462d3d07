"""What is used of ExecuTorch's export side, in one place: its names for planning are private and move between versions.

Invariant: nothing of ExecuTorch or PyTorch is imported before a function here is called; graphs and specs stay opaque
to everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import NpuMemplanError

Spec: TypeAlias = Any  # executorch.exir.tensor.TensorSpec
Graph: TypeAlias = Any  # torch.fx.GraphModule

# Operators whose portable and optimized kernels read element i of an input of the output's own shape before they write
# element i, and never again.
ELEMENTWISE = frozenset((
    "abs", "add", "ceil", "clamp", "cos", "div", "elu", "erf", "exp", "floor", "gelu",
    "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log", "maximum", "minimum", "mul", "neg", "pow",
    "reciprocal", "relu", "round", "rsqrt", "rsub", "sigmoid", "sign", "silu", "sin", "sqrt", "sub", "tanh",
))  # fmt: skip


class ExirError(NpuMemplanError):
    """The installed ExecuTorch is not as it is expected here."""


@dataclass(frozen=True, slots=True)
class GreedyPlan:
    """What ExecuTorch's own planner makes of the same tensors: bytes of each buffer, and where each spec lies."""

    sizes: list[int]
    places: list[tuple[int, int]]  # memory id, offset


def greedy_plan(alignment: int, specs: Sequence[Spec], graph: Graph, signature: Any, padding: int) -> GreedyPlan:
    """ExecuTorch's greedy plan of `specs`; it also aligns their sizes."""
    try:
        from executorch.exir.memory_planning import greedy
    except ImportError as error:
        raise ExirError(f"ExecuTorch's planner cannot be imported ({error}); install executorch 1.5") from None
    result = greedy(alignment, specs, graph, signature, padding)
    placed = [result.spec_dict[spec] for spec in specs]
    return GreedyPlan(list(result.bufsizes), [(one.mem_id, one.mem_offset) for one in placed])


def algorithm_result(specs: Sequence[Spec], places: Iterable[tuple[int, int]], sizes: list[int]) -> Any:
    """A `MemoryAlgoResult`; specs of one buffer are one object, as they may share bytes."""
    from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult

    placed = (SpecAllocResult(memory, 0, offset) for memory, offset in places)
    return MemoryAlgoResult(dict(zip(specs, placed, strict=True)), sizes)


def storage_of(spec: Spec) -> tuple[Spec, int] | None:
    """The spec whose bytes `spec` lies in and where in them; None for a spec with bytes of its own."""
    base, offset = getattr(spec, "storage_base", None), 0
    if base is not None:
        offset = int(spec.storage_base_offset)
    elif not hasattr(spec, "storage_base"):
        base = getattr(spec, "inplace_base", None)
    return None if base is None else (base, offset)


def lies_in(spec: Spec, base: Spec) -> None:
    """Note that `spec` was put onto the bytes of `base`, so that ExecuTorch's verifier takes it for meant."""
    if hasattr(spec, "storage_base"):
        spec.storage_base, spec.storage_base_offset = base, 0
    elif hasattr(spec, "inplace_base"):
        spec.inplace_base = base


def reserved_bytes(graph: Graph) -> list[int]:
    """Bytes that the bodies of control flow need at the start of each buffer, by memory id."""
    return list(getattr(graph, "input_mem_buffer_sizes", None) or [])


def first_control_flow(graph: Graph) -> int:
    """Position of the first node that runs a body (cond, while, map, scan); 0 where none is found."""
    import torch

    for position, node in enumerate(graph.graph.nodes):
        for argument in node.args if node.op == "call_function" else ():
            if getattr(argument, "op", "") == "get_attr" and isinstance(
                getattr(graph, argument.target, None), torch.fx.GraphModule
            ):
                return position
    return 0


def in_place_pairs(graph: Graph) -> Iterator[tuple[Spec, Spec]]:
    """(input, output) of elementwise operators that may write their output onto that input, which ends there."""
    import torch

    for position, node in enumerate(graph.graph.nodes):
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) and hasattr(target, "_op"):
            target = target._op  # an operator of the Edge dialect
        schema = getattr(target, "_schema", None)
        output = node.meta.get("spec") if node.op == "call_function" else None
        if schema is None or schema.name.rpartition("::")[2] not in ELEMENTWISE or not hasattr(output, "lifetime"):
            continue
        if "out" not in node.kwargs:
            continue
        for argument in node.args:
            given = argument.meta.get("spec") if isinstance(argument, torch.fx.Node) else None
            if given is not None and hasattr(given, "lifetime") and _alike(given, output, position):
                yield given, output


def _alike(given: Spec, output: Spec, position: int) -> bool:
    same = (given.dtype, list(given.shape), list(given.dim_order)) == (
        output.dtype, list(output.shape), list(output.dim_order)
    )  # fmt: skip
    static = not given.is_dynamic_shape_tensor and not output.is_dynamic_shape_tensor
    return given is not output and same and static and not given.const and given.lifetime[1] == position
