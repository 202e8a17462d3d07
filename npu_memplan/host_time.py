"""Time on the host: estimated cycles of a CPU for a host operator, from the operations of its PrimFunc.

Invariant: an estimate is a function of (PrimFunc, costs of `targets/hosts.toml`) and of nothing else; of functions that
C alone defines there is none. Its errors are in docs/time_model.md. Every statement counts once for each time it runs,
as far as loop counters alone decide that; of other branches the slower side counts, of a loop without a known end one
iteration. What C keeps in registers (allocations of a few elements) costs nothing to read or write, and neither do the
affine parts of an index, which compilers carry from iteration to iteration. Operators with a C kernel are counted by
the loops of that kernel, in its form with Helium, one cycle an instruction; padding is not counted. Each cost has its
source in `targets/hosts.toml`.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from tvm import ir, relax, tirx
from tvm_ffi import StructuralKey

from .extract.program import static_extent
from .extract.tir import nodes_of
from .files.schema import from_values
from .target_data import TargetDataError, read_toml, targets_folder
from .vocabulary import KERNEL, ROWS, UNTIMED, is_npu

Cycles = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """Cycles of one round of each loop."""

    window: Cycles  # of an image, or a row of a dense layer
    block: Cycles  # of four outputs: bias, requantisation, store
    row: Cycles  # of a window, for four outputs
    vector: Cycles  # eight elements times four kernels
    rest: Cycles  # in vectors, of the elements that make none
    depthwise_window: Cycles
    depthwise_block: Cycles
    depthwise_row: Cycles
    tap: Cycles  # of a depthwise window, for four outputs
    output: Cycles  # that is in no block of four
    product: Cycles  # of such an output
    quantised: Cycles  # element
    dequantised: Cycles  # element
    looked_up: Cycles  # element
    place: Cycles  # of a resized image
    mixed: Cycles  # four elements of it in float32, or the rest
    resized_place: Cycles  # of an image that is resized in integers
    packed: Cycles  # four unsigned elements of it with weights of up to 8 bits
    packed_signed: Cycles  # four signed ones
    resized: Cycles  # another element
    resized_few: Cycles  # an element of a place of less than four, in all
    searched_row: Cycles  # in which the place of an extremum is looked for
    searched: Cycles  # 16 elements of it, or the rest
    activation: Cycles  # of a filter of an SVDF
    unit: Cycles  # of it
    remembered: Cycles  # 16 bytes of its state, or the rest, multiplied
    moved: Cycles  # 16 bytes of it


def kernel_cycles(symbol: str, arguments: Sequence[object], costs: KernelCosts) -> float:
    """The cycles of one call; `arguments` are buffers, by name, and numbers."""
    numbers = [int(a) for a in arguments if isinstance(a, int)]
    return _COUNTS[symbol.removeprefix("npu_memplan_kernel_")](numbers, costs)


@dataclass(frozen=True, slots=True)
class _Axis:
    size: int
    windows: int
    kernel: int
    stride: int
    dilation: int
    before: int

    def places_inside(self) -> list[int]:
        """How many places of each window's kernel are inside of the image."""
        starts = (window * self.stride - self.before for window in range(self.windows))
        places = [[start + k * self.dilation for k in range(self.kernel)] for start in starts]
        return [sum(0 <= place < self.size for place in row) for row in places]


def _vector_count(length: int, costs: KernelCosts) -> float:
    """How many eights of elements, and their rest, take as long."""
    return length // 8 + (costs.rest if length % 8 else 0)


