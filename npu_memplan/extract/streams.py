"""Inputs that come row by row, as the plan's verifier follows them.

Invariant: what is fed and read at which point is what the NPU function says of its operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..ethosu.program.primfunc import from_primfunc
from ..ethosu.program.streamed import feeds
from ..problem import Buffer, Fed, RowsRead, RowStream
from ..vocabulary import PARAM_ROLES, STREAMED, STREAMED_ROWS, is_npu
from .liveness import Storage
from .program import Program, Step, View, steps


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
        fed = (Fed(ordered[feed.operation].point, feed.rows) for feed in feeds(operations, kept))
        read = (RowsRead(s.point, *o.input_rows) for s, o in zip(ordered, operations, strict=True) if o.input_rows[1])
        yield RowStream(buffer.name, buffer.size_bytes // kept, rows, tuple(fed), tuple(read))
