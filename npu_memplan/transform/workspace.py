"""Inputs and outputs inside the pools, pools to run with, and workspaces of packed functions that are planned.

Invariant: everything is read off the attributes of the planned function; a `Workspace` gives views of the pool bytes,
never copies. A call that gets a workspace is the same call with one more argument, a uint8 tensor behind the others, as
TVM's own `AllocateWorkspace` passes it; the module runs with a plan and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, runtime

from ..errors import NpuMemplanError
from ..extract.tir import operator_of
from ..problem import POISON
from ..rewrite.pools import evaluate
from ..vocabulary import (
    FORMULAS,
    KEPT,
    PLACED_INPUTS,
    PLACED_OUTPUTS,
    PLACED_STATES,
    POOL_DEVICES,
    POOLS,
    SYMBOLS,
    UPPER_BOUND,
)


class WorkspaceError(NpuMemplanError):
    """A function has no inputs and outputs in pools, or none of that name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor on pool bytes `[offset_bytes, offset_bytes + size_bytes)`, the most where extents are symbols."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    pool: str
    offset_bytes: int
    size_bytes: int


def map_inputs(module: Any, function: str = "main") -> dict[str, Place]:
    """The places of the inputs (and states) of a function planned with `use_workspace_io`.

    Parameters
    ----------
    module : IRModule
        A planned module.
    function : str
        Name of the planned function.

    Returns
    -------
    dict of str to Place
        By the input's name.

    Raises
    ------
    WorkspaceError
        The function has no inputs in pools.
    """
    return {**_places(module, function, PLACED_INPUTS), **_places(module, function, PLACED_STATES)}


def map_outputs(module: Any, function: str = "main") -> dict[str, Place]:
    """The places of the outputs of a function planned with `use_workspace_io`.

    Parameters
    ----------
    module : IRModule
        A planned module.
    function : str
        Name of the planned function.

    Returns
    -------
    dict of str to Place
        By the output's name.

    Raises
    ------
    WorkspaceError
        The function has no outputs in pools.
    """
    return _places(module, function, PLACED_OUTPUTS)


def pool_sizes(module: Any, symbols: Mapping[str, int] | None = None, function: str = "main") -> dict[str, int]:
    """Bytes of the pools of a planned function.

    Parameters
    ----------
    module : IRModule
        A planned module.
    symbols : mapping of str to int, optional
        Values of the function's shape symbols; those left out are their bounds, if they have any.
    function : str
        Name of the planned function.

    Returns
    -------
    dict of str to int
        By the pool's name.

    Raises
    ------
    WorkspaceError
        The function is not planned.
    FormulaError
        A symbol that a size depends on has no value.
    """
    attributes = _attributes(module, function)
    if POOLS not in attributes:
        raise WorkspaceError(f"function {function!r} is not planned, so it has no pools; run PlanMemory on the module")
    bounds = {str(name): int(bound) for name, bound in attributes.get(UPPER_BOUND, {}).items()}
    values = {**bounds, **(symbols or {})}
    for name, text in attributes.get(FORMULAS, ()):
        values[str(name)] = evaluate(str(text), values)
    return {str(name): evaluate(str(size), values) for name, size in attributes[POOLS]}


class KeptPools:
    """The pools of a module planned with `share`, allocated once for all its functions.

    `pools("decode", t=128)` are the last arguments of a call. A pool that is too small for it is replaced by one half
    again as large, or of what is needed if that is more. Pools of one name are one; they keep nothing between calls.

    Parameters
    ----------
    module : IRModule
        Planned with `PlanMemory(share=True)`.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.tensors: dict[str, Any] = {}

    @property
    def sizes(self) -> dict[str, int]:
        """Name -> bytes of what is allocated."""
        return {name: int(tensor.shape[0]) for name, tensor in self.tensors.items()}

    def __call__(self, function: str = "main", **symbols: int) -> tuple[Any, ...]:
        """The pools for a call of `function` with these values of its shape symbols."""
        wanted = pool_sizes(self.module, symbols, function)
        attributes = self.module[function].attrs
        if KEPT not in attributes:
            raise WorkspaceError(f"function {function!r} makes its pools itself; plan it with PlanMemory(share=True)")
        sizes = self.sizes
        for (name, size), device in zip(wanted.items(), _devices(self.module, attributes), strict=True):
            if name not in sizes or sizes[name] < size:
                room = max(1, size, sizes.get(name, 0) * 3 // 2)
                self.tensors[name] = runtime.empty((room,), "uint8", device)
        return tuple(self.tensors[name] for name in wanted)


class Workspace:
    """Pools of a planned function, filled with a poison byte, with its tensors as numpy views.

    Each pool is on its device; numpy sees those of CPUs only.

    Parameters
    ----------
    module : IRModule
        Planned with `PlanMemory(use_workspace_io=True)`.
    function : str
        Name of the planned function.
    poison : int
        Byte that fills the pools.
    symbols : mapping of str to int, optional
        Values of the shape symbols of a function planned with bounds; they may be set again later.

    Raises
    ------
    WorkspaceError
        The function has no inputs and outputs in pools.
    """

    def __init__(
        self, module: Any, function: str = "main", poison: int = POISON, symbols: Mapping[str, int] | None = None
    ) -> None:
        self.symbols = dict(symbols or {})
        self.inputs = map_inputs(module, function)
        self.outputs = map_outputs(module, function)
        attributes = module[function].attrs
        self._names = [str(name) for name, _ in attributes.get(SYMBOLS, ())]
        pools = attributes[POOLS]
        self._tensors = [
            runtime.tensor(np.full(max(1, int(size)), poison, np.uint8), device)
            for (_, size), device in zip(pools, _devices(module, attributes), strict=True)
        ]
        # Through DLPack: an array on the tensor's own bytes.
        self.pools: dict[str, npt.NDArray[Any]] = {
            str(name): np.from_dlpack(tensor) for (name, _), tensor in zip(pools, self._tensors, strict=True)
        }

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The arguments of the planned function."""
        if not self._names:
            return tuple(self._tensors)
        return (*self._tensors, runtime.ShapeTuple([evaluate(name, self.symbols) for name in self._names]))

    def input(self, name: str) -> npt.NDArray[Any]:
        """A view of an input's bytes, in its shape and dtype."""
        return self._view(self.inputs, name)

    def output(self, name: str) -> npt.NDArray[Any]:
        """A view of an output's bytes; they are the result once the function has run."""
        return self._view(self.outputs, name)

    def _view(self, places: Mapping[str, Place], name: str) -> npt.NDArray[Any]:
        if name not in places:
            raise WorkspaceError(f"no tensor {name!r} in the workspace; there are: {', '.join(places) or 'none'}")
        place = places[name]
        shape = extents(place, self.symbols)
        size = int(np.prod(shape)) * np.dtype(place.dtype).itemsize
        flat = self.pools[place.pool][place.offset_bytes : place.offset_bytes + size]
        return flat.view(place.dtype).reshape(shape)


