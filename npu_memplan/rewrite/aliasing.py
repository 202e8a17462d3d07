"""Which storages of a call share bytes, so that a kernel may keep `tirx.noalias` for all others.

Invariant: `tirx.noalias` stays where it is true. TVM's LLVM code generator takes every declared buffer of a marked
kernel for bytes of its own, unless it is declared over another one. So storages that share bytes, at any time of the
call, are declared over one buffer, their pool or another name of it, the others on addresses of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from tvm import DataType, ir, tirx

from ..extract.program import Internal, Invoke, View
from ..extract.sizes import static_extent
from ..extract.tir import nodes_of, operator_of
from .pools import PlannedPool, PoolSlot

NOALIAS = "tirx.noalias"
_POINTERS = ("tirx.buffer_data", "tirx.address_of", "tirx.tvm_access_ptr", "tirx.call_extern", "tirx.tvm_call_packed")


Apart = Callable[[str, str], bool]
"""Whether two storages of one pool, by name, are known to share no byte, whatever the symbols are."""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A call, and the plan of the function that it is in: pools, where storages lie, which share no byte."""

    call: Invoke
    pools: Sequence[PlannedPool]
    slots: Mapping[str, PoolSlot]
    apart: Apart
    _places: list[list[PoolSlot | None]] = field(default_factory=list)

    @property
    def places(self) -> list[PoolSlot | None]:
        """Where lies what the call may find in pools (`storages_of`); None for what is in no pool."""
        if not self._places:  # found once
            found = ((self.slots.get(name), start) for name, start in storages_of(self.call))
            places = [slot and (replace(slot, offset=slot.offset + start) if start else slot) for slot, start in found]
            self._places.append(places)
        return self._places[0]


@dataclass(frozen=True, slots=True)
class _Span:
    """A storage of a call, and its first byte and one past its last, None where that depends on symbols."""

    storage: int
    name: str
    reach: tuple[int, int] | None

    def may_meet(self, other: _Span, apart: Apart) -> bool:
        """Whether the two may have bytes in common."""
        if self.reach is None or other.reach is None:
            return self.name == other.name or not apart(self.name, other.name)
        return self.reach[0] < other.reach[1] and other.reach[0] < self.reach[1]


def storages_of(call: Invoke) -> list[tuple[str, int]]:
    """What a call may find in pools, its arguments, then its internals: (name of the storage, its bytes before that).

    The name is "" for an argument that it cannot find there.
    """
    arguments = [
        (a.tensor.name, a.offset_bytes) if isinstance(a, View) and tirx.is_buffer_var(p) else ("", 0)
        for a, p in zip(call.arguments, call.primfunc.params, strict=True)
    ]
    return [*arguments, *((i.name, 0) for i in call.internals)]


def is_marked(function: Any) -> bool:
    """Whether a PrimFunc has `tirx.noalias`: its buffers share no bytes."""
    return function.attrs is not None and bool(function.attrs.get(NOALIAS, False))


def sharing(sites: Iterable[Site]) -> dict[int, int] | None:
    """Storages that may share bytes with another one in one of the calls -> their group.

    Storages are numbered as in `storages_of`. A group has those that share bytes directly or through others; its
    number is the least of theirs. Those whose offsets or sizes have symbols share unless they are `apart`. None where
    an offset is no multiple of the elements.
    """
    found: dict[int, int] = {}
    for site in sites:
        spans: dict[int, list[_Span]] = {}  # by pool
        for index, storage in enumerate([*site.call.arguments, *site.call.internals]):
            if not isinstance(storage, View | Internal):
                continue
            tensor, start = (storage.tensor, storage.offset_bytes) if isinstance(storage, View) else (storage, 0)
            slot = site.slots.get(tensor.name)
            if slot is None:
                continue
            first, item = static_extent(slot.offset), item_bytes(storage.dtype) or 1
            if (slot.unit if first is None else first) % item or start % item:
                return None
            size = tensor.size_bytes
            reach = None if first is None or size is None else (first + start, first + size)
            spans.setdefault(slot.pool, []).append(_Span(index, tensor.name, reach))
        for ones in spans.values():
            for one, other in combinations(ones, 2):
                if one.may_meet(other, site.apart):
                    joined = {found.get(one.storage, one.storage), found.get(other.storage, other.storage)}
                    found |= {one.storage: min(joined), other.storage: min(joined)}
                    found |= {member: min(joined) for member, group in found.items() if group in joined}
    return found


def may_share(function: Any, buffers: Sequence[Any]) -> bool:
    """Whether `buffers` of a kernel can be declared over a pool: no pointers, elements of whole bytes."""
    pointers = any(operator_of(call) in _POINTERS for call in nodes_of(function.body, ir.Call))
    return not pointers and all(item_bytes(str(buffer.dtype)) for buffer in buffers)


def name_of_pool(pool: Any, name: str) -> Any:
    """The declaration of one more buffer that is `pool`, which the code generator takes for another memory."""
    made = tirx.decl_buffer(list(pool.shape), str(pool.dtype), name=name, layout=None)
    zero = tirx.IntImm("int64", 0)
    return tirx.DeclBuffer(made, data=tirx.address_of(tirx.BufferLoad(pool, [zero])))


def over_pool(buffer: Any, pool: Any, offset: Any, ahead: int = 0) -> Any:
    """The declaration of a new buffer like `buffer` at byte `offset + ahead` of `pool`, as elements of the same memory.

    Both are multiples of the element; apart, the compiler sees how far two storages are from each other.
    """
    size = item_bytes(str(buffer.dtype))
    known = static_extent(offset)
    start: Any = tirx.floordiv(offset, size) if known is None else tirx.IntImm("int64", known // size)
    start = start + ahead // size if ahead else start
    start = start if isinstance(buffer.elem_offset, ir.Var) else start + buffer.elem_offset
    made = tirx.decl_buffer(
        list(buffer.shape),
        str(buffer.dtype),
        name=buffer.name,
        strides=list(buffer.strides) or None,
        elem_offset=start,
        layout=None,
    )
    return tirx.DeclBuffer(made, data=tirx.buffer_data(pool))


def settled(module: Any) -> Any:
    """`module` with the mark on all of its kernels or on none.

    TVM 0.27 compiles all kernels of a module for the CPU with the mark of the last one, by name. Kernels of threads
    lose it, too: their buffers become parameters of a kernel on the device.
    """
    kernels = {gv: f for gv, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    marked = {gv: f for gv, f in kernels.items() if is_marked(f)}
    if not marked or (len(marked) == len(kernels) and not any(has_threads(f) for f in kernels.values())):
        return module
    for gv, function in marked.items():
        module.update_func(gv, function.without_attr(NOALIAS))
    return module


def item_bytes(dtype: str) -> int:
    """Bytes of an element; 0 where elements are parts of bytes."""
    kind = DataType(dtype)
    bits = int(kind.bits) * int(kind.lanes)
    return 1 if dtype == "bool" else bits // 8 if bits % 8 == 0 else 0


def has_threads(function: Any) -> bool:
    """Whether a kernel has threads of its own."""
    kinds = any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in nodes_of(function.body, tirx.For))
    return kinds or any(stmt.attr_key == "thread_extent" for stmt in nodes_of(function.body, tirx.AttrStmt))
