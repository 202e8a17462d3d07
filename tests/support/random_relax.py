"""Random Relax programs with what hides bytes from a plan, and what they are compared with.

Invariant: one seed is one program. A program reads only what it wrote, uses no tensor after it was changed in place,
and computes the same bytes in whatever order the machine sums: only elementwise arithmetic. Kernels draw strides,
`storage_align`, reads of another index or another address, loops with allocations, triangles, several results and
changes in place; Relax draws builtins and packed functions that give back or keep their argument, reshapes, constants,
`if` in `if`, dataflow blocks, casts to new symbols, tuples as values, arguments and results, functions that call
themselves, caches, element types, tensors without elements or axes, two devices, sizes of one symbol, and names that
are called like pools, kernels, attributes and each other.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
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
    each other from left to right, so that the module itself is no reference. Inputs are those of `main`: where it takes
    a tuple, a list stands for that. It runs on `devices`.
    """

    module: Any
    compact: Any
    inputs: list[list[Any]]
    text: str
    symbolic: bool
    devices: int = 1


@dataclass
class _Drawing:
    random: random.Random
    rows: Any  # an int, or "n"
    columns: int
    kernels: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=lambda: {"main", "x0", "x1", "c0", "c1", "n", "cls", "M"})
    lines: list[str] = field(default_factory=list)
    once: bool = False  # without a plan it changes a constant, so that its second run is another one
    devices: int = 1
    pure: bool = False  # inside a dataflow block

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

    @property
    def tensor(self) -> str:
        """The type of every tensor."""
        return f'R.Tensor({self.shape}, "float32")'

    @property
    def parameter(self) -> str:
        """The same in the head of a function, where symbols are quoted."""
        return self.tensor if isinstance(self.rows, int) else f'R.Tensor(("{self.rows}", {self.columns}), "float32")'

    def let(self, indent: str, expression: str) -> str:
        """Adds a variable for an expression; returns its name."""
        name = self.name()
        self.lines.append(f"{indent}{name} = {expression}")
        return name

    def symbols(self, indent: str) -> str:
        """Adds two new symbols; returns them as the extents of a shape."""
        names = [f"d{len(self.taken)}_{i}" for i in range(2)]
        self.taken.update(names)
        self.lines += [f"{indent}{name} = T.int64()" for name in names]
        return ", ".join(names)

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
            if kind < 0.16 and depth < 4 and not self.pure:
                known.append(self.choice(known, indent, depth))
            elif kind < 0.25 and not depth and not self.pure:
                known = self.dataflow(known, indent)
            else:
                name = self.name()
                expression, gone = self.expression(known, own, name, indent, outside=not depth)
                self.lines.append(f"{indent}{name} = {expression}")
                known = [*(k for k in known if k not in gone), name]
        return known

    def choice(self, known: list[str], indent: str, depth: int) -> str:
        """Adds an `if`, whose value is a tensor or a tuple in a tuple; returns the tensor, or one made of the tuple."""
        name, several = self.name(), self.random.random() < 0.3
        for head in (f"if {self.random.choice(['c0', 'c1'])}:", "else:"):
            self.lines.append(f"{indent}{head}")
            inner = f"{indent}    "
            found = self.body(known, self.random.randint(0, 2), inner, depth + 1)
            value = f"R.add({found[-1]}, {self.random.choice(found)})"
            if several:
                value = f"({self.random.choice(found)}, ({value}, {self.random.choice(found)}))"
            self.lines.append(f"{inner}{name} = {value}")
        if not several:
            return name
        inside = self.let(indent, f"{name}[1]")
        return self.let(indent, f"R.add(R.add({name}[0], {inside}[0]), {inside}[1])")

    def dataflow(self, known: list[str], indent: str) -> list[str]:
        """Adds a block of pure statements; returns what may be used behind it: some of its tensors."""
        self.lines.append(f"{indent}with R.dataflow():")
        self.pure = True
        found = self.body(known, self.random.randint(1, 4), f"{indent}    ", 0)
        self.pure = False
        new = [k for k in found if k not in known]
        given = [k for k in new[:-1] if self.random.random() < 0.5] + new[-1:]
        self.lines.append(f"{indent}    R.output({', '.join(given)})")
        return [*(k for k in known if k in found), *given]

    def expression(
        self, known: list[str], own: set[str], name: str, indent: str, *, outside: bool
    ) -> tuple[str, set[str]]:
        """An expression over `known` tensors, and which of them are no more afterwards."""
        draw = self.random
        one, two = draw.choice(known[-4:]), draw.choice(known)
        out = self.tensor
        kind = draw.randint(0, 19)
        if kind > 13:
            own -= {one, two}  # what has these may be another name of theirs
            return self.construct(one, two, indent), set()
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
                f'R.call_pure_packed("random_relax.same", {one}, ty_args=[{out}])',
                f'R.call_packed("random_relax.same", {one}, ty_args=[{out}])',
                f'R.call_builtin_with_ctx("random_relax.same_ctx", ({one},), ty_args=[{out}])',
            ]
            return draw.choice(ways[:1] if self.pure else ways), set()
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

    # -- constructs ------------------------------------------------------------------------------

    def construct(self, one: str, two: str, indent: str) -> str:
        """An expression of two tensors, by a construct that hides bytes; what it needs is added before."""
        pure = [self.cast, self.element_type, self.scalar, self.empty, self.extents, self.cache, self.pair, self.field]
        impure = [self.object_holder, self.assertion, self.recursion, self.function_call]
        ways = [*pure, *(impure if not self.pure else ()), *([self.device_move] if self.devices > 1 else ())]
        return self.random.choice(ways)(one, two, indent)

    def cast(self, one: str, two: str, indent: str) -> str:
        """A result whose extents only the run time knows."""
        call = f'R.call_pure_packed("random_relax.twice", {one}, ty_args=[R.Tensor(ndim=2, dtype="float32")])'
        unknown = self.let(indent, call)
        found = self.let(indent, f'R.match_cast({unknown}, R.Tensor(({self.symbols(indent)}), "float32"))')
        return f"R.match_cast({self.let(indent, f'R.negative({found})')}, {self.tensor})"

    def element_type(self, one: str, two: str, indent: str) -> str:
        """Elements of another type, and back."""
        if self.random.random() < 0.3:
            truth = self.let(indent, f"R.greater({one}, {two})")
            return f"R.where(R.logical_not({truth}), {one}, {two})"
        dtype = self.random.choice(["float16", "bfloat16", "float8_e4m3fn", "float64", "int8", "int32", "int64"])
        other = self.let(indent, f'R.astype(R.clip({one}, R.prim_value(-8), R.prim_value(8)), "{dtype}")')
        if not dtype.startswith("float8"):
            other = self.let(indent, f"R.add({other}, {other})")
        return f'R.add(R.astype({other}, "float32"), {two})'

    def scalar(self, one: str, two: str, indent: str) -> str:
        """A tensor without axes."""
        least = self.let(indent, f"R.max({one})")
        half = self.let(indent, f'R.multiply({least}, R.const(0.5, "float32"))')
        return f"R.add({two}, R.minimum({half}, {least}))"

    def empty(self, one: str, two: str, indent: str) -> str:
        """A tensor without elements."""
        none = self.let(indent, f"R.strided_slice({one}, axes=[0], begin=[0], end=[0])")
        other = self.let(indent, f"R.negative({none})")
        return f"R.concat([{self.random.choice([f'{other}, {two}', f'{two}, {other}'])}], axis=0)"

    def extents(self, one: str, two: str, indent: str) -> str:
        """A shape as a value, and a tensor of it."""
        given = f'"random_relax.same", R.shape([{self.rows}, {self.columns}])'
        shape = self.let(indent, f"R.call_pure_packed({given}, ty_args=[R.Shape(ndim=2)])")
        symbols = self.symbols(indent)
        self.let(indent, f"R.match_cast({shape}, R.Shape([{symbols}]))")
        filled = self.let(indent, f'R.full(R.shape([{symbols}]), R.const(2.0, "float32"), "float32")')
        return f"R.add({one}, {self.let(indent, f'R.match_cast({filled}, {self.tensor})')})"

    def cache(self, one: str, two: str, indent: str) -> str:
        """A cache of the virtual machine, which keeps copies."""
        new = f'"vm.builtin.attention_kv_cache_create", {one}, R.shape([64, {self.columns}]), R.prim_value(0)'
        cache = self.let(indent, f"R.call_pure_packed({new}, ty_args=[R.Object])")
        given = (one, two) if isinstance(self.rows, int) else (one,)  # TVM knows no slice of a symbol's multiple
        for tensor in given:
            more = f'"vm.builtin.attention_kv_cache_append", {cache}, {tensor}'
            cache = self.let(indent, f"R.call_pure_packed({more}, ty_args=[R.Object])")
        shape = f"{self.rows} * {len(given)}, {self.columns}" if len(given) > 1 else f"{self.rows}, {self.columns}"
        view = f'"vm.builtin.attention_kv_cache_view", {cache}, R.shape([{shape}])'
        every = self.let(indent, f'R.call_pure_packed({view}, ty_args=[R.Tensor(({shape}), "float32")])')
        first = f"R.strided_slice({every}, axes=[0], begin=[0], end=[{self.rows}])" if len(given) > 1 else every
        return f"R.add({two}, {first})"

    def pair(self, one: str, two: str, indent: str) -> str:
        """A kernel, or a packed function, of two results, the second of its own type in the kernel."""
        if self.random.random() < 0.4:
            call = f'"random_relax.both_into", ({one}, {two}), out_ty=[{self.tensor}, {self.tensor}]'
            both = self.let(indent, f"R.call_dps_packed({call})")
            return f"R.add({both}[1], {both}[0])"
        name, dtype = self.function(), self.random.choice(["float16", "int32", "float32"])
        symbolic = not isinstance(self.rows, int)
        types = ["float32", "float32", dtype]
        names = ("p", "q", "r")
        given = [f'{n}: T.Buffer({self.shape}, "{t}")' for n, t in zip(names, types, strict=True)]
        head = []
        if symbolic:
            given = [f"{n}_h: T.handle" for n in names]
            head = ["n = T.int64()"]
            head += [f'{n} = T.match_buffer({n}_h, {self.shape}, "{t}")' for n, t in zip(names, types, strict=True)]
        first = self.stage("q", ["p"], "")
        second = f'r[i, j] = T.Cast("{dtype}", T.max(T.min({self.read("p")}, T.float32(8)), T.float32(-8)))'
        lines = [*head, *first, f"for i, j in T.grid({self.rows}, {self.columns}): {second}"]
        text = [f"    @T.prim_func(s_tir=True)\n    def {name}({', '.join(given)}):"]
        self.kernels.append("\n".join([*text, *(f"        {line}" for line in lines)]))
        types = f'[{self.tensor}, R.Tensor({self.shape}, "{dtype}")]'
        both = self.let(indent, f"R.call_tir(cls.{name}, ({one},), out_ty={types})")
        return f'R.add({both}[0], R.astype({both}[1], "float32"))'

    def field(self, one: str, two: str, indent: str) -> str:
        """A tuple in a tuple, as a value and as the argument of a packed function that gives back a field."""
        both = self.let(indent, f"({one}, ({two}, {one}))")
        inside = self.let(indent, f"{both}[1]")
        picked = self.let(indent, f'R.call_pure_packed("random_relax.pick", {both}, ty_args=[{self.tensor}])')
        return f"R.add({picked}, {inside}[1])" if self.random.random() < 0.5 else picked

    def object_holder(self, one: str, two: str, indent: str) -> str:
        """An object that keeps a tensor for a later call."""
        holder = self.let(indent, f'R.call_packed("random_relax.keep", {one}, ty_args=[R.Object])')
        if self.random.random() < 0.5:
            self.let(indent, f'R.call_packed("random_relax.put", {holder}, {two}, ty_args=[R.Tuple([])])')
        other = two
        for _ in range(self.random.randint(1, 3)):
            other = self.let(indent, f"R.add({other}, {two})")
        found = self.let(indent, f'R.call_packed("random_relax.kept", {holder}, ty_args=[{self.tensor}])')
        return f"R.add({found}, {other})"

    def assertion(self, one: str, two: str, indent: str) -> str:
        """A tensor that is looked at on the way."""
        copied = self.let(indent, f"R.negative({one})")
        self.let(indent, f'R.assert_op(R.const(True, "bool"), [{copied}], format="not {{}}")')
        self.let(indent, f'R.call_packed("random_relax.note", {copied}, ty_args=[R.Tuple([])])')
        if self.random.random() < 0.2:
            self.let(indent, f'R.print(R.max({copied}), format="printed {{}}")')
        return f"R.add({copied}, {two})"

    def recursion(self, one: str, two: str, indent: str) -> str:
        """A function that calls itself."""
        name = self.function()
        number = 'R.Tensor((), "int64")'
        lines = [
            f"def {name}(t: {self.parameter}, c: {number}) -> {self.parameter}:",
            *(["    n = T.int64()"] if not isinstance(self.rows, int) else []),
            "    cls = M",
            '    if R.greater(c, R.const(0, "int64")):',
            "        a = R.negative(t)",
            "        b = R.maximum(a, t)",
            f'        w: {self.tensor} = cls.{name}(R.add(b, t), R.subtract(c, R.const(1, "int64")))',
            "        r = R.add(w, b)",
            "    else:",
            f"        r = {self.random.choice(['R.add(t, t)', 't'])}",
            "    return r",
        ]
        self.kernels.append("\n".join(f"    {line}" for line in ("@R.function(pure=False)", *lines)))
        times = self.random.randint(0, 3)
        return f'R.add(cls.{name}({one}, R.const({times}, "int64")), {two})'

    def function_call(self, one: str, two: str, indent: str) -> str:
        """A function of the module, public or private, that takes and gives tuples in tuples."""
        name, p = self.function(), self.parameter
        private = self.random.choice(["", ", private=True"])
        lines = [
            f"@R.function(pure=False{private})",
            f"def {name}(t: R.Tuple({p}, R.Tuple({p}, {p}))) -> R.Tuple({p}, R.Tuple({p})):",
            *(["    n = T.int64()"] if not isinstance(self.rows, int) else []),
            "    i = t[1]",
            "    b = R.add(t[0], i[0])",
            f"    return (b, ({self.random.choice(['R.negative(i[1])', 'i[1]', 'b'])},))",
        ]
        self.kernels.append("\n".join(f"    {line}" for line in lines))
        both = self.let(indent, f"cls.{name}(({one}, ({two}, {one})))")
        return f"R.add({self.let(indent, f'{both}[1]')}[0], {both}[0])"

    def device_move(self, one: str, two: str, indent: str) -> str:
        """Work on another device."""
        there = self.let(indent, f"R.to_vdevice({one}, 'llvm:1')")
        again = self.let(indent, f"R.to_vdevice({two}, 'llvm:1')")
        done = self.let(indent, f"R.maximum(R.negative({there}), {again})")
        return f"R.to_vdevice({done}, 'llvm:0')"

    def result(self, known: list[str]) -> str:
        """What `main` gives back."""
        one, two, last = self.random.choice(known), self.random.choice(known), known[-1]
        ways = [
            f"(R.add({last}, {one}), R.negative({one}))",
            f"({last}, ({one}, {one}), R.add({last}, {two}))",
            f"(R.negative({last}), R.const(np.arange(3, dtype='float32')), ({two},))",
            f"({last}, R.shape([{self.rows}, 7]), {last})",
            f"R.add({last}, {one})",
        ]
        return self.random.choice(ways)


