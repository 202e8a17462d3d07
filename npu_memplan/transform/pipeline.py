"""The Relax pipeline that plans and builds a module, and plain C of a module without an NPU and TVM's runtime.

Invariant: no pass in it plans what is planned again. TVM's own StaticPlanBlockMemory is left out: what the plan left to
the run time stays there. The C does what the same planned module does on the Relax VM; inputs and outputs are in the
pools, at the offsets that the header names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from ..artifact.model import TensorSlot
from ..problem import Pool
from .config import ConfigError, PlanOptions
from .plan_memory import PlanMemory
from .typed_pass import TypedPass, typed_pass
from .workspace import Place, extents, map_inputs, map_outputs

NAME = "npu_memplan"
"""What the pipeline is called in TVM's registry."""


@typed_pass
class RelaxPipeline(TypedPass):
    """The passes of `pipeline`, as one; `plan` is the first of them."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module as TVM's code generation for the virtual machine takes it."""
        if self.plan is not None:
            module = self.plan(module)
        return lowering()(module)


def pipeline(
    pools: Iterable[Pool] | None = None, planner: str | None = None, *, plan: bool = True, **given: Any
) -> Any:
    """The passes that plan a module and build it, as one.

    Parameters
    ----------
    pools : iterable of Pool, optional
        As for `PlanMemory`; what is left out comes from the scope around (`config`, `pass_context`), or is the default.
    planner : str, optional
        Name of a registered planner.
    plan : bool, optional
        Plan the functions that are not planned yet. If False they allocate each tensor by itself, at run time.
    **given
        Further parameters of `PlanMemory`.

    Returns
    -------
    tvm.transform.Pass
        For `tvm.compile(module, target=..., relax_pipeline=npu_memplan.relax_pipeline())`. Once `npu_memplan.transform`
        is imported, `relax_pipeline="npu_memplan"` is the one without options.

    Raises
    ------
    ConfigError
        An option is unknown or has a value of the wrong kind, here; others as for `PlanMemory`, when it is run.
    """
    known = [f.name for f in fields(PlanOptions)]
    if unknown := sorted(set(given).difference(known)):
        raise ConfigError(f"unknown planning option {unknown[0]!r}; known: {', '.join(known)}")
    given |= {name: value for name, value in (("pools", pools), ("planner", planner)) if value is not None}
    if given and not plan:
        raise ConfigError(f"plan=False plans nothing, so {sorted(given)[0]!r} has no meaning; leave one of them out")
    return RelaxPipeline(PlanMemory(**given) if plan else None)


def lowering() -> Any:
    """The passes after the plan: those of TVM's default pipeline without its planner."""
    passes = relax.transform
    return tvm.ir.transform.Sequential(
        [
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            passes.LegalizeOps(skip_ops=["relax.reshape"]),
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.LowerAllocTensor(),
            passes.KillAfterLastUse(),
            passes.LowerRuntimeBuiltin(),
            passes.ComputePrimValue(),
            passes.VMShapeLower(),
            passes.AttachGlobalSymbol(),
        ],
        name="npu_memplan.lowering",
    )


if NAME not in relax.pipeline.PIPELINE_MAP:  # again after a reload of this module
    relax.register_pipeline(NAME)(pipeline)


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
    from ..names import c_identifier
    from ..vocabulary import CONSTANT_POOLS, POOLS, SYMBOLS

    planned = PlanMemory(**{**plan, "use_workspace_io": True})(module)
    attributes = planned["main"].attrs
    symbols = {str(n): int(b) for n, b in attributes.get(SYMBOLS, ())}
    for symbol in symbols:
        if c_identifier(symbol) != symbol or symbol in ("pools", "status"):
            raise CodegenError(f"the shape symbol {symbol!r} is an argument of the C function; give it another name")
    interface = Interface(
        c_identifier(name),
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
