"""Programs of every construct: equal on poisoned pools to the unplanned run; a storage at wrong bytes is noticed.

Invariant: `CONSTRUCTS` maps a name to a program with the calls that a test makes of it; those of the zoo without
symbols, objects or several entry functions are not here again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.transform import AllocateWorkspaces
from tests.support.relax_programs import Convolutions

pytest.importorskip("tvm")
from tvm import relax

from npu_memplan.extract.program import steps
from npu_memplan.rewrite.pools import PoolSlot
from npu_memplan.transform import KeptPools, PlanMemory, memory_plan_faults, pipeline, plan_memory, pool_sizes
from tests.support.zoo import ZOO


@dataclass(frozen=True)
class Construct:
    """`calls` are (function, makers of its arguments, shape symbols); arguments are made anew for each run.

    `share`: the functions take pools that the caller keeps.
    """

    module: Any
    calls: Sequence[tuple[str, Sequence[Callable[[], Any]], dict[str, int]]]
    share: bool = False


CONSTRUCTS: dict[str, Callable[[], Construct]] = {}


def construct(make: Callable[[], Construct]) -> Callable[[], Construct]:
    """Registers a program under the name of its function."""
    CONSTRUCTS[make.__name__] = make
    return make


def tensor(*shape: int, dtype: str = "float32", seed: int = 0) -> Callable[[], Any]:
    """A maker of a tensor of random values."""
    values = (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5).astype(dtype)
    return lambda: tvm.runtime.tensor(values)


def truth(value: bool) -> Callable[[], Any]:
    """A maker of a condition."""
    return lambda: tvm.runtime.tensor(np.array(value))


SIZES = (1, 3, 8, 33)


def of_n(module: Any, *more: Callable[[], Any]) -> Construct:
    """Calls of main with (n, 8) and `more`, at several n."""
    return Construct(module, [("main", [tensor(n, 8), *more], {"n": n}) for n in SIZES])


@tvm.register_global_func("npu_memplan.constructs.through", override=True)
def _through(source: Any, workspace: Any, target: Any) -> None:
    """Computes in its workspace and leaves rubbish there."""
    content = (source.numpy() + 1).tobytes()
    assert workspace.shape[0] >= len(content)
    workspace.copyfrom(np.frombuffer(content.ljust(workspace.shape[0], b"\xee"), np.uint8))
    target.copyfrom(np.frombuffer(workspace.numpy().tobytes()[: len(content)], "float32").reshape(source.shape))
    workspace.copyfrom(np.full(workspace.shape[0], 0xEE, np.uint8))


@tvm.register_global_func("npu_memplan.constructs.doubled", override=True)
def _doubled(source: Any) -> Any:
    source.copyfrom(source.numpy() * 2)
    return source


@tvm.register_global_func("npu_memplan.constructs.itself", override=True)
def _itself(source: Any) -> Any:
    return source


# -- `if` ------------------------------------------------------------------------------------------


@construct
def if_of_unknown_size() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")):
            y = R.exp(x)
            if c:
                a = R.add(y, x)
                z = R.nn.softmax(a, axis=-1)
            else:
                z = R.multiply(y, y)
            return R.subtract(z, y)

    return Construct(Module, [("main", [tensor(n, 8), truth(c)], {"n": n}) for n in SIZES for c in (True, False)])


@construct
def nested_if_of_unknown_size() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
            y = R.exp(x)
            z = R.add(x, y)
            if c:
                if d:  # noqa: SIM108
                    r = R.multiply(R.tanh(z), y)
                else:
                    r = z
                q = R.add(r, z)
            else:
                q = R.sum(R.add(z, y), axis=[1], keepdims=True) + y
            return R.subtract(R.tanh(q), z)

    both = (True, False)
    calls = [("main", [tensor(5, 8), truth(c), truth(d)], {"n": 5}) for c in both for d in both]
    return Construct(Module, calls)


@construct
def if_of_a_tuple() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")):
            if c:
                a = R.exp(x)
                t = (R.nn.relu(a), a)
            else:
                b = R.negative(x)
                t = (b, R.add(b, x))
            p = t[0]
            q = t[1]
            return (R.add(p, q), R.tanh(p))

    return Construct(Module, [("main", [tensor(n, 8), truth(c)], {"n": n}) for n in SIZES for c in (True, False)])


@construct
def if_of_an_object() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool"), a: R.Object, b: R.Object):
            y = R.exp(x)
            z = R.add(y, x)
            if c:  # noqa: SIM108
                o = a
            else:
                o = b
            u = R.multiply(z, y)
            return (R.subtract(u, z), o)

    objects = [lambda: tvm.runtime.ShapeTuple([7]), lambda: tvm.runtime.ShapeTuple([8, 9])]
    calls = [("main", [tensor(n, 8), truth(c), *objects], {"n": n}) for n in SIZES for c in (True, False)]
    return Construct(Module, calls)


# -- calls in place, of libraries, with workspaces -------------------------------------------------


@construct
def call_tir_in_place() -> Construct:
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def accumulate(x_: T.handle, total_: T.handle):
            n = T.int64()
            x = T.match_buffer(x_, (n, T.int64(8)), "float32")
            total = T.match_buffer(total_, (n, T.int64(8)), "float32")
            for i, j in T.grid(n, T.int64(8)):
                with T.sblock("add"):
                    v, w = T.axis.remap("SS", [i, j])
                    total[v, w] = total[v, w] + x[n - T.int64(1) - v, w]

        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            cls = Module
            a = R.exp(x)
            b = R.call_tir_inplace(cls.accumulate, (x, a), inplace_indices=[1], out_ty=R.Tensor((n, 8), "float32"))
            c = R.call_tir_inplace(cls.accumulate, (x, b), inplace_indices=[1], out_ty=R.Tensor((n, 8), "float32"))
            d = R.nn.softmax(c, axis=-1)
            return R.multiply(d, x)

    return of_n(Module)


@construct
def packed_call_in_place() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            y = R.exp(x)
            z = R.call_inplace_packed(
                "npu_memplan.constructs.doubled", y, inplace_indices=[0], ty_args=(R.Tensor((n, 8), "float32"),)
            )
            a = R.add(x, x)
            b = R.nn.softmax(a, axis=-1)
            return R.subtract(b, z)

    return of_n(Module)


@construct
def call_that_returns_its_argument() -> Construct:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            y = R.exp(x)
            z = R.call_packed("npu_memplan.constructs.itself", y, ty_args=(R.Tensor((8, 8), "float32"),))
            a = R.add(x, x)
            b = R.multiply(a, a)
            return R.subtract(b, z)

    return Construct(Module, [("main", [tensor(8, 8)], {})])


@construct
def library_calls_with_a_workspace() -> Construct:
    weights = [tensor(64, 3, 3, 3, dtype="float16", seed=1), tensor(64, 3, 3, 64, dtype="float16", seed=2)]
    calls = [
        ("main", [tensor(1, 3, h, w, dtype="float16"), *weights], {"h": h, "w": w}) for h, w in ((4, 6), (7, 5), (2, 2))
    ]
    return Construct(Convolutions, calls)


@construct
def workspace_asked_for() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            with R.dataflow():
                y = R.exp(x)
                z = R.call_dps_packed("npu_memplan.constructs.through", (y,), out_ty=R.Tensor((n, 8), "float32"))
                u = R.add(z, y)
                v = R.call_dps_packed("npu_memplan.constructs.through", (u,), out_ty=R.Tensor((n, 8), "float32"))
                w = R.subtract(v, z)
                R.output(w)
            return w

    def size(source: Any, result: Any) -> Any:
        return source.shape[0] * source.shape[1] * 4

    return of_n(AllocateWorkspaces({"npu_memplan.constructs.through": size})(Module))


# -- functions that call others, objects -----------------------------------------------------------


@construct
def closure() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            y = R.exp(x)

            @R.function
            def inner(a: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
                return R.subtract(R.nn.softmax(R.multiply(a, a), axis=-1), y)

            b = R.add(x, x)
            c = R.multiply(b, b)
            return inner(c)

    return Construct(Module, [("main", [tensor(8, 8)], {})])


@construct
def lifted_closure() -> Construct:
    return Construct(relax.transform.LambdaLift()(closure().module), [("main", [tensor(8, 8)], {})])


@construct
def recursion() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def looper(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "int32")) -> R.Tensor(("n", 8), "float32"):
            n = T.int64()
            if R.less(c, R.const(4, "int32")):
                y = R.add(x, x)
                z = R.nn.softmax(y, axis=-1)
                d = R.add(c, R.const(1, "int32"))
                r: R.Tensor((n, 8), "float32") = Module.looper(R.add(z, x), d)
            else:
                r: R.Tensor((n, 8), "float32") = x
            return r

        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            n = T.int64()
            y = R.exp(x)
            z: R.Tensor((n, 8), "float32") = Module.looper(y, R.const(0, "int32"))
            return R.add(z, y)

    return of_n(Module)


@construct
def kv_cache() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, "n", 2, 8), "float32"), cache: R.Object):
            n = T.int64()
            k = R.reshape(R.exp(x), (n, 2, 8))
            grown = R.call_pure_packed("vm.builtin.attention_kv_cache_append", cache, k, ty_args=(R.Object,))
            a = R.add(k, k)
            b = R.multiply(a, k)
            every = R.call_pure_packed(
                "vm.builtin.attention_kv_cache_view",
                grown,
                R.shape([n + 4, 2, 8]),
                ty_args=(R.Tensor((n + 4, 2, 8), "float32"),),
            )
            return R.subtract(b, R.sum(every, axis=[0]))

    def cache() -> Any:
        first = tvm.runtime.tensor(np.ones((4, 2, 8), np.float32))
        create = tvm.get_global_func("vm.builtin.attention_kv_cache_create")
        return create(first, tvm.runtime.ShapeTuple([64, 2, 8]), 4)

    return Construct(Module, [("main", [tensor(1, n, 2, 8), cache], {"n": n}) for n in SIZES])


@construct
def entries_that_share_pools() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def prefill(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
            a = R.matmul(x, w)
            b = R.nn.softmax(R.matmul(a, w), axis=-1)
            return R.sum(R.add(b, a), axis=[0], keepdims=True)

        @R.function
        def decode(x: R.Tensor((1, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            a = R.matmul(x, w)
            b = R.add(R.matmul(a, w), a)
            return R.subtract(R.matmul(b, w), x)

    w = tensor(8, 8, seed=4)
    calls = [("decode" if n == 1 else "prefill", [tensor(n, 8), w], {} if n == 1 else {"n": n}) for n in (3, 1, 40, 1)]
    return Construct(Module, calls, share=True)


# -- sizes that are no polynomials -----------------------------------------------------------------


@construct
def size_by_division() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 2, "h", "w"), "float32")):
            a = R.exp(x)
            b = R.nn.avg_pool2d(a, pool_size=(2, 2), strides=(2, 2))
            c = R.nn.relu(R.add(b, b))
            return (R.nn.max_pool2d(c, pool_size=(2, 2), strides=(2, 2)), R.sum(a))

    return Construct(
        Module, [("main", [tensor(1, 2, h, w)], {"h": h, "w": w}) for h, w in ((4, 4), (9, 6), (17, 23), (5, 40))]
    )


@construct
def size_by_remainder() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            a = R.exp(x)
            b = R.broadcast_to(R.sum(a, axis=[0], keepdims=True), R.shape([n % 5 + 1, 8]))
            c = R.nn.softmax(R.add(b, b), axis=-1)
            return (R.matmul(a, R.permute_dims(c)), a)

    return of_n(Module)


@construct
def size_by_least() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            a = R.exp(x)
            b = R.broadcast_to(R.sum(a, axis=[0], keepdims=True), R.shape([T.min(n, 6), 8]))
            c = R.nn.softmax(R.add(b, b), axis=-1)
            return R.matmul(R.matmul(a, R.permute_dims(c)), b)

    return of_n(Module)


@construct
def size_by_greatest() -> Construct:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("m", 8), "float32")):
            n = T.int64()
            m = T.int64()
            a = R.exp(x)
            b = R.broadcast_to(R.sum(a, axis=[0], keepdims=True), R.shape([T.max(n, m), 8]))
            c = R.nn.softmax(R.add(b, b), axis=-1)
            d = R.exp(y)
            return R.matmul(R.matmul(d, R.permute_dims(c)), R.multiply(c, b))

    sizes = ((1, 1), (2, 9), (30, 4))
    return Construct(Module, [("main", [tensor(n, 8), tensor(m, 8, seed=3)], {"n": n, "m": m}) for n, m in sizes])


OF_THE_ZOO = [n for n in ZOO if not n.endswith(("int8", "model", "quant")) and n not in ("onnx_cnn", "torch_exported")]


def leaves(value) -> list[bytes]:
    """Tensors as bytes, shapes as text, left to right."""
    if hasattr(value, "numpy"):
        return [value.numpy().tobytes()]
    if isinstance(value, tvm.runtime.ShapeTuple):
        return [str(list(value)).encode()]
    return [leaf for item in value for leaf in leaves(item)]


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_planned_equals_unplanned(name):
    program = CONSTRUCTS[name]()
    planned = PlanMemory(share=program.share, poison=0xA5)(program.module)
    kept = KeptPools(planned) if program.share else None
    plain, own = (
        relax.VirtualMachine(tvm.compile(m, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
        for m in (relax.transform.LambdaLift()(program.module), planned)
    )
    for function, arguments, symbols in program.calls:
        pools = kept(function, **symbols) if kept is not None else ()
        wanted = leaves(plain[function](*(make() for make in arguments)))
        assert leaves(own[function](*(make() for make in arguments), *pools)) == wanted, symbols


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_right_plan_has_no_faults(name):
    program = CONSTRUCTS[name]()
    faults, _ = memory_plan_faults(PlanMemory(share=program.share)(program.module))
    assert not faults


def clobbered(program, problem, slots):
    """Names (live across a step, written in it) of two storages that must be apart; the first pair there is."""
    allowed = {frozenset((o.first, o.second)) for o in problem.overlaps}
    allowed |= {frozenset(pair) for g in problem.aliases for pair in combinations([n for n, _ in g.members], 2)}
    for step in steps(program.nodes):
        for written in (a.storage.name for a in step.accesses if a.writes):
            for buffer in problem.buffers:
                if (
                    written in slots
                    and {buffer.name, written} <= set(slots)
                    and buffer.name != written
                    and buffer.lives_at(step.point)
                    and (buffer.lives_at(step.point + 1) or step.origin is None)  # None: a library's call
                    and slots[buffer.name].pool == slots[written].pool
                    and frozenset((buffer.name, written)) not in allowed
                ):
                    return buffer.name, written
    return None


def broken(monkeypatch, module, share):
    """`module` planned, with one storage on top of another that lives on, or else at no multiple of its elements."""
    moved = []
    lay = plan_memory.lay

    def moving(extracted, plans):
        laid, problem, program = lay(extracted, plans), extracted.problem, extracted.program
        slots = laid.slots
        if not moved and slots:
            pair = clobbered(program, problem, slots)
            name = pair[1] if pair else min(slots, key=lambda n: problem.buffer(n).size_bytes)
            moved.append(pair or (name,))
            there = slots[pair[0]] if pair else PoolSlot(slots[name].pool, slots[name].offset + 2)
            aliases = [{n for n, _ in g.members} for g in problem.aliases]
            group = next((g for g in aliases if name in g), {name})
            slots = {**slots, **dict.fromkeys(group, there)}
        return replace(laid, slots=slots)

    monkeypatch.setattr(plan_memory, "lay", moving)
    return PlanMemory(share=share)(module), moved


@pytest.mark.parametrize("name", [*CONSTRUCTS, *OF_THE_ZOO])
def test_a_storage_moved_onto_another_is_noticed(name, monkeypatch):
    program = CONSTRUCTS[name]() if name in CONSTRUCTS else ZOO[name]()
    module, moved = broken(monkeypatch, program.module, getattr(program, "share", False))
    faults, _ = memory_plan_faults(module)
    assert bool(faults) == bool(moved), moved
    assert moved or name == "issue_20191"  # which has nothing to place


def test_what_was_appended_to_a_cache_need_not_live_on():
    # k and a; where k had to live on, the sum would lie beside k and b
    assert pool_sizes(PlanMemory()(kv_cache().module), {"n": 4})["workspace"] == 2 * 256
