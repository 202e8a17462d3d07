"""What the program does to its planned buffers, byte by byte, and which inputs come row by row: what verifiers follow.

Invariant: reads are those whose content is used for certain, writes all that may be written. A loop or an `if` inside
a PrimFunc counts as one step at its first point, without what is touched nowhere else, which reads what nothing in it
writes; an `if` of Relax is a branch. What is fed and read of a streamed input is what the NPU function says of
its operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..ethosu.program.primfunc import from_primfunc
from ..ethosu.program.program import input_feeds
from ..problem import AccessHistory, BranchPoints, Buffer, BufferAccess, ByteRun, Fed, RowsRead, RowStream
from ..problem.spans import Spans, runs_of
from ..vocabulary import PARAM_ROLES, STREAMED, STREAMED_ROWS, is_npu
from .liveness import Storage
from .program import Branch, Choose, Internal, Node, Program, RelaxTensor, Statement, Step, StepAccess, View, steps


def accesses_of(program: Program, planned: Mapping[Storage, Buffer], end: int) -> tuple[AccessHistory, ...]:
    """The accesses of all `planned` buffers whose sizes are known; results are read at point `end`.

    Points must have been numbered.
    """
    found: dict[Storage, tuple[list[BufferAccess], list[BufferAccess]]] = {
        s: ([], []) for s in planned if s.size_bytes and not (isinstance(s, RelaxTensor) and s.scratch)
    }
    touched = _touched(steps(program.nodes))
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
            local = {s for s, count in _touched(inner).items() if isinstance(s, Internal) and count == touched[s]}
        reads = [a for a in accesses if a.exact and not a.writes and a.storage not in hidden]
        writes = [a for a in accesses if a.writes and a.storage not in local]
        if accesses:
            yield inner[0].point, reads, writes


def _touched(found: Iterable[Step]) -> Counter[Storage]:
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


def streams_of(program: Program, planned: Mapping[Storage, Buffer]) -> Iterator[RowStream]:
    """The streamed inputs among the `planned` storages. Points must have been numbered."""
    for call in program.calls:
        if not is_npu(call.primfunc) or STREAMED_ROWS not in call.primfunc.attrs:
            continue
        rows, kept = map(int, call.primfunc.attrs[STREAMED_ROWS])
        argument = call.arguments[[str(role) for role in call.primfunc.attrs[PARAM_ROLES]].index(STREAMED)]
        if not isinstance(argument, View) or argument.tensor not in planned:
            continue
        ordered: list[Step] = list(steps(call.nodes))
        operations = from_primfunc(call.primfunc).operations
        buffer = planned[argument.tensor]
        fed = (Fed(ordered[feed.operation].point, feed.rows) for feed in input_feeds(operations, kept))
        read = (RowsRead(s.point, *o.input_rows) for s, o in zip(ordered, operations, strict=True) if o.input_rows[1])
        yield RowStream(buffer.name, buffer.size_bytes // kept, rows, tuple(fed), tuple(read))
