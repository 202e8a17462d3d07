"""When every storage holds bytes that matter, which pools it may lie in, and what the program does to it byte by byte.

Invariant: a storage is live at point t exactly when it is touched at t, or when some of its bytes were defined before t
and may be read after t with no complete rewrite of them in between. In loops this is rounded up: a storage from outside
a loop is live in the whole loop nest that touches it. The work is linear in the number of accesses. A device's memory
is its own: a pool that serves several devices of a module is one pool on each of them, with a name of its own and the
whole capacity. A module without virtual devices has one nameless device, which every pool serves. Constants may lie in
the constant pools of their device, everything else in its other pools. Accesses that verifiers follow are reads of
content that is used for certain, and writes of all that may be written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from ..names import Names
from ..problem import (
    AccessHistory,
    BranchPoints,
    Buffer,
    BufferAccess,
    BufferKind,
    ByteRun,
    Lifetime,
    Pool,
)
from ..problem.spans import Spans, merge_spans, runs_of, subtract_spans, unite_spans
from .program import (
    Branch,
    Choose,
    ExtractionError,
    Internal,
    Loop,
    Node,
    Program,
    RelaxTensor,
    Statement,
    Step,
    StepAccess,
    steps,
)

Storage = RelaxTensor | Internal
_EVERYTHING: Spans = ((0, 1 << 62),)

ALWAYS = (BufferKind.STATE, BufferKind.CONSTANT, BufferKind.RESIDENT)
"""Kinds of storages that keep their content from one run to the next."""


def lifetimes(program: Program) -> dict[Storage, tuple[Lifetime, ...]]:
    """Lifetimes of all storages that are touched, are parameters or are results of `program`.

    Points must have been numbered. Parameters are live from point 0, results and what outlasts it to the end, states
    and constants always; a parameter that is never read is live at point 0 alone. The value of an `if`
    that ends the program is live at no point: its sources are.
    """
    ordered = list(steps(program.nodes))
    end = max(1, len(ordered))
    analysis = _Analysis()
    for step in ordered:
        for access in step.accesses:
            analysis.first.setdefault(access.storage, step.point)
    results = [view.tensor for view in program.results]
    always = [t for t in program.tensors if t.kind in ALWAYS]
    state: _State = dict.fromkeys((*results, *program.kept, *always), (_EVERYTHING, end))
    analysis.sequence(program.nodes, state, 0)
    given = {*program.inputs, *always}
    for storage, (_, stop) in state.items():
        analysis.keep(storage, 0, stop)
    for tensor in always:
        analysis.pieces[tensor] = [(0, end)]
    for tensor in program.inputs:
        if tensor.kind not in ALWAYS and tensor not in state:
            analysis.keep(tensor, 0, 1)
    result: dict[Storage, tuple[Lifetime, ...]] = {}
    for storage, pieces in analysis.pieces.items():
        start = 0 if storage in given else analysis.first.get(storage, 0)
        clipped = merge_spans([(max(a, start), b) for a, b in pieces])
        result[storage] = tuple(Lifetime(a, b) for a, b in clipped)
    for tensor in results:
        result.setdefault(tensor, ())
    return result


_State = dict[Storage, tuple[Spans, int]]
"""Backward: the live bytes of each storage, and where its current interval ends."""


def _open(state: _State, storage: Storage, needed: Spans, stop: int) -> None:
    if needed:
        live, until = state.get(storage, ((), stop))
        state[storage] = unite_spans(live, needed), until


class _Analysis:
    def __init__(self) -> None:
        self.first: dict[Storage, int] = {}
        self.pieces: dict[Storage, list[tuple[int, int]]] = {}

    def keep(self, storage: Storage, start: int, stop: int) -> None:
        if start < stop:
            self.pieces.setdefault(storage, []).append((start, stop))

    def sequence(self, nodes: Sequence[Node], state: _State, start: int) -> None:
        """Moves `state` from behind `nodes` to before them; `start` is the first point of `nodes`."""
        bounds = list(accumulate((sum(1 for _ in steps((node,))) for node in nodes), initial=start))
        for node, (begin, stop) in reversed(list(zip(nodes, pairwise(bounds), strict=True))):
            if isinstance(node, Step):
                self.step(node, state)
            elif isinstance(node, Loop):
                self.loop(node, state, begin, stop)
            else:
                self.branch(node, state, begin, stop)

    def step(self, step: Step, state: _State) -> None:
        reads: dict[Storage, Spans] = {}
        kills: dict[Storage, Spans] = {}
        for access in step.accesses:
            self.keep(access.storage, step.point, step.point + 1)
            if not access.writes:
                reads[access.storage] = unite_spans(reads.get(access.storage, ()), access.spans)
            elif access.exact:
                kills[access.storage] = unite_spans(kills.get(access.storage, ()), _to_the_end(access))
        for storage, spans in kills.items():
            if storage in state:
                live, stop = state[storage]
                if rest := subtract_spans(live, spans):
                    state[storage] = rest, stop
                else:
                    self.keep(storage, step.point, stop)
                    del state[storage]
        for storage, spans in reads.items():
            _open(state, storage, spans, step.point + 1)

    def loop(self, node: Loop, state: _State, begin: int, stop: int) -> None:
        local = set(_locals((node,)))
        inner: _State = {}
        self.sequence(node.body, inner, begin)
        for storage, (_, until) in inner.items():
            if storage in local:
                self.keep(storage, begin, until)
        for step in steps(node.body):
            for access in step.accesses:
                if access.storage in local:
                    continue
                self.keep(access.storage, begin, stop)
                self.first[access.storage] = min(self.first[access.storage], begin)
                if not access.writes:
                    _open(state, access.storage, access.spans, stop)

    def branch(self, node: Branch, state: _State, begin: int, stop: int) -> None:
        middle = begin + sum(1 for _ in steps(node.then))
        touched: dict[Storage, None] = {}
        for step in steps((node,)):
            touched.update((a.storage, None) for a in step.accesses)
        for merge in node.merges:
            touched.update((t, None) for t in merge)
            self.first[merge[0]] = min(self.first.get(merge[0], stop), stop)
        after = {s: state.pop(s) for s in touched if s in state}
        for storage, (_, until) in after.items():
            self.keep(storage, stop, until)
        for side, (nodes, low, high) in enumerate(((node.then, begin, middle), (node.other, middle, stop))):
            inner = {storage: (live, high) for storage, (live, _) in after.items()}
            for result, *sources in node.merges:
                needed, _ = inner.pop(result, ((), high))
                _open(inner, sources[side], needed, high)
            self.sequence(nodes, inner, low)
            for storage, (live, until) in inner.items():
                self.keep(storage, low, until)
                _open(state, storage, live, begin)


def _locals(nodes: Iterable[Node]) -> Iterator[Storage]:
    """The storages that are local to the loops among `nodes`, however deep."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from (*node.local, *_locals(node.body))
        elif isinstance(node, Branch):
            yield from _locals((*node.then, *node.other))