def _convolution_cycles(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, groups, depth, out_c = numbers[:4]
    down, across = _Axis(*numbers[4:10]), _Axis(*numbers[10:16])
    rows, columns, of_group = sum(down.places_inside()), across.places_inside(), out_c // groups
    if groups == 1 and across.dilation == 1:
        pieces, vectors = len(columns), sum(_vector_count(n * depth, costs) for n in columns)
    else:
        pieces, vectors = sum(columns), sum(columns) * _vector_count(depth, costs)
    blocks, rest = groups * (of_group // 4), groups * (of_group % 4)
    windows = images * down.windows * across.windows
    in_blocks = blocks * images * rows * (pieces * costs.row + vectors * costs.vector)
    products = rest * images * rows * sum(columns) * depth
    return windows * (costs.window + blocks * costs.block + rest * costs.output) + in_blocks + products * costs.product


def _depthwise_cycles(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, times, _, out_c = numbers[:4]
    down, across = _Axis(*numbers[4:10]), _Axis(*numbers[10:16])
    blocks = out_c // 4 if times == 1 or times % 4 == 0 else 0
    rest = out_c - 4 * blocks
    windows, rows, columns = (
        images * down.windows * across.windows,
        sum(down.places_inside()),
        sum(across.places_inside()),
    )
    taps = images * rows * columns
    each = costs.depthwise_window + blocks * costs.depthwise_block + rest * costs.output
    return (
        windows * each
        + blocks * (images * rows * across.windows * costs.depthwise_row + taps * costs.tap)
        + (taps * rest * costs.product)
    )


def _dense_cycles(numbers: Sequence[int], costs: KernelCosts) -> float:
    rows, columns, depth = numbers[:3]
    block = costs.block + costs.row + _vector_count(depth, costs) * costs.vector
    return rows * (costs.window + (columns // 4) * block + (columns % 4) * (costs.output + depth * costs.product))


def _bilinear_cycles(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, _, _, out_h, out_w, depth = numbers
    return images * out_h * out_w * (costs.place + -(-depth // 4) * costs.mixed)


def _resize_cycles(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, _, _, out_h, out_w, depth, row_bits, column_bits, is_signed = numbers
    places, fours = images * out_h * out_w, depth // 4 if row_bits + column_bits <= 8 else 0
    if depth < 4:
        return places * depth * costs.resized_few
    four = costs.packed_signed if is_signed else costs.packed
    return places * (costs.resized_place + fours * four + (depth - 4 * fours) * costs.resized)


def _svdf_cycles(numbers: Sequence[int], costs: KernelCosts) -> float:
    batches, depth, filters, memory, units, wide = numbers[:6]
    size = 2 if wide else 1
    sums = (filters // 4) * (costs.row + _vector_count(depth, costs) * costs.vector) + (
        filters % 4
    ) * depth * costs.product
    remembered = -(-filters // units * memory * size // 16) * costs.remembered
    moved = filters * memory * size / 16 * costs.moved
    return batches * (sums + filters * costs.activation + units * (costs.unit + remembered) + moved)


_COUNTS: dict[str, Callable[[Sequence[int], KernelCosts], float]] = {
    "convolution": _convolution_cycles,
    "depthwise": _depthwise_cycles,
    "dense": _dense_cycles,
    "quantise": lambda numbers, costs: numbers[0] * costs.quantised,
    "dequantise": lambda numbers, costs: numbers[0] * costs.dequantised,
    "bilinear": _bilinear_cycles,
    "resize": _resize_cycles,
    "svdf": _svdf_cycles,
    "lookup": lambda numbers, costs: numbers[0] * costs.looked_up,
    "arg_extremum": lambda numbers, costs: numbers[0] * (costs.searched_row + -(-numbers[1] // 16) * costs.searched),
}


HOST = "cortex-m55"
PLAIN = "cortex-m33"  # without Helium
_HELIUM = (HOST, "cortex-m52", "cortex-m85")


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Cycles of one operation of each kind."""

    integer: Cycles  # add, compare, shift, select
    multiply: Cycles
    divide: Cycles
    wide: Cycles  # of 64-bit integers
    wide_multiply: Cycles
    wide_divide: Cycles
    float: Cycles
    float_divide: Cycles
    function: Cycles  # exp, tanh and the like
    load: Cycles
    store: Cycles
    loop: Cycles  # an iteration: count, compare, branch
    call: Cycles  # of an operator
    kernels: KernelCosts


@lru_cache(maxsize=4)
def host_costs(cpu: str = HOST) -> HostCosts:
    """The costs of a CPU; `TargetDataError` lists the known ones."""
    path = targets_folder() / "hosts.toml"
    tables = read_toml(path)
    if cpu not in tables:
        raise TargetDataError(f"nothing is known of the time of host {cpu!r}; known: {', '.join(tables)}")
    return from_values(tables[cpu], HostCosts, f"{path}: {cpu}", TargetDataError)


def costs_for(cpu: str) -> HostCosts:
    """The costs of a CPU as GCC's -mcpu names it, or of the known one that is most like it; empty: the usual one."""
    base = cpu.partition("+")[0]
    if base in ("", *_HELIUM):
        return host_costs(HOST)
    return host_costs(PLAIN)


_C_CALLS = frozenset(("tirx.call_extern", "tirx.tvm_call_packed", "tirx.tvm_call_cpacked"))
_REGISTERS = 16  # elements of an allocation that C keeps in registers
_MOST_ROUNDS = 1 << 20  # of loops that a condition depends on: more are not looked at
_COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")
_DIVISIONS = ("Div", "Mod", "FloorDiv", "FloorMod")


@dataclass(frozen=True, slots=True)
class HostWork:
    """The work of a host function in one call."""

    cycles: float = 0.0
    operations: float = 0.0  # arithmetic, of any kind
    bytes: float = 0.0  # loaded and stored
    known: bool = True  # False: some of it is done by C, which is not counted

    def __add__(self, other: HostWork) -> HostWork:
        known = self.known and other.known
        return HostWork(self.cycles + other.cycles, self.operations + other.operations, self.bytes + other.bytes, known)

    def __mul__(self, times: float) -> HostWork:
        return HostWork(self.cycles * times, self.operations * times, self.bytes * times, self.known)


_NOTHING = HostWork()


def calls_work(module: Any, name: str, cpu: str = "") -> tuple[float, int]:
    """Cycles of all calls of function `name` on a CPU, once each, and how many have no estimate."""
    cycles, untimed, costs = 0.0, 0, costs_for(cpu)

    def visit(expr: Any) -> None:
        nonlocal cycles, untimed
        if not isinstance(expr, ir.Call) or not expr.args or not isinstance(expr.args[0], ir.GlobalVar):
            return
        function = module.functions[expr.args[0]]
        if isinstance(function, tirx.PrimFunc) and not is_npu(function):
            work = host_work(function, costs)
            cycles += work.cycles if work.known else 0.0
            untimed += not work.known

    relax.analysis.post_order_visit(module[name], visit)
    return cycles, untimed


@lru_cache(maxsize=4096)  # functions are immutable and compare by identity; each comparison of programs asks
def host_work(function: Any, costs: HostCosts | None = None) -> HostWork:
    """One call of a host PrimFunc."""
    return _content_work(StructuralKey(function.without_attr("global_symbol")), costs or host_costs())


@lru_cache(maxsize=1024)
def _content_work(content: StructuralKey, costs: HostCosts) -> HostWork:
    """One call of each host PrimFunc that does the same, whatever its name."""
    function = content.key
    attributes = function.attrs or {}
    if ROWS in attributes:
        return sum((work for _, work in works_in_turn(function, costs)), _NOTHING)
    counter = _Counter(costs, function.body)
    work = counter.statement_work(function.body) + HostWork(counter.costs.call)
    if UNTIMED in attributes:
        return replace(work, known=False)
    kernel = attributes.get(KERNEL)
    if kernel is None:
        return work
    cycles = kernel_cycles(str(kernel["symbol"]), list(kernel["arguments"]), counter.costs.kernels)
    return HostWork(cycles + counter.costs.call, work.operations, work.bytes)


def works_in_turn(function: Any, costs: HostCosts | None = None) -> list[tuple[str, HostWork]]:
    """The kind of each operator that a host PrimFunc runs in turn (`vocabulary.ROWS`), and its work."""
    counter, branches = _Counter(costs or host_costs(), function.body), function.attrs[ROWS]
    *before, loop = function.body.seq
    parts = [(part, isinstance(part, tirx.IfThenElse)) for part in loop.body.seq]
    always = sum((counter.value(p.condition) if c else counter.statement_work(p) for p, c in parts), _NOTHING)
    always += HostWork(counter.costs.loop)
    entry = sum(map(counter.statement_work, before), HostWork(counter.costs.call)) * (1 / len(branches))
    works = []
    for branch, part in zip(branches, (part for part, chosen in parts if chosen), strict=True):
        work = entry + (counter.statement_work(part.then_case) + always) * int(branch["rows"])
        cycles = int(branch["moved"]) / 16 * counter.costs.kernels.moved
        if "symbol" in branch:
            cycles += kernel_cycles(str(branch["symbol"]), list(branch["arguments"]), counter.costs.kernels)
        works.append((str(branch["kind"]), replace(work + HostWork(cycles), known=True)))
    return works


class _Counter:
    def __init__(self, costs: HostCosts, body: Any) -> None:
        self.costs = costs
        self.registers: set[Any] = set()
        stored = Counter(store.buffer for store in nodes_of(body, tirx.BufferStore))
        self.constant = {b for b, times in stored.items() if times == 1 and [*map(static_extent, b.shape)] == [1]}
        """Scalars that have one expression."""
        self.indices: dict[Any, Any] = {}  # of a variable or scalar: its loop's rounds, or the expression it stands for

    def statement_work(self, stmt: Any) -> HostWork:
        """All that `stmt` does."""
        if isinstance(stmt, tirx.SeqStmt):
            return sum(map(self.statement_work, stmt.seq), _NOTHING)
        if isinstance(stmt, tirx.For):
            rounds = static_extent(stmt.extent)
            self.indices[stmt.loop_var] = rounds
            body = self.statement_work(stmt.body) + HostWork(self.costs.loop)
            return body * (1 if rounds is None else max(0, rounds))
        if isinstance(stmt, tirx.While):
            return self.value(stmt.condition) + self.statement_work(stmt.body) + HostWork(self.costs.loop)
        if isinstance(stmt, tirx.IfThenElse):
            sides = [_NOTHING if s is None else self.statement_work(s) for s in (stmt.then_case, stmt.else_case)]
            share = self.share_of_rounds(stmt.condition)
            if share is None:
                return self.value(stmt.condition) + max(sides, key=lambda side: side.cycles)
            return self.value(stmt.condition) + sides[0] * share + sides[1] * (1 - share)
        if isinstance(stmt, tirx.AllocBuffer):
            sizes = [static_extent(extent) for extent in stmt.buffer.shape]
            if None not in sizes and math.prod(size or 0 for size in sizes) <= _REGISTERS:
                self.registers.add(stmt.buffer)
            return _NOTHING
        if isinstance(stmt, tirx.BufferStore):
            if stmt.buffer in self.constant and stmt.buffer in self.registers and self.loops_of(stmt.value) is not None:
                self.indices[stmt.buffer] = stmt.value
            return self.value(stmt.value) + self.index(stmt.indices) + self.access_work(stmt.buffer, self.costs.store)
        if isinstance(stmt, tirx.Bind):
            self.indices[stmt.var] = stmt.value
        if isinstance(stmt, tirx.Evaluate | tirx.Bind):
            return self.value(stmt.value)
        inner = getattr(stmt, "body", None) or getattr(stmt, "block", None)  # a block of TVM's own functions
        return _NOTHING if inner is None else self.statement_work(inner)

    def share_of_rounds(self, condition: Any) -> float | None:
        """The share of the rounds of all loops in which a condition of their counters holds; None for another one."""
        groups: list[tuple[set[Any], list[Any]]] = []  # loops, and what of the condition depends on them alone
        for part in _conjuncts(condition):
            loops = self.loops_of(part)
            if loops is None:
                return None
            parts = [part]
            for group in [group for group in groups if group[0] & loops]:
                groups.remove(group)
                loops, parts = loops | group[0], [*group[1], *parts]
            groups.append((loops, parts))
        share = 1.0
        for loops, parts in groups:
            extents = [self.indices[loop] for loop in loops]
            if math.prod(extents) > _MOST_ROUNDS:
                return None
            grid = dict(zip(loops, np.ogrid[tuple(slice(0, extent) for extent in extents)], strict=True))
            holds = reduce(np.logical_and, (self.number(part, grid) for part in parts))
            share *= float(np.broadcast_to(holds, extents).mean()) if math.prod(extents) else 0.0
        return share

    def loops_of(self, expr: Any) -> set[Any] | None:
        """The counters that an expression depends on; None where it depends on anything else."""
        kind, place = type(expr).__name__, _place(expr)
        if place is not None:
            meaning = self.indices.get(place)
            return {place} if isinstance(meaning, int) else None if meaning is None else self.loops_of(meaning)
        if kind == "IntImm":
            return set()
        if kind != "Cast" and kind not in _NUMBERS:
            return None
        found = [self.loops_of(part) for part in _parts(expr)]
        return None if None in found else set().union(*(loops for loops in found if loops))

    def number(self, expr: Any, grid: Mapping[Any, Any]) -> Any:
        """An expression's value in each round."""
        kind, place = type(expr).__name__, _place(expr)
        if place is not None:
            return grid[place] if place in grid else self.number(self.indices[place], grid)
        if kind == "IntImm":
            return int(expr.value)
        parts = [self.number(part, grid) for part in _parts(expr)]
        return parts[0] if kind == "Cast" else _NUMBERS[kind](*parts)

    def access_work(self, buffer: Any, cycles: float) -> HostWork:
        """One load or store of an element."""
        if buffer in self.registers:
            return _NOTHING
        return HostWork(cycles, bytes=_bits(str(buffer.dtype)) / 8)

    def index(self, indices: Any) -> HostWork:
        """The divisions in indices; the rest is carried along."""
        return sum((self.value(i) for i in indices if _is_division(i)), _NOTHING)

    def value(self, expr: Any) -> HostWork:
        """The cost of computing `expr`."""
        kind = type(expr).__name__
        if isinstance(expr, ir.TensorLoad):
            return self.index(expr.indices) + self.access_work(expr.source, self.costs.load)
        if kind in ("IntImm", "FloatImm", "StringImm", "Var"):
            return _NOTHING
        if kind == "Call" and str(getattr(expr.op, "name", "")) in _C_CALLS:
            return HostWork(self.costs.function, known=False)
        parts = sum(map(self.value, _parts(expr)), _NOTHING)
        cycles = self.cost(expr, kind)
        return parts + HostWork(cycles, 1.0 if cycles else 0.0)

    def cost(self, expr: Any, kind: str) -> float:
        """The operation at the top of `expr` alone."""
        costs = self.costs
        if kind == "Call":
            name = getattr(expr.op, "name", "")
            return 0.0 if name.endswith(("address_of", "reinterpret")) else costs.function
        dtype = _dtype(expr.a if kind in _COMPARISONS else expr)
        if kind == "Cast":
            known = _dtype(expr.value)
            return costs.float if _is_float(dtype) is not _is_float(known) else 0.0
        if _is_float(dtype):
            return costs.float_divide if kind == "Div" else costs.float
        wide = _bits(dtype) > 32
        if kind in _DIVISIONS:
            if _power_of_two(expr.b):
                return costs.wide if wide else costs.integer
            return costs.wide_divide if wide else costs.divide
        if kind == "Mul":
            return costs.wide_multiply if wide else costs.multiply
        one = costs.wide if wide else costs.integer
        return 2 * one if kind in ("Min", "Max", "Select") else one


def _divide_towards_zero(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


_NUMBERS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod, "Div": _divide_towards_zero, "Mod": np.fmod, "Min": np.minimum, "Max": np.maximum,
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
    "And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not,
}  # fmt: skip


def _place(expr: Any) -> Any:
    """The variable or scalar that an expression reads, and nothing else; None for another expression."""
    if isinstance(expr, ir.TensorLoad):
        return expr.source
    return expr if isinstance(expr, ir.Var) else None


def _conjuncts(condition: Any) -> list[Any]:
    """The conditions that have to hold, all of them, where `condition` does."""
    if type(condition).__name__ == "And":
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _parts(expr: Any) -> tuple[Any, ...]:
    names = ("a", "b", "value", "condition", "true_value", "false_value")
    found = tuple(getattr(expr, name) for name in names if hasattr(expr, name))
    takes_address = isinstance(expr, ir.Call) and str(getattr(expr.op, "name", "")).endswith("address_of")
    return (*found, *expr.args) if isinstance(expr, ir.Call) and not takes_address else found


def _is_division(expr: Any) -> bool:
    own = type(expr).__name__ in _DIVISIONS or isinstance(expr, ir.TensorLoad)
    return own or any(_is_division(part) for part in _parts(expr))


def _power_of_two(expr: Any) -> bool:
    value = getattr(expr, "value", None)
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def _dtype(expr: Any) -> str:
    return str(getattr(expr.ty, "dtype", "int32"))


def _is_float(dtype: str) -> bool:
    return dtype.startswith("float")


def _bits(dtype: str) -> int:
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) if digits else 8
