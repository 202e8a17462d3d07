"""When every storage holds bytes that matter.

Invariant: a storage is live at point t exactly when it is touched at t, or when some of its bytes
were defined before t and may be read after t with no complete rewrite of them in between. In
loops this is rounded up: a storage from outside a loop is live in the whole loop nest that
touches it. The work is linear in the number of accesses, whatever is live meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ..problem import BufferKind, Lifetime
from ..problem.spans import Spans, merged, subtract, union
from .program import Branch, Internal, Loop, Node, Program, RelaxTensor, Step, StepAccess, steps

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
        clipped = merged([(max(a, start), b) for a, b in pieces])
        result[storage] = tuple(Lifetime(a, b) for a, b in clipped)
    for tensor in results:
        result.setdefault(tensor, ())
    return result


_State = dict[Storage, tuple[Spans, int]]
"""Backward: the live bytes of each storage, and where its current interval ends."""


def _open(state: _State, storage: Storage, needed: Spans, stop: int) -> None:
    if needed:
        live, until = state.get(storage, ((), stop))
        state[storage] = union(live, needed), until


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
                reads[access.storage] = union(reads.get(access.storage, ()), access.spans)
            elif access.exact:
                kills[access.storage] = union(kills.get(access.storage, ()), _to_the_end(access))
        for storage, spans in kills.items():
            if storage in state:
                live, stop = state[storage]
                if rest := subtract(live, spans):
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
    """What is local to the loops among `nodes`, however deep."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from (*node.local, *_locals(node.body))
        elif isinstance(node, Branch):
            yield from _locals((*node.then, *node.other))


def _to_the_end(access: StepAccess) -> Spans:
    """Bytes of a write: one of a storage's last byte also ends what is live "to the end" of it."""
    size, (start, stop) = access.storage.size_bytes, access.spans[-1]
    return access.spans if size is not None and stop < size else (*access.spans[:-1], (start, _EVERYTHING[0][1]))