def _to_the_end(access: StepAccess) -> Spans:
    """Bytes of a write: one of a storage's last byte also ends what is live "to the end" of it."""
    size, (start, stop) = access.storage.size_bytes, access.spans[-1]
    return access.spans if size is not None and stop < size else (*access.spans[:-1], (start, _EVERYTHING[0][1]))


def labels(virtual: Sequence[Any]) -> tuple[str, ...]:
    """Names of a module's virtual devices, e.g. `llvm:1`; with its scope where that is not global."""
    names = Names()
    found = []
    for device in virtual:
        scope = str(device.memory_scope)
        name = f"{device.target.kind.name}:{int(device.vdevice_id)}"
        found.append(names.unique_name(name if scope == "global" else f"{name}:{scope}"))
    return tuple(found)


def serves(pool: Pool, label: str) -> bool:
    """Whether `pool` is for the device called `label`; its targets are kinds (`llvm`) or labels (`llvm:1`)."""
    return not pool.targets or label in pool.targets or label.split(":")[0] in pool.targets


def pools_by_device(
    pools: Sequence[Pool], devices: Sequence[str], needed: Iterable[int], program: str
) -> Mapping[int, tuple[Pool, ...]]:
    """Device (index into `devices`) -> its pools in order, for each that is `needed`.

    On a module with devices their targets are the one device that they are on. Raises
    `ExtractionError` for a device that no pool serves.
    """
    if not devices:
        return {0: tuple(pools)}
    found = {}
    for device in sorted(needed):
        label = devices[device]
        own = [p for p in pools if serves(p, label)]
        if not own:
            known = ", ".join(f"{p.name!r} serves {', '.join(p.targets)}" for p in pools) or "there is no pool"
            raise ExtractionError(
                f"buffers of {program!r} lie on device {label}, which no pool serves ({known}); give"
                f' Pool(..., targets=("{label}",)), or a pool without targets, which serves every device'
            )
        found[device] = tuple(replace(p, name=_name(p, label, devices), targets=(label,)) for p in own)
    return found


def device_of(pool: Pool, devices: Sequence[str]) -> int:
    """The device that a pool of `pools_by_device` is on."""
    return devices.index(pool.targets[0]) if devices else 0


def _name(pool: Pool, label: str, devices: Sequence[str]) -> str:
    several = sum(serves(pool, other) for other in devices) > 1
    return f"{pool.name}_{re.sub(r'[^A-Za-z0-9]', '_', label)}" if several else pool.name


