"""The planned PrimFuncs of a module, which all of its functions share.

Invariant: calls with equal keys take one kernel. Where calls of a PrimFunc are alike but for their offsets or for the
sizes of their pools, also those of several functions, these are parameters of one kernel; so a module has about as many
kernels as it had PrimFuncs, however many functions and calls use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..extract.program import Program
from ..extract.relax.calls import Symbols
from ..extract.sizes import static_extent
from ..names import Names
from ..problem import Agent
from ..vocabulary import is_npu
from .aliasing import Apart, Site
from .pools import PlannedPool, PoolSlot, holds_boundary
from .primfunc import Placer, Rewritten, places_of


class Kernels:
    """Makes planned PrimFuncs and their names; `taken` are the names of the module's other functions."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.names = Names(taken)
        self.made: dict[Any, tuple[str, Rewritten]] = {}  # key -> name, planned PrimFunc
        self.keys: dict[Any, set[Any]] = {}  # key of calls that may share a kernel -> their keys
        self.sharers: dict[Any, list[Site]] = {}  # key -> calls that share a kernel
        self.symbols = Symbols()

    def share(
        self, program: Program, pools: Sequence[PlannedPool], slots: Mapping[str, PoolSlot], apart: Apart
    ) -> None:
        """From here on, the calls of `program` share kernels whose parameters are offsets with others, where they can.

        Those of a program whose inputs and outputs are in the pools do not: it is for plain C as well.
        """
        if holds_boundary(program, slots):
            return
        for call in program.calls:
            site = Site(call, pools, slots, apart)
            values = self.symbols.values(call)
            free, key = _key(site, values, anywhere=True), _key(site, values)
            self.keys.setdefault(free, set()).add(key)
            for one in {free, key}:
                self.sharers.setdefault(one, []).append(site)

    def of(self, site: Site) -> tuple[str, Rewritten, Mapping[Any, Any]]:
        """The name of the kernel of a call, the kernel, and the values of its shape symbols."""
        values = self.symbols.values(site.call)
        free = _key(site, values, anywhere=True)
        anywhere = len(self.keys.get(free, ())) > 1
        key = free if anywhere else _key(site, values)
        if key not in self.made:
            placed = Placer(site, values, anywhere=anywhere, sites=self.sharers.get(key, ())).run()
            name = self.names.unique(site.call.function)
            self.made[key] = name, placed.called(name)
        return *self.made[key], values


def _key(site: Site, values: Mapping[Any, Any], *, anywhere: bool = False) -> tuple[Any, ...]:
    """Calls with equal keys can share one planned PrimFunc; with `anywhere`, one whose parameters are offsets."""
    call, pools = site.call, site.pools
    anywhere = anywhere and call.agent is Agent.HOST
    found: list[Any] = [call.primfunc, call.foreign, call.device]
    for slot, argument in zip(places_of(site), [*call.arguments, *call.internals], strict=True):
        if slot is None:
            found.append(type(argument).__name__)
        else:
            offset = "" if anywhere or static_extent(slot.offset) is None else slot.offset
            extent = "" if anywhere else static_extent(pools[slot.pool].extent)
            found.append((slot.pool, pools[slot.pool].name, offset, extent))
    if is_npu(call.primfunc):  # which takes all pools
        found += [(pool.name, static_extent(pool.extent), pool.read_only) for pool in pools]
    return (*found, *(static_extent(value) for value in values.values()))
