"""Cascades: operators of the CPU in turn, a row at a time, so that of the maps between them some rows are kept.

Invariant: a row is made by the operator's own statements, or by its own C kernel, from all rows that its loads reach;
so the results are those of whole maps. The order of the rows is a table, made here by the same simulation that counts
the rows that are kept. A map that something outside of the cascade reads is whole.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from ...extract.tir import index_ranges
from ...models.network import CpuOperator, Network
from ...vocabulary import C_SOURCES, DISTANCES, KERNEL, NONE, ONLY_READ, ROWS, TFLITE_RESHAPING
from .operator import LoweredOperator, Lowering, UnsupportedOperatorError, lower_operator
from .tir import Buffer, Expr, LocalScalar, first_of, int_constant, load, maximum_of, smallest

_LONGEST = 16  # operators of a cascade
_ROW = 1  # the axis of rows
_MOST_ROWS = 255  # that are kept, or dropped at once: a byte of the table
_ALIGNMENT = 16
_IN_WINDOWS = ("npu_memplan_kernel_convolution", "npu_memplan_kernel_depthwise")
_BY_ELEMENT = tuple(f"npu_memplan_kernel_{name}" for name in ("lookup", "quantise", "dequantise"))
_BUFFERS = 7  # the first arguments of a kernel of windows: the input is the first one, the output the last
_DOWN = slice(11, 17)  # its numbers of the axis: size, windows, kernel, stride, dilation, rows before the image


@dataclass(frozen=True, slots=True, eq=False)
class RowOperator:
    """An operator that makes its output row by row.

    Of each input: `begins`, the first row that is read for a row or a later one, and `ends`, one past the last that is
    read for a row or an earlier one.
    """

    kind: str
    lowered: LoweredOperator
    count: int  # rows of the output
    loops: tuple[Any, ...]  # over them
    scalars: tuple[Any, ...]  # allocations
    begins: Mapping[int, Sequence[int]]
    ends: Mapping[int, Sequence[int]]

    @property
    def output(self) -> int:
        """The tensor that is made."""
        return self.lowered.outputs[0]

    @property
    def kernel(self) -> Mapping[str, Any] | None:
        """The C kernel that makes the same."""
        found: Mapping[str, Any] | None = (self.lowered.primfunc.attrs or {}).get(KERNEL)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """Operators in turn: `turns` are (operator, rows of its output to drop before) of each row that is made."""

    operators: tuple[RowOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]  # whole
    kept: Mapping[int, int]  # rows, of every other tensor that is made
    turns: tuple[tuple[int, int], ...]
    distances: Mapping[tuple[int, int], int]
    """How many bytes an output may begin after an input, no byte of which is then overwritten before it was read."""


def row_operator(network: Network, operator: CpuOperator) -> RowOperator | None:
    """`operator` by rows; None where it is not known to be made of rows of its inputs."""
    shapes = [network.tensors[i].shape for i in operator.outputs]
    if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][0] != 1 or shapes[0][1] < 2 or operator.states:
        return None
    try:
        lowered = lower_operator(network, operator)
    except UnsupportedOperatorError:
        return None
    attributes = lowered.primfunc.attrs or {}
    if lowered.states or C_SOURCES in attributes:
        return None
    if KERNEL in attributes and attributes[KERNEL]["symbol"] not in (*_IN_WINDOWS, *_BY_ELEMENT):
        return None
    body, count = lowered.primfunc.body, shapes[0][_ROW]
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    scalars = tuple(itertools.takewhile(lambda s: isinstance(s, tirx.AllocBuffer), statements))
    loops, own = statements[len(scalars) :], np.arange(count)
    if any(str(s.buffer.scope()) != "local" for s in scalars):
        return None
    places = {parameter: number for number, parameter in enumerate(lowered.primfunc.params)}
    begins, ends = dict[int, Sequence[int]](), dict[int, Sequence[int]]()
    for loop in loops:
        found = index_ranges(loop, _ROW) if isinstance(loop, tirx.For) else None
        if found is None:
            return None
        for buffer, writes, low, high in found:
            place = places.get(buffer, len(places))
            if place == len(places) - 1 and not (writes and np.array_equal(low, own) and np.array_equal(high, own)):
                return None
            if place < len(lowered.inputs):
                index, first = lowered.inputs[place], np.minimum.accumulate(low[::-1])[::-1].tolist()
                last = (np.maximum.accumulate(high) + 1).tolist()
                begins[index] = list(map(min, begins.get(index, first), first))
                ends[index] = list(map(max, ends.get(index, last), last))
    whole = all(len(t := network.tensors[i].shape) == 4 and t[0] == 1 and i in ends for i in lowered.inputs)
    return RowOperator(operator.name, lowered, count, tuple(loops), scalars, begins, ends) if whole and loops else None


def join_rows(network: Network, operators: Sequence[RowOperator], whole: Collection[int]) -> Cascade | None:
    """`operators` in turn, `whole` the tensors that others read; None where a byte does not hold the rows."""
    by = {one.output: number for number, one in enumerate(operators)}
    readers = {t: [(k, one) for k, one in enumerate(operators) if t in one.begins] for t in by if t not in whole}
    done, kept = [0] * len(operators), dict.fromkeys(readers, 1)
    order: list[tuple[int, int]] = []  # (operator, first row of its output that is still read)

    def make(k: int, rows: int) -> None:
        one = operators[k]
        while (row := done[k]) < rows:
            for tensor, ends in one.ends.items():
                if tensor in by:
                    make(by[tensor], ends[row])
            first = row
            if one.output in readers:
                reading = (o.begins[one.output][done[j]] for j, o in readers[one.output] if done[j] < o.count)
                first = min(row, *reading, row)
                kept[one.output] = max(kept[one.output], row + 1 - first)
            order.append((k, first))
            done[k] += 1

    for k, one in enumerate(operators):
        if one.output in whole:
            make(k, one.count)
    turns, dropped, made = list[tuple[int, int]](), [0] * len(operators), [0] * len(operators)
    for k, first in order:
        full = made[k] - dropped[k] == kept.get(operators[k].output, -1)
        turns.append((k, first - dropped[k] if full else 0))
        dropped[k] += turns[-1][1]
        made[k] += 1
    if max(drop for _, drop in turns) > _MOST_ROWS:
        return None
    inputs = tuple(dict.fromkeys(i for one in operators for i in one.lowered.inputs if i not in by))
    outputs = tuple(t for t in by if t in whole)
    sequence = [k for k, _ in turns]
    distances = {(i, o): _distance(network, operators, sequence, i, by[o]) for i in inputs for o in outputs}
    return Cascade(tuple(operators), inputs, outputs, kept, tuple(turns), distances)


def _distance(network: Network, operators: Sequence[RowOperator], order: Sequence[int], tensor: int, k: int) -> int:
    """The distance of an input and the output of operator `k` where rows are made in this order; a row is taken to be
    written before it is made of others.
    """
    pitches = (network.tensors[t].size_bytes // network.tensors[t].shape[_ROW] for t in (tensor, operators[k].output))
    (read, write), readers = pitches, [j for j, one in enumerate(operators) if tensor in one.begins]
    done, least = [0] * len(operators), math.inf
    for turn in order:
        if turn == k:
            begins = (operators[j].begins[tensor][done[j]] for j in readers if done[j] < operators[j].count)
            if (begin := min(begins, default=None)) is not None:
                least = min(least, begin * read - (done[k] + 1) * write)
        done[turn] += 1
    size = network.tensors[tensor].size_bytes
    return size if least == math.inf else int(least)


class _Cuts:
    """The operators of a network in groups of one, or of several that are a cascade."""

    def __init__(self, network: Network) -> None:
        self.network, self._alike = network, (alike := dict[int, int]())
        self.operators = [o for o in network.cpu_operators if o.name not in TFLITE_RESHAPING]
        for one in network.cpu_operators:
            if one.name in TFLITE_RESHAPING:
                alike[one.outputs[0]] = alike.get(one.inputs[0], one.inputs[0])
        places = {one.index: n for n, one in enumerate(network.cpu_operators)}
        self._places = [places[one.index] for one in self.operators]
        self.rows = [row_operator(network, one) for one in self.operators]
        self.first, self.last = dict.fromkeys(network.inputs, -1), dict.fromkeys(network.inputs, -1)
        for number, one in enumerate(self.operators):
            read = [alike.get(i, i) for i in one.inputs if i >= 0 and network.tensors[i].data is None]
            self.last |= dict.fromkeys((*one.outputs, *read), number)
            self.first |= dict.fromkeys(one.outputs, number)
        self.last |= {alike.get(i, i): len(self.operators) for i in network.outputs}
        self._viewed = set(alike.values())  # their bytes have another name too
        self._cascades: dict[tuple[int, int], Cascade | None] = {}

    def _bytes(self, tensor: int) -> int:
        return -(-self.network.tensors[tensor].size_bytes // _ALIGNMENT) * _ALIGNMENT

    def _is_inner(self, tensor: int, begin: int, end: int) -> bool:
        return begin <= self.first[tensor] and self.last[tensor] <= end and tensor not in self._viewed

    def whole_bytes(self, begin: int, end: int) -> int:
        """Bytes of the tensors that are whole while the operators from `begin` to `end` run."""
        live = (t for t, made in self.first.items() if made <= end and self.last[t] >= begin)
        return sum(self._bytes(t) for t in live if not self._is_inner(t, begin, end))

    def _dies(self, tensor: int, end: int) -> bool:
        return self.last.get(self._alike.get(tensor, tensor), end + 1) <= end

    def least_whole_bytes(self, begin: int, end: int) -> int:
        """The same at least, since an output may lie over an input that nobody reads any more."""
        dying = (self._bytes(t) for t, made in self.first.items() if made < begin <= self.last[t] <= end)
        return self.whole_bytes(begin, end) - max(dying, default=0)

    def _shared_bytes(self, cascade: Cascade, end: int) -> int:
        """The bytes that an output of a cascade has with an input that nobody reads any more."""
        shared = [0]
        for (source, target), distance in cascade.distances.items():
            sizes = [self._bytes(source), self._bytes(target)]
            if self._dies(source, end):
                shared.append(sum(sizes) - max(sizes[0] + max(-distance, 0), sizes[1]))
        return max(shared)

    def cascade(self, begin: int, end: int) -> Cascade | None:
        """The operators from `begin` to `end` as one; None where they cannot be."""
        if (begin, end) not in self._cascades:
            found = [one for one in self.rows[begin : end + 1] if one is not None]
            whole = {one.output for one in found if not self._is_inner(one.output, begin, end)}
            fits = len(found) == end + 1 - begin and whole
            self._cascades[begin, end] = join_rows(self.network, found, whole) if fits else None
        return self._cascades[begin, end]

    def group_bytes(self, begin: int, end: int) -> float:
        """Bytes while the operators from `begin` to `end` run in turn."""
        found = self.cascade(begin, end)
        if found is None:
            return self.whole_bytes(begin, end) if begin == end else math.inf
        tensors = self.network.tensors
        kept = (tensors[t].size_bytes // tensors[t].shape[_ROW] * rows for t, rows in found.kept.items())
        whole = self.whole_bytes(begin, end) - self._shared_bytes(found, end)
        return whole + sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in kept)

    def _starts(self, end: int) -> Iterator[int]:
        """Where a group that ends with an operator may begin, the shortest group first."""
        yield end
        for begin in range(end - 1, max(-1, end - _LONGEST), -1):
            apart = self._places[begin + 1] - self._places[begin] > 1  # a view may be of what is made in between
            if apart or self.rows[begin] is None or self.rows[end] is None:
                return
            yield begin

    def least_bytes(self) -> float:
        """The bytes of the best cut."""
        best = [0.0]
        for end in range(len(self.operators)):
            least = math.inf
            for floor, begin in sorted((max(best[b], self.least_whole_bytes(b, end)), b) for b in self._starts(end)):
                if floor >= least:
                    break
                least = min(least, max(best[begin], self.group_bytes(begin, end)))
            best.append(least)
        return best[-1]

    def fewest_cascades(self, most_bytes: float) -> list[tuple[int, int]]:
        """The groups of a cut within so many bytes, the one with the fewest operators in cascades."""
        best: list[tuple[float, list[tuple[int, int]]]] = [(0, [])]
        for end in range(len(self.operators)):
            found: tuple[float, list[tuple[int, int]]] = (math.inf, [])
            starts = sorted((best[b][0] + (end + 1 - b if b < end else 0), -b) for b in self._starts(end))
            for cost, negative in starts:
                if cost >= found[0]:
                    break
                if self.group_bytes(-negative, end) <= most_bytes:
                    found = cost, [*best[-negative][1], (-negative, end)]
            best.append(found)
        return best[-1][1]


@functools.lru_cache(maxsize=4)  # each candidate of a compile asks for the same network
def find_cascades(network: Network) -> dict[int, Cascade | None]:
    """The cascade that an operator ends, by its index; None for another one of a cascade. They are those with which the
    network needs the fewest bytes.
    """
    found: dict[int, Cascade | None] = {}
    if not network.in_rows or network.npu_calls:
        return found
    cuts = _Cuts(network)
    for begin, end in cuts.fewest_cascades(cuts.least_bytes()):
        if begin < end:
            found |= {one.index: None for one in cuts.operators[begin:end]}
            found[cuts.operators[end].index] = cuts.cascade(begin, end)
    return found


@dataclass(frozen=True, slots=True)
class _Map:
    """A tensor in a cascade; `dropped`: rows before the first that is kept (None: it is whole)."""

    buffer: Buffer
    dropped: LocalScalar | None

    def row_of(self, row: Expr) -> Expr:
        """The row of the buffer that has row `row` of the tensor."""
        return row if self.dropped is None else row - self.dropped.read()

    def address_of(self, row: Expr) -> Expr:
        """The address of a row of the buffer."""
        zero = int_constant(0)
        return tirx.address_of(tirx.BufferLoad(self.buffer, [zero, row, zero, zero]))


def lower_cascade(network: Network, cascade: Cascade, last: CpuOperator) -> LoweredOperator:
    """A cascade as one function, called as `last` is."""
    work = Lowering(network, replace(last, name="CASCADE", inputs=cascade.inputs, outputs=cascade.outputs))
    return _Builder(work, cascade).build()


class _Builder:
    """The function of a cascade while it is built."""

    def __init__(self, work: Lowering, cascade: Cascade) -> None:
        self.work, self.cascade, self.function = work, cascade, work.function
        self.maps = {i: _Map(work.read(n, "input"), None) for n, i in enumerate(cascade.inputs)}
        self.read = [str(place.buffer.name) for place in self.maps.values()]  # and never written, with all tables
        self.maps |= {i: _Map(work.write(n), None) for n, i in enumerate(cascade.outputs)}
        for tensor, rows in cascade.kept.items():
            given = work.network.tensors[tensor]
            buffer = self.function.scratch("rows", (1, rows, *given.shape[2:]), given.dtype)
            self.maps[tensor] = _Map(buffer, self.function.local("dropped"))
        self.turns = work.table("turns", np.array(cascade.turns, np.uint8))
        self.sources: dict[str, None] = {}

    def build(self) -> LoweredOperator:
        """The function."""
        function, cascade = self.function, self.cascade
        done = [function.local("done") for _ in cascade.operators]
        for scalar in (*done, *(place.dropped for place in self.maps.values() if place.dropped is not None)):
            scalar.set(int_constant(0))
        branches = []
        with function.loop(len(cascade.turns), "turn") as turn:
            which = function.bind(load(self.turns, turn, 0), "which")
            for number, (one, row) in enumerate(zip(cascade.operators, done, strict=True)):
                with function.when(which == int_constant(number)):
                    moved_bytes = self._drop_rows(number, load(self.turns, turn, 1))
                    branch = {"kind": one.kind, "rows": one.count, "moved": moved_bytes}
                    branches.append(branch | self._make_row(one, row.read()))
                    row.add(int_constant(1))
        names = {tensor: str(place.buffer.name) for tensor, place in self.maps.items()}
        distances = [[names[i], names[o], distance] for (i, o), distance in cascade.distances.items()]
        self.work.attributes |= {
            C_SOURCES: list(self.sources), ONLY_READ: self.read, ROWS: branches, DISTANCES: distances,
        }  # fmt: skip
        return self.work.finish()

    def _drop_rows(self, number: int, count: Expr) -> int:
        """The statements that drop the first rows of an operator's output; how many bytes they move in all."""
        function, one = self.function, self.cascade.operators[number]
        place, drops = self.maps[one.output], [drop for k, drop in self.cascade.turns if k == number and drop]
        if place.dropped is None or not drops:
            return 0
        tensor, kept = self.work.network.tensors[one.output], self.cascade.kept[one.output]
        row_bytes = tensor.size_bytes // tensor.shape[_ROW]
        drop = function.bind(count, "drop")
        with function.when(drop > int_constant(0)):
            if kept > 1:
                size = (int_constant(kept) - drop) * int_constant(row_bytes)
                ends = place.address_of(int_constant(0)), place.address_of(smallest(drop, kept - 1))
                function.add(tirx.Evaluate(tirx.call_extern("void", "memmove", *ends, size)))
            place.dropped.add(drop)
        return sum(kept - drop for drop in drops) * row_bytes

    def _make_row(self, one: RowOperator, row: Expr) -> dict[str, Any]:
        """The statements for a row of an operator; what its C kernel is told of whole maps."""
        parameters, given = list(one.lowered.primfunc.params), len(one.lowered.inputs)
        maps = {p: self.maps[i] for p, i in zip(parameters, one.lowered.inputs, strict=False)}
        maps[parameters[-1]] = self.maps[one.output]
        tables: dict[Any, Buffer] = {}
        for parameter, constant in zip(parameters[given:-1], one.lowered.constants, strict=True):
            tables[parameter] = self.work.table(str(parameter.name), constant)
            self.read.append(str(tables[parameter].name))
        if one.kernel is not None:
            self._call_kernel(one, row, {str(p.name): place for p, place in (*maps.items(), *tables.items())})
            return {key: one.kernel[key] for key in ("symbol", "arguments")}
        replaced: dict[Any, Any] = {**tables, **{p: place.buffer for p, place in maps.items()}}
        replaced |= {loop.loop_var: row for loop in one.loops}
        partial = [place for place in maps.values() if place.dropped is not None]

        def access_kept(node: Any) -> Any:
            """An access at the row where the buffer has what it is for."""
            store = isinstance(node, tirx.BufferStore)
            buffer, indices = node.buffer if store else node.source, list(node.indices)
            place = next((place for place in partial if place.buffer.same_as(buffer)), None)
            if place is None:
                return node
            indices[_ROW] = place.row_of(indices[_ROW])
            return tirx.BufferStore(buffer, node.value, indices) if store else tirx.BufferLoad(buffer, indices)

        for allocation in one.scalars:
            self.function.declare(allocation)
        entries = [(ir.Var, lambda v: replaced.get(v, v)), ((ir.TensorLoad, tirx.BufferStore), access_kept)]
        for loop in one.loops:
            self.function.add(tvm_ffi.structural_map(loop.body, entries, order="post"))
        return {}

    def _call_kernel(self, one: RowOperator, row: Expr, places: Mapping[str, Any]) -> None:
        """The call of a C kernel for one row."""
        kernel = one.kernel
        assert kernel is not None
        self.sources |= dict.fromkeys(map(str, kernel["sources"]))
        arguments = list(kernel["arguments"])
        if kernel["symbol"] in _IN_WINDOWS:
            first, numbers = self._window(row, *(int(n) for n in arguments[_DOWN]))
            arguments[_DOWN] = [*numbers[:2], *arguments[_DOWN][2:-1], numbers[2]]
        else:
            count = next(n for n, argument in enumerate(arguments) if not isinstance(argument, str))
            first, arguments[count] = row, int(arguments[count]) // one.count
        values = []
        for argument in arguments:
            if isinstance(argument, float):
                values.append(tirx.FloatImm("float64", argument))
            elif isinstance(argument, int):
                values.append(int_constant(argument))
            elif not isinstance(argument, str):
                values.append(argument)
            elif not argument:
                values.append(tirx.call_extern("handle", NONE))
            elif isinstance(place := places[argument], _Map):
                is_output = place is self.maps[one.output]
                values.append(place.address_of(place.row_of(row if is_output else first)))
            else:
                values.append(tirx.address_of(first_of(place)))
        self.function.add(tirx.Evaluate(tirx.call_extern("void", str(kernel["symbol"]), *values)))

    def _window(
        self, row: Expr, size: int, windows: int, kernel: int, stride: int, dilation: int, before: int
    ) -> tuple[Expr, list[Expr | int]]:
        """The first row of the image that a row of the output reads; rows that are there, rows of the output, and rows
        before the image.
        """
        reach, last = (kernel - 1) * dilation + 1, (windows - 1) * stride - before
        begin = row * int_constant(stride) - int_constant(before)
        first = self.function.bind(maximum_of(begin, 0), "first") if before else begin
        end = begin + int_constant(reach)
        there = (smallest(end, size) if last + reach > size else end) - first
        return first, [there, 1, first - begin if before else 0]