def extents(place: Place, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor for values of the shape symbols."""
    return tuple(e if isinstance(e, int) else evaluate(e, symbols) for e in place.shape)


def _devices(module: Any, attributes: Any) -> list[Any]:
    """The run-time device of each pool."""
    if POOL_DEVICES not in attributes:
        return [runtime.device("cpu", 0) for _ in attributes[POOLS]]
    virtual = [module.global_infos["vdevice"][int(i)] for i in attributes[POOL_DEVICES]]
    kinds = ["cpu" if v.target.kind.name in ("llvm", "c") else v.target.kind.name for v in virtual]
    return [runtime.device(kind, int(v.vdevice_id)) for kind, v in zip(kinds, virtual, strict=True)]


def _attributes(module: Any, name: str) -> Mapping[str, Any]:
    """The attributes of the function called `name`; none where there is no such function."""
    return next((f.attrs for gv, f in module.functions.items() if gv.name_hint == name), {})


def _places(module: Any, function: str, attribute: str) -> dict[str, Place]:
    attributes = _attributes(module, function)
    if attribute not in attributes:
        raise WorkspaceError(
            f"function {function!r} has no inputs and outputs in pools; plan it with PlanMemory(use_workspace_io=True)"
        )
    return {
        str(entry["name"]): Place(
            str(entry["name"]),
            str(entry["dtype"]),
            tuple(str(e) if isinstance(e, str) else int(e) for e in entry["shape"]),
            str(entry["pool"]),
            int(entry["offset_bytes"]),
            int(entry["size_bytes"]),
        )
        for entry in attributes[attribute]
    }


Size = int | str | Callable[..., Any]


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.AllocateWorkspaces")
class AllocateWorkspaces:
    """Gives calls of packed functions (`call_dps_packed`) the workspaces that they ask for.

    Parameters
    ----------
    sizes : mapping of str to int, str or callable
        Name of the packed function -> bytes: a number, or a function of the types of the arguments and then of the
        results that returns a number or an expression of shape symbols, or the name of such a function that is
        registered with `tvm.register_global_func`. 0 is no workspace.
    """

    def __init__(self, sizes: Mapping[str, Size]) -> None:
        self.sizes = dict(sizes)

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module with workspaces."""
        adder = _Adder(module, self.sizes)
        for gv, function in module.functions.items():
            if isinstance(function, relax.Function):
                adder.builder_.update_func(gv, adder.visit_expr(function))
        return adder.builder_.get()


@relax.expr_functor.mutator
class _Adder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, sizes: Mapping[str, Size]) -> None:
        super().__init__(module)
        self.sizes = sizes

    def visit_call_(self, call: Any) -> Any:
        """A call with its workspace, if it needs one."""
        call = super().visit_call_(call)
        packed = operator_of(call) == "relax.call_dps_packed" and isinstance(call.args[0], relax.ExternFunc)
        name = str(call.args[0].global_symbol) if packed else ""
        if name not in self.sizes:
            return call
        arguments = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
        size = self.sizes[name]
        if not isinstance(size, int):
            outcome = call.ty_args[0]
            results = list(outcome.fields) if isinstance(outcome, relax.TupleType) else [outcome]
            function = tvm.get_global_func(size) if isinstance(size, str) else size
            size = function(*(a.ty for a in arguments), *results)
        if isinstance(size, int) and size == 0:
            return call
        allocation = relax.op.builtin.alloc_tensor(relax.ShapeExpr([size]), "uint8", 0)
        workspace = self.builder_.emit(allocation, "workspace")
        return relax.Call(call.op, [call.args[0], relax.Tuple([*arguments, workspace])], call.attrs, call.ty_args)
