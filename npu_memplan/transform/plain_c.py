"""A Relax module as plain C on planned pools, without an NPU and without TVM's runtime.

Invariant: the C does what the same planned module does on the Relax VM; inputs and outputs are in
the pools, at the offsets that the header names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..artifact.model import TensorSlot
from .plan_memory import PlanMemory
from .workspace import Place, extents, map_inputs, map_outputs


def write_c(module: Any, directory: Path | str, name: str = "model", **plan: Any) -> Any:
    """Plans `module` and writes its C sources into an existing directory.

    Parameters
    ----------
    module : IRModule
        With a function `main`; shape symbols need bounds, and are arguments of the C function.
    directory : path or str
        Where the sources go.
    name : str
        Prefix of the C functions and files.
    **plan
        As for `PlanMemory`; inputs and outputs are always in the pools.

    Returns
    -------
    IRModule
        The planned module; `Workspace` and `map_inputs` say where its tensors are.

    Raises
    ------
    CodegenError
        A packed call has no plain C form, or a symbol's name is taken.
    ExtractionError
        An input or output cannot be in a pool.
    """
    from ..codegen import CodegenError
    from ..codegen.interface import Interface, PoolSpec
    from ..codegen.sources import write_sources
    from ..names import identifier
    from ..vocabulary import CONSTANT_POOLS, POOLS, SYMBOLS

    planned = PlanMemory(**{**plan, "use_workspace_io": True})(module)
    attributes = planned["main"].attrs
    symbols = {str(n): int(b) for n, b in attributes.get(SYMBOLS, ())}
    for symbol in symbols:
        if identifier(symbol) != symbol or symbol in ("pools", "status"):
            raise CodegenError(f"the shape symbol {symbol!r} is an argument of the C function; give it another name")
    interface = Interface(
        identifier(name),
        tuple(PoolSpec(str(n), int(b), region=i + 1) for i, (n, b) in enumerate(attributes[POOLS])),
        tuple(_slot(p, symbols) for p in map_inputs(planned).values()),
        tuple(_slot(p, symbols) for p in map_outputs(planned).values()),
        constant_pools=tuple(PoolSpec(str(n), int(b), region=0) for n, b in attributes.get(CONSTANT_POOLS, ())),
        symbols=symbols,
    )
    write_sources(planned, interface, directory)
    return planned


def _slot(place: Place, bounds: Mapping[str, int]) -> TensorSlot:
    """The slot of a tensor; of one with symbols the largest."""
    where = (place.pool, place.offset_bytes, place.size_bytes)
    return TensorSlot(place.name, place.dtype, extents(place, bounds), *where, scale=0.0, zero_point=0)