class PoolAssignment:
    """Candidates of the storages of one program."""

    def __init__(
        self, pools: Sequence[Pool], constant_pools: Sequence[Pool], program: Program, storages: Sequence[Storage]
    ) -> None:
        devices = labels(program.vdevices)
        constants = {s.device for s in storages if s.kind is BufferKind.CONSTANT}
        others = {s.device for s in storages if s.kind is not BufferKind.CONSTANT}
        self.workspace = pools_by_device(pools, devices, others, program.name)
        self.constant = pools_by_device(constant_pools, devices, constants, program.name) if constant_pools else {}
        self.filled = {p.name for pools in self.constant.values() for p in pools}

    def pools(self) -> tuple[Pool, ...]:
        """All pools, those of constants alone last."""
        found = [p for pools in self.workspace.values() for p in pools]
        known = {p.name: p for p in found}
        for pool in (p for pools in self.constant.values() for p in pools):
            if pool.name not in known:
                found.append(pool)
            elif known[pool.name] != pool:
                raise ExtractionError(
                    f"pool {pool.name!r} is given twice and differently: for constants as {pool}, for other buffers as"
                    f" {known[pool.name]}; give the same pool, or two names"
                )
        return tuple(found)

    def pools_for(self, storage: Storage) -> tuple[str, ...]:
        """Pools in order of preference; empty for all of the problem, in its order.

        Where the stream that a buffer was lifted from has one, that one first: region i + 1 of a
        stream is pool i; the compiler that made it chose with bandwidth in mind.
        """
        if storage.kind is BufferKind.CONSTANT:
            return tuple(p.name for p in self.constant[storage.device])
        own = self.workspace[storage.device]
        if storage.size_bytes is None:  # depends on shape symbols
            return tuple(p.name for p in own if p.size_bytes is None and p.name not in self.filled)
        names = tuple(p.name for p in own)
        region = storage.region if isinstance(storage, RelaxTensor) else (storage.original or (-1, 0))[0]
        if len(names) >= 2 and 1 <= region <= len(names):
            favourite = names[region - 1]
            if storage.kind is BufferKind.RESIDENT:  # anywhere else it is of no use
                return (favourite,)
            return (favourite, *(name for name in names if name != favourite))
        return names if self.constant or len(self.workspace) > 1 else ()


def accesses_of(program: Program, planned: Mapping[Storage, Buffer], end: int) -> tuple[AccessHistory, ...]:
    """The accesses of all `planned` buffers whose sizes are known; results are read at point `end`."""
    found: dict[Storage, tuple[list[BufferAccess], list[BufferAccess]]] = {
        s: ([], []) for s in planned if s.size_bytes and not (isinstance(s, RelaxTensor) and s.scratch)
    }
    touched = _count_accesses(steps(program.nodes))
    for point, reads, writes in _steps(program.nodes, set(_choices(program.statements)), touched):
        for is_write, accesses in enumerate((reads, writes)):
            for access in accesses:
                if access.storage in found:
                    used = BufferAccess(point, _runs(access.spans, planned[access.storage].size_bytes))
                    found[access.storage][is_write].append(used)
    for view in program.results:
        if view.tensor in found:
            found[view.tensor][0].append(BufferAccess(end))
    by_name = {planned[s].name: known for s, known in found.items()}
    names = (b.name for b in planned.values())
    return tuple(AccessHistory(n, *map(tuple, by_name[n])) for n in names if any(by_name.get(n, ())))


def branches_of(program: Program) -> tuple[BranchPoints, ...]:
    """Every `if` of the Relax function that has points."""
    return tuple(_branches(program.statements))


_Step = tuple[int, Sequence[StepAccess], Sequence[StepAccess]]
"""A point, and what is read and written at it."""


def _steps(nodes: Iterable[Node], choices: set[Branch], touched: Counter[Storage]) -> Iterator[_Step]:
    """Steps in order, the ones of `choices` among them; `touched` is how many accesses each storage has in all."""
    for node in nodes:
        if isinstance(node, Branch) and node in choices:
            yield from _steps((*node.then, *node.other), choices, touched)
            continue
        inner = list(steps((node,)))
        accesses = [access for step in inner for access in step.accesses]
        hidden: set[Storage] = set()  # whose reads, and whose writes, are no matter of the other steps
        local: set[Storage] = set()
        if not isinstance(node, Step):
            hidden = {access.storage for access in accesses if access.writes}
            local = {
                s for s, count in _count_accesses(inner).items() if isinstance(s, Internal) and count == touched[s]
            }
        reads = [a for a in accesses if a.exact and not a.writes and a.storage not in hidden]
        writes = [a for a in accesses if a.writes and a.storage not in local]
        if accesses:
            yield inner[0].point, reads, writes


def _count_accesses(found: Iterable[Step]) -> Counter[Storage]:
    """Count the accesses to each storage."""
    return Counter(access.storage for step in found for access in step.accesses)


def _choices(statements: Iterable[Statement]) -> Iterator[Branch]:
    for choice in statements:
        if isinstance(choice, Choose):
            yield choice.branch
            yield from _choices((*choice.then, *choice.other))


def _branches(statements: Iterable[Statement]) -> Iterator[BranchPoints]:
    for choice in statements:
        if isinstance(choice, Choose):
            then, other = ([step.point for step in steps(part)] for part in (choice.branch.then, choice.branch.other))
            both = then + other
            if both:
                yield BranchPoints(both[0], then[-1] + 1 if then else both[0], both[-1] + 1)
            yield from _branches(choice.then)
            yield from _branches(choice.other)


def _runs(spans: Spans, size_bytes: int) -> tuple[ByteRun, ...]:
    """`spans` of a buffer of `size_bytes`; none for all of it."""
    return () if spans == ((0, size_bytes),) else tuple(ByteRun(*run) for run in runs_of(spans))
