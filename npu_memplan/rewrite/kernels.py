"""The planned PrimFuncs of a module, which all of its functions share.

Invariant: calls with equal keys take one kernel. Where calls of a PrimFunc are alike but for their offsets or for the
sizes of their pools, also those of several functions, these are parameters of one kernel; so a module has about as many
kernels as it had PrimFuncs, however many functions and calls use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..extract.program import Plain, Program
from ..extract.relax.calls import Symbols
from ..extract.sizes import static_extent
from ..names import Names
from ..problem import Agent
from ..vocabulary import is_npu
from .aliasing import Apart, Site
from .pools import PlannedPool, PoolSlot, holds_boundary
from .primfunc import Placer, Rewritten


class Kernels:
    """Makes planned PrimFuncs and their names; `taken` are the names of the module's other functions."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.names = Names(taken)
        self.made: dict[Any, tuple[str, Rewritten]] = {}  # key -> name, planned PrimFunc
        self.keys: dict[Any, set[Any]] = {}  # key of calls that may share a kernel -> their keys
        self.sharers: dict[Any, list[Site]] = {}  # key -> calls that share a kernel
        self.symbols = Symbols()
        self.known: dict[int, _Keyed] = {}  # by id of a call of `share`

    def share(
        self, program: Program, pools: Sequence[PlannedPool], slots: Mapping[str, PoolSlot], apart: Apart
    ) -> None:
        """From here on, the calls of `program` share kernels whose parameters are offsets with others, where they can.

        Those of a program whose inputs and outputs are in the pools do not: it is for plain C as well.
        """
        if holds_boundary(program, slots):
            return
        for call in program.calls:
            keyed = self.keyed(Site(call, pools, slots, apart))
            self.known[id(call)] = keyed
            self.keys.setdefault(keyed.free, set()).add(keyed.key)
            for one in {keyed.free, keyed.key}:
                self.sharers.setdefault(one, []).append(keyed.site)

    def keyed(self, site: Site) -> _Keyed:
        """A call with its keys."""
        values = self.symbols.values(site.call)
        return _Keyed(site, values, _key(site, values, anywhere=True), _key(site, values))

    def of(self, site: Site) -> tuple[str, Rewritten, list[Plain]]:
        """The name of the kernel of a call, the kernel, and the numbers that the call passes last."""
        keyed = self.known.get(id(site.call)) or self.keyed(site)
        anywhere = len(self.keys.get(keyed.free, ())) > 1
        key = keyed.free if anywhere else keyed.key
        if key not in self.made:
            placed = Placer(keyed.site, keyed.values, anywhere=anywhere, sites=self.sharers.get(key, ())).run()
            name = self.names.unique(site.call.function)
            self.made[key] = name, placed.called(name)
        name, placed = self.made[key]
        return name, placed, placed.numbers(keyed.site, keyed.values)


@dataclass(frozen=True, slots=True, eq=False)
class _Keyed:
    """A call, the values of its shape symbols, and its keys: with any offsets, and with its own."""

    site: Site
    values: Mapping[Any, Any]
    free: tuple[Any, ...]
    key: tuple[Any, ...]


def _key(site: Site, values: Mapping[Any, Any], *, anywhere: bool = False) -> tuple[Any, ...]:
    """Calls with equal keys can share one planned PrimFunc; with `anywhere`, one whose parameters are offsets."""
    call, pools = site.call, site.pools
    anywhere = anywhere and call.agent is Agent.HOST
    found: list[Any] = [call.primfunc, call.foreign, call.device]
    for slot, argument in zip(site.places, [*call.arguments, *call.internals], strict=True):
        if slot is None:
            found.append(type(argument).__name__)
        else:
            offset = "" if anywhere or static_extent(slot.offset) is None else slot.offset
            extent = "" if anywhere else static_extent(pools[slot.pool].extent)
            found.append((slot.pool, pools[slot.pool].name, offset, extent))
    if is_npu(call.primfunc):  # which takes all pools
        found += [(pool.name, static_extent(pool.extent), pool.read_only) for pool in pools]
    return (*found, *(static_extent(value) for value in values.values()))
