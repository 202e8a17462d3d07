"""Random Relax programs with what hides bytes from a plan, and what they are compared with.

Invariant: one seed is one program. A program reads only what it wrote, uses no tensor after it was changed in place,
and computes the same bytes in whatever order the machine sums: only elementwise arithmetic. Kernels draw strides,
`storage_align`, reads of another index or another address, loops with allocations, triangles and changes in place;
Relax draws builtins and packed functions that give back their argument, reshapes, constants, `if` in `if`, sizes of one
symbol, and names that are called like pools, kernels, attributes and each other.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

NAMES = (
    "workspace",
    "view",
    "result",
    "npu_memplan_poison",
    "pool",
    "main_1",
    "add",
    "copy",
    "gv",
    "storage",
    "f",
    "x",
)
"""Names that other things have."""


@dataclass
class RandomProgram:
    """A module, its inputs for a run (several sizes, where it has a symbol), and its text.

    `compact` is the same without strides of allocations: TVM 0.27 allocates less than strides reach that do not divide
    each other from left to right, so that the module itself is no reference.
    """

    module: Any
    compact: Any
    inputs: list[list[Any]]
    text: str
    symbolic: bool


@dataclass
class _Drawing:
    random: random.Random
    rows: Any  # an int, or "n"
    columns: int
    kernels: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=lambda: {"main", "x0", "x1", "c0", "c1", "n", "cls", "M"})
    lines: list[str] = field(default_factory=list)
    once: bool = False  # without a plan it changes a constant, so that its second run is another one

    # -- text ------------------------------------------------------------------------------------

    def name(self) -> str:
        """A name that nothing in the module has, from `NAMES` where one is free."""
        free = [name for name in NAMES if name not in self.taken]
        name = self.random.choice(free) if free and self.random.random() < 0.4 else f"v{len(self.taken)}"
        self.taken.add(name)
        return name

    def function(self) -> str:
        """The name of a kernel, which a variable may have as well."""
        known = {line.split("def ")[1].split("(")[0] for kernel in self.kernels for line in kernel.splitlines()[1:2]}
        free = [name for name in NAMES if name not in known and name not in ("x", "gv")]
        return self.random.choice(free) if free and self.random.random() < 0.5 else f"kernel_{len(self.kernels)}"

    @property
    def shape(self) -> str:
        """Of every tensor."""
        return f"({self.rows}, {self.columns})"

    # -- kernels ---------------------------------------------------------------------------------

    def strides(self) -> str:
        """Strides of an allocation of the shape: row-major, padded, by columns, or none."""
        r, c = self.rows, self.columns
        ways = ["", f"({c}, 1)", f"({c + self.random.randint(1, 5)}, 1)"]
        if isinstance(r, int):
            ways += [f"(1, {r})", f"(1, {r + self.random.randint(1, 3)})", f"({2 * c + 1}, 2)"]
        chosen = self.random.choice(ways)
        return f", strides={chosen}" if chosen else ""

    def read(self, name: str) -> str:
        """An element of a tensor, at one index or another."""
        r, c = self.rows, self.columns
        ways = ["i, j", "i, j", f"i, {c - 1} - j", f"{r} - 1 - i, j"]
        if r == c:
            ways += ["j, i"]
        return f"{name}[{self.random.choice(ways)}]"

    def value(self, sources: list[str], *, same_place: bool = False) -> str:
        """An expression of elements."""
        first = f"{sources[-1]}[i, j]" if same_place else self.read(self.random.choice(sources))
        ways = [
            f"{first} * T.float32(0.5)",
            f"{first} + T.float32(1)",
            f"T.max({first}, T.float32(0))",
            f"T.if_then_else(i > j, {first}, T.float32(2))",
        ]
        if not same_place:
            ways += [f"{first} + {self.read(self.random.choice(sources))} * T.float32(0.25)"]
        return self.random.choice(ways)

    def stage(self, target: str, sources: list[str], indent: str) -> list[str]:
        """Statements that define all of `target` from `sources`."""
        grid = f"{indent}for i, j in T.grid({self.rows}, {self.columns}):"
        kind = self.random.random()
        if kind < 0.15:  # a row at a time, the triangle after the rest
            return [
                f"{grid} {target}[i, j] = T.float32(0.5)",
                f"{indent}for i in range({self.rows}):",
                f"{indent}    for j in range(T.min(i + 1, {self.columns})): {target}[i, j] = {self.value(sources)}",
            ]
        if kind < 0.25:
            return [
                grid,
                f"{indent}    if j > {self.random.randint(0, self.columns)}:",
                f"{indent}        {target}[i, j] = {self.value(sources)}",
                f"{indent}    else:",
                f"{indent}        {target}[i, j] = {self.value(sources)}",
            ]
        return [f"{grid} {target}[i, j] = {self.value(sources)}"]

    def kernel(self, inputs: int, *, in_place: bool = False) -> str:
        """Adds a kernel of `inputs` and one result; returns its name. In place, the first one is the result."""
        name, draw = self.function(), self.random
        parameters = [f"p{i}" for i in range(inputs)] + ([] if in_place else ["q"])
        symbolic = not isinstance(self.rows, int)
        head, body = [], []
        if symbolic:
            body.append("n = T.int64()")
            body += [f'{p} = T.match_buffer({p}_h, {self.shape}, "float32")' for p in parameters]
            head = [f"{p}_h: T.handle" for p in parameters]
        else:
            head = [f'{p}: T.Buffer({self.shape}, "float32")' for p in parameters]
        sources = parameters[:inputs]
        for k in range(draw.randint(0, 3)):
            target = f"t{k}"
            body.append(f'{target} = T.alloc_buffer({self.shape}, "float32"{self.strides()})')
            loop = draw.random()
            if loop < 0.15:
                body += self.stage(target, sources, "")
                body += [f'k{k} = T.alloc_buffer((1,), "int32")', f"k{k}[0] = 0", f"while k{k}[0] < 3:"]
                body += self.local(target, k)
                body.append(f"    k{k}[0] = k{k}[0] + 1")
            elif loop < 0.3:
                body += [*self.stage(target, sources, ""), f"for s{k} in range({draw.randint(1, 3)}):"]
                body += self.local(target, k)
            else:
                body += self.stage(target, sources, "")
            sources = [*sources, target]
        result = parameters[0] if in_place else "q"
        if in_place and len(sources) == inputs:
            others = [s for s in sources if s != result]
            value = self.value([*others, result], same_place=True)
            body.append(f"for i, j in T.grid({self.rows}, {self.columns}): {result}[i, j] = {value}")
        else:
            body += self.stage(result, [s for s in sources if s != result], "")
        text = [f"    @T.prim_func(s_tir=True)\n    def {name}({', '.join(head)}):"]
        self.kernels.append("\n".join([*text, *(f"        {line}" for line in body)]))
        return name

    def local(self, target: str, k: int) -> list[str]:
        """One turn of a loop with an allocation of its own, which changes `target`."""
        own, other = f"u{k}", f"w{k}"
        lines = [f'    {own} = T.alloc_buffer({self.shape}, "float32"{self.strides()})']
        lines += self.stage(own, [target], "    ")
        if self.random.random() < 0.5:
            lines += [f'    {other} = T.alloc_buffer({self.shape}, "float32"{self.strides()})']
            lines += self.stage(other, [own], "    ")
            own = other
        return [*lines, *self.stage(target, [own], "    ")]

    def aligned(self) -> str:
        """Adds a kernel of blocks whose allocation is aligned by the schedule; returns its name."""
        name = self.function()
        swap = "vj, vi" if self.rows == self.columns else "vi, vj"
        factor, offset = self.random.choice([(32, 8), (16, 1), (8, 3)])
        dim = [[0, self.random.choice([0, 0, 1]), factor, offset]]
        grid = f"        for i, j in T.grid({self.rows}, {self.columns}):"
        remap = '                vi, vj = T.axis.remap("SS", [i, j])'
        self.kernels.append(
            "\n".join(
                [
                    f"    @T.prim_func(s_tir=True)\n    def {name}(p: T.Buffer({self.shape}, 'float32'),"
                    f" q: T.Buffer({self.shape}, 'float32')):",
                    f"        t = T.sblock_alloc_buffer({self.shape}, 'float32')",
                    grid,
                    "            with T.sblock('t'):",
                    remap,
                    f"                T.sblock_attr({{'buffer_dim_align': {dim}}})",
                    "                t[vi, vj] = p[vi, vj] * T.float32(2)",
                    grid,
                    "            with T.sblock('q'):",
                    remap,
                    f"                q[vi, vj] = t[{swap}] + T.float32(1)",
                ]
            )
        )
        return name

    def triangle(self) -> tuple[str, str]:
        """Adds a kernel that writes a triangle of its result, and one that reads no more than that."""
        first = self.function()
        half = "for i in range({0}):\n            for j in range(T.min(i + 1, {1})): {2}"
        parameters = f"(p: T.Buffer({self.shape}, 'float32'), q: T.Buffer({self.shape}, 'float32')):"
        text = half.format(self.rows, self.columns, f"q[i, j] = {self.value(['p'])}")
        self.kernels.append(f"    @T.prim_func(s_tir=True)\n    def {first}{parameters}\n        {text}")
        second = self.function()
        fill = f"        for i, j in T.grid({self.rows}, {self.columns}): q[i, j] = T.float32(3)\n"
        text = half.format(self.rows, self.columns, "q[i, j] = p[i, j] * T.float32(0.5)")
        self.kernels.append(f"    @T.prim_func(s_tir=True)\n    def {second}{parameters}\n{fill}        {text}")
        return first, second

    # -- Relax -----------------------------------------------------------------------------------

    def body(self, known: list[str], count: int, indent: str, depth: int) -> list[str]:
        """Adds `count` statements; returns the tensors that may be used behind them."""
        known = list(known)
        own: set[str] = set()  # tensors of these statements that have no other name: they may be changed in place
        for _ in range(count):
            kind = self.random.random()
            name = self.name()
            if kind < 0.16 and depth < 4:
                condition = self.random.choice(["c0", "c1"])
                self.lines.append(f"{indent}if {condition}:")
                self.side(known, name, indent, depth)
                self.lines.append(f"{indent}else:")
                self.side(known, name, indent, depth)
            else:
                expression, gone = self.expression(known, own, name, indent, outside=not depth)
                self.lines.append(f"{indent}{name} = {expression}")
                known = [k for k in known if k not in gone]
            known.append(name)
        return known

    def side(self, known: list[str], name: str, indent: str, depth: int) -> None:
        """One side of an `if`, whose value is called `name`."""
        inner = f"{indent}    "
        found = self.body(known, self.random.randint(0, 2), inner, depth + 1)
        self.lines.append(f"{inner}{name} = R.add({found[-1]}, {self.random.choice(found)})")

    def expression(
        self, known: list[str], own: set[str], name: str, indent: str, *, outside: bool
    ) -> tuple[str, set[str]]:
        """An expression over `known` tensors, and which of them are no more afterwards."""
        draw = self.random
        one, two = draw.choice(known[-4:]), draw.choice(known)
        out = f'R.Tensor({self.shape}, "float32")'
        kind = draw.randint(0, 13)
        symbolic = not isinstance(self.rows, int)
        if kind <= 2:
            chosen = draw.randint(1, 2)
            kernel = self.kernel(chosen)
            given = f"({one},)" if chosen == 1 else f"({one}, {two})"
            return f"R.call_tir(cls.{kernel}, {given}, out_ty={out})", set()
        if kind == 3 and not symbolic:
            return f"R.call_tir(cls.{self.aligned()}, ({one},), out_ty={out})", set()
        if kind == 4 and not symbolic:
            first, second = self.triangle()
            half = self.name()
            self.lines.append(f"{indent}{half} = R.call_tir(cls.{first}, ({one},), out_ty={out})")
            return f"R.call_tir(cls.{second}, ({half},), out_ty={out})", set()
        if kind == 5:
            free = [k for k in known if k in own] if outside else []
            if free:
                target = draw.choice(free)
                kernel = self.kernel(1, in_place=True)
                own.add(name)
                return f"R.call_tir_inplace(cls.{kernel}, ({target},), inplace_indices=[0], out_ty=[{out}])", {target}
        if kind == 6:
            own.discard(one)
            size = f"({self.rows} * {self.columns},)"
            flat = self.name()
            self.lines.append(f"{indent}{flat} = R.reshape({one}, {size})")
            return f"R.reshape({flat}, {self.shape})", set()
        if kind in (7, 8):
            own.discard(one)  # two names of the same bytes: neither is changed in place
            ways = [
                f'R.call_packed("random_relax.same", {one}, ty_args=[{out}])',
                f'R.call_pure_packed("random_relax.same", {one}, ty_args=[{out}])',
                f'R.call_builtin_with_ctx("random_relax.same_ctx", ({one},), ty_args=[{out}])',
            ]
            return draw.choice(ways), set()
        if kind == 9:
            ways = [
                f'R.call_dps_packed("random_relax.twice_into", ({one},), out_ty={out})',
                f'R.call_pure_packed("random_relax.twice", {one}, ty_args=[{out}])',
            ]
            return draw.choice(ways), set()
        if kind == 10 and not symbolic:
            first = len(self.taken)  # no two constants are equal: the run time would take one for both
            values = f"np.arange({first}, {first + self.rows * self.columns})"
            value = f"R.const({values}.reshape({self.shape}).astype('float32'))"
            self.name()
            if draw.random() < 0.5 and outside:
                kernel = self.kernel(1, in_place=True)
                held, self.once = self.name(), True
                self.lines.append(f"{indent}{held} = {value}")
                own.add(name)
                return f"R.call_tir_inplace(cls.{kernel}, ({held},), inplace_indices=[0], out_ty=[{out}])", set()
            return f"R.add({one}, {value})", set()
        ways = [f"R.add({one}, {two})", f"R.maximum({one}, {two})", f"R.negative({one})", f"R.nn.relu({one})"]
        own.add(name)
        return draw.choice(ways), set()


def random_program(seed: int) -> RandomProgram:
    """The program of a seed."""
    draw = random.Random(seed)
    symbolic = draw.random() < 0.2
    rows: Any = "n" if symbolic else draw.choice([1, 3, 4, 8, 8])
    columns = draw.choice([1, 4, 5, 8, 8])
    made = _Drawing(draw, rows, columns)
    known = made.body(["x0", "x1"], draw.randint(3, 8), " " * 8, 0)
    results = [known[-1], draw.choice(known)]
    quoted = f'R.Tensor(("{rows}", {columns}), "float32")' if symbolic else f'R.Tensor({made.shape}, "float32")'
    text = "\n".join(
        [
            "@I.ir_module",
            "class M:",
            *made.kernels,
            "    @R.function(pure=False)",
            f'    def main(x0: {quoted}, x1: {quoted}, c0: R.Tensor((), "bool"), c1: R.Tensor((), "bool")):',
            *(["        n = T.int64()"] if symbolic else []),
            "        cls = M",
            *made.lines,
            f"        return (R.add({results[0]}, {results[1]}), R.negative({results[1]}))",
        ]
    )
    words = {"I": I, "R": R, "T": T, "np": np}
    module = tvm.script.from_source(text, extra_vars=words)
    compact = tvm.script.from_source(re.sub(r", strides=\([^)]*\)", "", text), extra_vars=words)
    generator = np.random.default_rng(seed)
    inputs = []
    for turn, count in enumerate((1, 7, 32) if symbolic else (rows,) if made.once else (rows, rows)):
        tensors = [generator.integers(-8, 8, (count, columns)).astype("float32") for _ in range(2)]
        inputs.append([*tensors, np.array(bool((seed + turn) % 2)), np.array(bool((seed + turn) // 2 % 2))])
    return RandomProgram(module, compact, inputs, text, symbolic)


def register_functions() -> None:
    """The packed functions that programs call."""

    def same(tensor: Any) -> Any:
        return tensor

    def same_ctx(context: Any, tensor: Any) -> Any:
        return tensor

    def twice(tensor: Any) -> Any:
        return tvm.runtime.tensor(tensor.numpy() * 2)

    def twice_into(tensor: Any, target: Any) -> None:
        target.copyfrom(tensor.numpy() * 2)

    for function in (same, same_ctx, twice, twice_into):
        tvm.register_global_func(f"random_relax.{function.__name__}", function, override=True)