DEVICES = 'I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})'


def random_program(seed: int) -> RandomProgram:
    """The program of a seed."""
    draw = random.Random(seed)
    symbolic = draw.random() < 0.2
    rows: Any = "n" if symbolic else draw.choice([1, 3, 4, 8, 8])
    columns = draw.choice([1, 4, 5, 8, 8])
    made = _Drawing(draw, rows, columns, devices=1 if symbolic or draw.random() < 0.8 else 2)
    joined = draw.random() < 0.15
    known = made.body(["x0", "x1"], draw.randint(3, 8), " " * 8, 0)
    result = made.result(known)
    given = f"x0: {made.parameter}, x1: {made.parameter}"
    fields = []
    if joined:
        given = f"given: R.Tuple({made.parameter}, R.Tuple({made.parameter}))"
        fields = ["x0 = given[0]", "given_1 = given[1]", "x1 = given_1[0]"]
    text = "\n".join(
        [
            "@I.ir_module",
            "class M:",
            *([f"    {DEVICES}"] if made.devices > 1 else []),
            *made.kernels,
            "    @R.function(pure=False)",
            f'    def main({given}, c0: R.Tensor((), "bool"), c1: R.Tensor((), "bool")):',
            *(["        n = T.int64()"] if symbolic else []),
            "        cls = M",
            *(f"        {line}" for line in fields),
            *made.lines,
            f"        return {result}",
        ]
    )
    words = {"I": I, "R": R, "T": T, "np": np}
    module = tvm.script.from_source(text, extra_vars=words)
    compact = tvm.script.from_source(re.sub(r", strides=\([^)]*\)", "", text), extra_vars=words)
    generator = np.random.default_rng(seed)
    inputs: list[list[Any]] = []
    for turn, count in enumerate((1, 7, 32) if symbolic else (rows,) if made.once else (rows, rows)):
        tensors = [generator.integers(-8, 8, (count, columns)).astype("float32") for _ in range(2)]
        conditions = [np.array(bool((seed + turn) % 2)), np.array(bool((seed + turn) // 2 % 2))]
        inputs.append([*([[tensors[0], [tensors[1]]]] if joined else tensors), *conditions])
    return RandomProgram(module, compact, inputs, text, symbolic, made.devices)


NOTES: list[bytes] = []
"""What packed functions saw, since this was emptied last."""


def register_functions() -> None:
    """The packed functions that programs call."""

    def same(value: Any) -> Any:
        return value

    def same_ctx(context: Any, tensor: Any) -> Any:
        return tensor

    def twice(tensor: Any) -> Any:
        return tvm.runtime.tensor(tensor.numpy() * 2)

    def twice_into(tensor: Any, target: Any) -> None:
        target.copyfrom(tensor.numpy() * 2)

    def both_into(one: Any, two: Any, first: Any, second: Any) -> None:
        second.copyfrom(one.numpy() - two.numpy())
        first.copyfrom(two.numpy() * 2)

    def pick(fields: Any) -> Any:
        return fields[1][0]

    def keep(tensor: Any) -> Any:
        return tvm_ffi.List([tensor])

    def put(holder: Any, tensor: Any) -> None:
        holder.append(tensor)

    def kept(holder: Any) -> Any:
        return holder[-1]

    def note(tensor: Any) -> None:
        NOTES.append(tensor.numpy().tobytes())

    for function in (same, same_ctx, twice, twice_into, both_into, pick, keep, put, kept, note):
        tvm.register_global_func(f"random_relax.{function.__name__}", function, override=True)
