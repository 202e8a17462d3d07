"""An oracle for liveness that shares nothing with the package: it runs the program.

Every PrimFunc is executed statement by statement with real loop counters, every byte remembers
when it was written, every read marks the points since then as live; `if`s are run both ways.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import ir, relax, tirx

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
}


class Interpreter:
    """Runs TIR for its addresses. `touch(buffer var, element, is_write)` is told of every access."""

    def __init__(self, touch: Callable[[Any, int, bool], None]) -> None:
        self.touch = touch
        self.env: dict[Any, int] = {}
        self.scalars: dict[Any, Any] = {}  # content of one-element local buffers

    def expr(self, e: Any) -> Any:
        """The value of an integer expression, None when it depends on data."""
        kind = type(e).__name__
        if isinstance(e, int):
            return e
        if kind == "IntImm":
            return int(e.value)
        if kind == "Var":
            return self.env.get(e)
        if kind in _BINARY:
            a, b = self.expr(e.a), self.expr(e.b)
            return None if a is None or b is None else _BINARY[kind](a, b)
        if kind == "TensorLoad":
            self.touch(e.source, self.element(e.source, e.indices), False)
            return self.scalars.get(e.source)
        if kind == "Select":
            self.expr(e.condition)
            return self.both(e.true_value, e.false_value)
        if kind == "Call" and e.op.name == "prim.if_then_else":
            condition = self.expr(e.args[0])
            if condition is None:
                return self.both(e.args[1], e.args[2])
            return self.expr(e.args[1] if condition else e.args[2])
        if kind == "Call":
            for argument in e.args:
                self.expr(argument)
            return None
        if kind in ("Cast", "Not"):
            value = self.expr(e.value if kind == "Cast" else e.a)
            return value if kind == "Cast" else (None if value is None else not value)
        return None

    def both(self, a: Any, b: Any) -> None:
        self.expr(a)
        self.expr(b)

    def element(self, buffer: Any, indices: Any) -> int:
        flat = 0
        for index, extent in zip(indices, buffer.shape, strict=True):
            value = self.expr(index)
            assert value is not None
            assert 0 <= value < int(extent), "out of range"
            flat = flat * int(extent) + value
        return flat

    def stmt(self, s: Any) -> None:
        """Runs a statement."""
        kind = type(s).__name__
        if kind == "SeqStmt":
            for part in s.seq:
                self.stmt(part)
        elif kind == "For":
            for value in range(self.expr(s.extent)):
                self.env[s.loop_var] = self.expr(s.min) + value
                self.stmt(s.body)
        elif kind == "BufferStore":
            value = self.expr(s.value)
            self.scalars[s.buffer] = value if s.buffer.scope() == "local" else None
            self.touch(s.buffer, self.element(s.buffer, s.indices), True)
        elif kind == "IfThenElse":
            condition = self.expr(s.condition)
            assert condition is not None
            chosen = s.then_case if condition else s.else_case
            if chosen is not None:
                self.stmt(chosen)
        elif kind == "Bind":
            self.env[s.var] = self.expr(s.value)
        elif kind == "Evaluate":
            self.expr(s.value)
        else:
            assert kind in ("AllocBuffer",), kind


@dataclass
class Oracle:
    """Points at which each storage is live, found by running `main` along every path."""

    module: Any
    live: dict[str, set[int]] = field(default_factory=dict)
    points: int = 0

    def run(self) -> Oracle:
        main = self.module["main"]
        for choices in itertools.product((True, False), repeat=_count_ifs(main.body)):
            run = _Run(self.module, main, iter(choices))
            run.start()
            self.points = run.point
            for name, at in run.live.items():
                self.live.setdefault(name, set()).update(at)
        return self

    def conflicts(self) -> set[frozenset[str]]:
        """Pairs of storages that are live at a common point."""
        return {frozenset((a, b)) for a, b in itertools.combinations(self.live, 2) if self.live[a] & self.live[b]}


def _count_ifs(expr: Any) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (relax.If, lambda e: found.append(e)))
    return len(found)


class _Run:
    """One path. Branches that are not taken still use up their points and names."""

    def __init__(self, module: Any, main: Any, choices: Iterator[bool]) -> None:
        self.module, self.main, self.choices = module, main, choices
        self.live: dict[str, set[int]] = {}
        self.written: dict[tuple[str, int], int] = {}  # (storage, byte) -> position in the trace
        self.trace: list[int] = []  # points in the order they ran
        self.point = 0
        self.names: Counter[str] = Counter()
        self.env: dict[Any, Any] = {}
        self.running = True
        self.carry: dict[str, tuple[str, int]] = {}  # value of an `if` -> (source, when it took over)

    def start(self) -> None:
        self.trace.append(-1)  # before point 0: the caller writes the parameters
        for p in self.main.params:
            self.env[p] = p.name
            self.live[p.name] = set()
            for byte in range(_bytes(p.ty)):
                self.written[p.name, byte] = 0
        result = self.body(self.main.body)
        leaves = _leaves(result)
        for name in leaves:
            for byte in range(self.size(name)):
                self.mark(name, byte, len(self.trace))
        for p in self.main.params:
            self.live[p.name].add(0)

    def size(self, name: str) -> int:
        """Bytes of a storage, as far as anything wrote it."""
        while name in self.carry:
            name = self.carry[name][0]
        return max((b + 1 for s, b in self.written if s == name), default=0)

    def mark(self, name: str, byte: int, position: int) -> None:
        """A read at `position` of the trace: live since the byte was written."""
        since = self.written.get((name, byte))
        if since is None and name in self.carry:
            source, since = self.carry[name]
            self.mark(source, byte, since)
        if since is not None:
            self.live.setdefault(name, set()).update(p for p in self.trace[since:position] if p >= 0)

    def body(self, expr: Any) -> Any:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    self.env[binding.var] = self.value(binding.var, binding.value)
            return self.body(expr.body)
        return self.value(None, expr)

    def value(self, var: Any, e: Any) -> Any:
        if isinstance(e, ir.Var):
            return self.env[e]
        if isinstance(e, ir.Tuple):
            return tuple(self.value(None, f) for f in e.fields)
        if type(e).__name__ == "TupleGetItem":
            return self.value(None, e.tuple_value)[int(e.index)]
        if type(e).__name__ == "GenericConst":
            return None
        if isinstance(e, relax.If):
            return self.choose(var, e)
        if e.op.name == "relax.reshape":
            return self.value(None, e.args[0])
        assert e.op.name == "relax.call_tir"
        return self.call(var, e)

    def choose(self, var: Any, e: Any) -> Any:
        taken = next(self.choices)
        condition = self.value(None, e.cond)
        self.step(lambda touch: touch(condition, 0, 1, False))
        results = []
        was = self.running
        for side, part in ((True, e.true_branch), (False, e.false_branch)):
            self.running = was and side == taken
            source = self.body(part)
            results.append(source)
        self.running = was
        # The value of the `if` is the bytes of the side that ran, under the name of the variable.
        if was:
            self.carry[var.name] = (results[0] if taken else results[1], len(self.trace))
        return var.name

    def call(self, var: Any, e: Any) -> Any:
        function = self.module[e.args[0]]
        arguments = [self.value(None, a) for a in e.args[1].fields]
        outs = list(e.ty.fields) if isinstance(e.ty, relax.TupleType) else [e.ty]
        results = [var.name] if len(outs) == 1 else [f"{var.name}_{i}" for i in range(len(outs))]
        names = dict(zip(function.params, [*arguments, *results], strict=True))
        statements = list(function.body.seq) if isinstance(function.body, tirx.SeqStmt) else [function.body]
        for s in statements:
            if isinstance(s, tirx.AllocBuffer):
                base = f"{e.args[0].name_hint}.{s.buffer.name}"
                names[s.buffer] = base if not self.names[base] else f"{base}_{self.names[base]}"
                self.names[base] += 1
        for s in statements:
            if not isinstance(s, tirx.AllocBuffer):
                self.statement(s, names)
        return results[0] if len(outs) == 1 else tuple(results)

    def statement(self, s: Any, names: dict[Any, str]) -> None:
        def run(touch: Callable[[str | None, int, int, bool], None]) -> None:
            def report(buffer: Any, element: int, writes: bool) -> None:
                size = tvm.DataType(str(buffer.dtype)).bits // 8
                touch(names[buffer], element * size, (element + 1) * size, writes)

            Interpreter(report).stmt(s)

        self.step(run)

    def step(self, run: Callable[[Any], None]) -> None:
        """One point: first everything that is read as it was before, then what is written."""
        if self.running:
            self.trace.append(self.point)
            position = len(self.trace)
            fresh: set[tuple[str, int]] = set()

            def touch(name: str | None, start: int, stop: int, writes: bool) -> None:
                if name is None:
                    return
                self.live.setdefault(name, set()).add(self.point)
                for byte in range(start, stop):
                    if writes:
                        fresh.add((name, byte))
                    elif (name, byte) not in fresh:
                        self.mark(name, byte, position)

            run(touch)
            for key in fresh:
                self.written[key] = position - 1
        self.point += 1


def _leaves(value: Any) -> set[str]:
    if isinstance(value, tuple):
        return {leaf for item in value for leaf in _leaves(item)}
    return set() if value is None else {value}


def _bytes(ty: Any) -> int:
    total = max(1, tvm.DataType(str(ty.dtype)).bits // 8)
    for extent in ty.shape.values:
        total *= int(extent)
    return total


@pytest.fixture
def oracle() -> Callable[[Any], Oracle]:
    """`oracle(module)`: liveness by execution; `main` may hold call_tir, reshape, tuples and `if`."""
    return lambda module: Oracle(module).run()


def true_distance(function: Any, source: Any, target: Any) -> int | None:
    """The greatest safe offset(target) - offset(source), from every load and store in order.

    None when the first write already comes after the last read: anything is safe.
    """
    last_read: dict[int, int] = {}
    first_write: dict[int, int] = {}
    clock = 0

    def touch(buffer: Any, element: int, writes: bool) -> None:
        nonlocal clock
        clock += 1
        if writes and buffer.same_as(target):
            first_write.setdefault(element, clock)
        elif not writes and buffer.same_as(source):
            last_read[element] = clock

    Interpreter(touch).stmt(function.body)
    read_bytes = tvm.DataType(str(source.dtype)).bits // 8
    write_bytes = tvm.DataType(str(target.dtype)).bits // 8
    clashes = [
        x * read_bytes - (y + 1) * write_bytes
        for y, written in first_write.items()
        for x, read in last_read.items()
        if read > written
    ]
    return min(clashes, default=None)


@pytest.fixture
def exact_distance() -> Callable[[Any, Any, Any], int | None]:
    """`exact_distance(function, input buffer, output buffer)` by running the function."""
    return true_distance
