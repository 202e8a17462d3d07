"""Bytes and planning times of Relax programs: TVM's planner, legacy-style planning, and this one.

python -m benchmarks.relax                 # bytes of the zoo
python -m benchmarks.relax --run           # also compare planned with unplanned results, bit for bit
python -m benchmarks.relax --dynamic       # symbolic programs at several sizes
python -m benchmarks.relax --drawn         # 20 random symbolic programs at 100 random sizes each
python -m benchmarks.relax --large         # planning and compiling of many functions, and of many symbolic calls
python -m benchmarks.relax --times 100 1000 10000
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from npu_memplan import planners, verify
from npu_memplan.analysis import compare, pressure_of
from npu_memplan.extract.build import build
from npu_memplan.extract.walk import walk
from npu_memplan.options import NO_NPU, CompileOptions
from npu_memplan.problem import Lifetime, Pool, Problem
from npu_memplan.request import Loaded, Request
from npu_memplan.rewrite.main import rewrite_program
from npu_memplan.rewrite.pools import pools_of
from npu_memplan.transform import PlanMemory, memory_plan_faults, pipeline, pool_sizes
from npu_memplan.transform.comparison import allocated_bytes, allocations, planned_by_tvm
from npu_memplan.transform.legalize import legalize
from npu_memplan.transform.order import reorder
from tests.support.random_symbolic import random_products, random_sizes, symbolic_programs
from tests.support.relax_programs import GPT2_LIKE, LLAMA_7B, LLAMA_SMALL, Convolutions, transformer
from tests.support.relax_results import build_for_host, results
from tests.support.zoo import ZOO

REQUEST = Request(CompileOptions(NO_NPU), (Pool("workspace"),), io_in_pools=False, alignment=1)


def storages(module: Any) -> list[Any]:
    """Sizes (expressions) of what StaticPlanBlockMemory allocates in main, results not included."""
    return storages_of(planned_by_tvm(module)["main"])


def storages_of(main: Any) -> list[Any]:
    """Sizes (expressions) of what a function behind StaticPlanBlockMemory allocates, results not included."""
    return [size for size, _ in allocations(main)]


def hungriest(legal: Any) -> int:
    """Bytes that the PrimFunc with the largest allocations takes, once TVM's StorageRewrite has shared what it can."""
    return max((allocated_bytes(f) for f in legal.functions.values() if isinstance(f, tvm.tirx.PrimFunc)), default=0)


def number(expr: Any, symbols: dict[str, int]) -> int:
    """The value of a size for given symbols."""
    if isinstance(expr, int):
        return expr
    replaced = tvm_ffi.structural_map(
        expr, (ir.Var, lambda v: tvm.tirx.IntImm(str(v.ty.dtype), symbols[v.name]) if v.name in symbols else v)
    )
    return int(tvm.sym.Analyzer().simplify(replaced))


def whole_calls(problem: Problem, calls: list[Any]) -> Problem:
    """`problem` with every allocation inside a PrimFunc live during its whole call."""
    span = {}
    for call in calls:
        points = [s.point for s in _steps(call.nodes)]
        for internal in call.internals:
            if points:
                span[internal.name] = (Lifetime(min(points), max(points) + 1),)
    buffers = tuple(replace(b, lifetimes=span.get(b.name, b.lifetimes)) for b in problem.buffers)
    return replace(problem, buffers=buffers, overlaps=())


def _steps(nodes: Any) -> Any:
    from npu_memplan.extract.program import steps

    return steps(nodes)


def row(name: str, module: Any, bounds: dict[str, int]) -> dict[str, Any]:
    """Bytes of one program under every planner; the caller's inputs and outputs are never counted."""
    legal = legalize(module)
    if bounds:
        gv = legal.get_global_var("main")
        legal.update_func(gv, legal[gv].with_attr("tir_var_upper_bound", bounds))
    program = walk(legal, "main")
    problem, _ = build(program, REQUEST)
    try:
        source = tvm.IRModule(dict(module.functions.items()), module.attrs)
        if bounds:
            gv = source.get_global_var("main")
            source.update_func(gv, source[gv].with_attr("tir_var_upper_bound", bounds))
        bound = relax.transform.BindSymbolicVars(bounds, "main")(source) if bounds else source
        stock: Any = sum(number(s, bounds) for s in storages(source)) + hungriest(legalize(bound))
    except Exception as error:
        stock = f"fails: {type(error).__name__}"

    def used(found: Problem, planner: str = "auto") -> Any:
        plan = planners.plan(found, planner)
        verify.check(found, plan)
        return plan

    legacy = used(whole_calls(problem, program.calls), "greedy-by-size")
    plain = used(replace(problem, overlaps=()))
    overlapping = used(problem)
    ordered_problem, _ = build(walk(reorder(Loaded.from_module(REQUEST, legal)).module, "main"), REQUEST)
    ordered = used(ordered_problem)
    best = min((overlapping, ordered), key=lambda p: p.usage[0].used_bytes)
    return {
        "program": name,
        "buffers": len(problem.buffers),
        "tvm": stock,
        "legacy": legacy.usage[0].used_bytes,
        "ours": plain.usage[0].used_bytes,
        "bound": plain.usage[0].lower_bound_bytes,
        "status": plain.status.value,
        "overlap": overlapping.usage[0].used_bytes,
        "order": best.usage[0].used_bytes,
        "bound2": best.usage[0].lower_bound_bytes,
        "status2": best.status.value,
        "peak": pressure_of(problem).peak_bytes,
    }


COLUMNS = (
    ("program", "program"),
    ("buffers", "buffers"),
    ("tvm", "StaticPlanBlockMemory + internals"),
    ("legacy", "legacy style"),
    ("ours", "ours"),
    ("bound", "bound"),
    ("status", "status"),
    ("overlap", "+ in place, overlap"),
    ("order", "+ order"),
    ("bound2", "bound with overlaps"),
    ("status2", "status"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(title for _, title in COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(str(r[key]) for key, _ in COLUMNS) + " |" for r in rows]
    return "\n".join(lines)


def fused(module: Any) -> Any:
    """Constants folded, operators fused as TVM fuses them."""
    with tvm.target.Target("llvm"):
        return relax.get_pipeline("zero")(module)


def same_results(module: Any, inputs: list[list[Any]]) -> bool:
    """Whether the planned module, on poisoned pools, computes what the unplanned one computes."""

    plain, planned = build_for_host(module), build_for_host(PlanMemory(poison=0xA5)(module))
    return all(results(plain, arguments) == results(planned, arguments) for arguments in inputs)


def bytes_of_zoo(names: list[str], run: bool) -> None:
    zoo = ZOO
    rows, wrong = [], []
    for name in names or zoo:
        entry = zoo[name]()
        if entry is None:
            print(f"{name}: not available here", file=sys.stderr)
            continue
        modules = {name: entry.module}
        if hasattr(tvm, "IRModule") and name.endswith(("int8", "model", "quant")):
            modules[f"{name}, fused"] = fused(entry.module)
        for label, module in modules.items():
            rows.append(row(label, module, entry.bounds))
            print(rows[-1], file=sys.stderr)
            if run and not same_results(module, entry.inputs):
                wrong.append(label)
    print(table(rows))
    for r in rows:
        assert r["order"] <= r["overlap"] <= r["ours"] <= r["legacy"], r
        assert not isinstance(r["tvm"], int) or r["overlap"] <= r["tvm"], r
    if run:
        print(f"\nplanned and unplanned results: {'all equal' if not wrong else 'DIFFERENT in ' + ', '.join(wrong)}")


SYMBOLIC: dict[str, tuple[Any, list[dict[str, int]]]] = {
    "two convolutions": (None, [{"h": h, "w": w} for h, w in ((3, 5), (8, 8), (16, 16), (64, 48), (224, 224))]),
    "library convolutions and a pool": (
        lambda: Convolutions,
        [
            {"h": h, "w": w}
            for h, w in ((2, 2), (3, 5), (1, 70), (16, 16), (64, 48), (7, 999), (224, 224), (512, 288), (720, 1280))
        ]
        + [{"h": 1080, "w": 1920}],
    ),
    "GPT-2-like, 12 layers": (
        lambda: transformer(GPT2_LIKE),
        [{"s": s} for s in (1, 2, 8, 33, 64, 128, 200, 512, 1000, 2048)],
    ),
    "small Llama, any step": (
        lambda: transformer(LLAMA_SMALL, cached=True),
        [{"s": s, "t": t} for s, t in ((1, 0), (1, 16), (1, 512), (1, 4000), (7, 7), (33, 1000), (128, 0), (128, 512))]
        + [{"s": 2048, "t": 1}, {"s": 2048, "t": 2048}],
    ),
    "small Llama, decode": (
        lambda: transformer(LLAMA_SMALL, new=1, cached=True),
        [{"t": t} for t in (0, 1, 2, 16, 100, 512, 1000, 2000, 4000, 9000)],
    ),
    "Llama-7B shape, prefill": (
        lambda: transformer(LLAMA_7B),
        [{"s": s} for s in (1, 2, 16, 33, 64, 128, 200, 512, 1000, 2048)],
    ),
    "Llama-7B shape, decode": (
        lambda: transformer(LLAMA_7B, new=1, cached=True),
        [{"t": t} for t in (0, 1, 16, 33, 64, 128, 200, 512, 1000, 2048)],
    ),
}


def dynamic(names: list[str]) -> None:
    """Symbolic programs: bytes by formula against TVM's storages, bytes live, and a plan made for that very size."""
    print("| program | size | TVM + internals | live | planned for this size | ours | ours / planned | ours / TVM |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name, (make, sizes) in SYMBOLIC.items():
        if names and name not in names:
            continue
        module = make() if make is not None else ZOO["dynamic_convs"]().module
        legal = legalize(module)
        start = time.perf_counter()
        planned = PlanMemory()(legal)
        seconds = time.perf_counter() - start
        stock = storages(module)
        for symbols in sizes:
            bound = legalize(relax.transform.BindSymbolicVars(symbols, "main")(module))
            problem, _ = build(walk(bound, "main"), REQUEST)
            best = planners.plan(problem).usage[0].used_bytes
            theirs = sum(number(s, symbols) for s in stock) + hungriest(bound)
            ours = pool_sizes(planned, symbols)["workspace"]
            size = ", ".join(f"{k}={v}" for k, v in symbols.items())
            ratios = f"{ours / max(1, best):.3f} | {ours / max(1, theirs):.3f}"
            live = pressure_of(problem).peak_bytes
            print(f"| {name} | {size} | {theirs:,} | {live:,} | {best:,} | {ours:,} | {ratios} |", flush=True)
        print(f"{name}: planned in {seconds:.1f} s", file=sys.stderr)


def drawn() -> None:
    """Random symbolic programs at random sizes: bytes by formula against TVM's plan, and a plan made for that size;
    bytes with constant offsets against the formula at the greatest sizes.
    """
    titles = ("program", "sizes", "above TVM", "ours / TVM, worst", "ours / planned for the size, worst of 4")
    print("|", " | ".join((*titles, "constant offsets / formula")), "|")
    print("|---|--:|--:|--:|--:|--:|")
    for seed, (name, module, symbols) in enumerate(symbolic_programs()):
        planned, stock = PlanMemory()(module), storages(module)
        sizes = random_sizes(seed, symbols, 100)
        ratios = [bytes_against_tvm(module, planned, stock, values) for values in sizes]
        near = []
        for values in sizes[:4]:
            bound = PlanMemory()(relax.transform.BindSymbolicVars(values, "main")(module))
            near.append(pool_sizes(planned, values)["workspace"] / max(1, pool_sizes(bound)["workspace"]))
        above = sum(ratio > 1 for ratio in ratios)
        bounds = {symbol: max(values[symbol] for values in sizes) for symbol in symbols}
        formula, constant = (PlanMemory(bounds=bounds, worst_case=worst)(module) for worst in (False, True))
        rise = pool_sizes(constant, bounds)["workspace"] / max(1, pool_sizes(formula, bounds)["workspace"])
        row = f"{above} | {max(ratios):.3f} | {max(near):.3f} | {rise:.3f}"
        print(f"| {name} | {len(sizes)} | {row} |", flush=True)


def bytes_against_tvm(module: Any, planned: Any, stock: list[Any], values: dict[str, int]) -> float:
    """Bytes of a planned symbolic module at a size, as part of TVM's storages there, and what its kernels take."""
    ours, theirs = pool_sizes(planned, values)["workspace"], sum(number(size, values) for size in stock)
    if ours > theirs:
        theirs += compare(module, values).rows[0].tvm_internal_bytes
    return ours / max(1, theirs)


def synthetic(count: int, seed: int = 0) -> Any:
    """A chain of `count` operators with residual uses up to six steps back."""
    generator = random.Random(seed)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 16, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for i in range(count):
                a, b = values[-1], values[max(0, len(values) - 1 - generator.randint(0, 6))]
                makers = (
                    lambda a=a, b=b: relax.op.add(a, b),
                    lambda a=a: relax.op.nn.relu(a),
                    lambda a=a: relax.op.nn.avg_pool2d(a, (3, 3), padding=(1, 1), layout="NHWC"),
                    lambda a=a, b=b: relax.op.multiply(a, b),
                )
                values.append(builder.emit(makers[i % 4]()))
            out = builder.emit_output(values[-1])
        builder.emit_func_output(out)
    return builder.get()


def many_functions(count: int = 300) -> Any:
    """Functions of ten operators, of seven shapes."""
    builder = relax.BlockBuilder()
    for k in range(count):
        x = relax.Var("x", relax.TensorType((8, 8 + k % 7), "float32"))
        with builder.function("main" if k == 0 else f"f{k}", [x]):
            value = x
            for i in range(10):
                value = builder.emit(relax.op.tanh(value) if i % 2 else relax.op.add(value, x))
            builder.emit_func_output(value)
    return builder.get()


def large() -> None:
    """CPU seconds of planning, verifying and compiling large programs, beside TVM's own compile of the same."""
    programs = {
        "300 functions of 10 operators": many_functions(),
        "600 operators, two symbols": random_products(3, 600),
        "2500 operators": synthetic(2500),
    }
    print("| program | plan | verify | compile planned | TVM's compile |")
    print("|---|--:|--:|--:|--:|")
    for name, module in programs.items():
        legal = legalize(module)
        marks = [time.process_time()]
        planned = PlanMemory()(legal)
        marks.append(time.process_time())
        assert memory_plan_faults(planned) == ((), ())
        marks.append(time.process_time())
        tvm.compile(planned, target="llvm", relax_pipeline=pipeline(plan=False))
        marks.append(time.process_time())
        tvm.compile(module, target="llvm")
        marks.append(time.process_time())
        print(f"| {name} | " + " | ".join(f"{b - a:.1f}" for a, b in itertools.pairwise(marks)) + " |", flush=True)


def times(counts: list[int]) -> None:
    """CPU seconds of each stage; TVM's native lowering of the same module for comparison."""
    warm, _ = build(walk(legalize(synthetic(20)), "main"), REQUEST)
    planners.plan(warm)  # loads the compiled searches
    print("| operators | buffers | analysis | plan | verify | rewrite | all of PlanMemory's own | TVM's lowering |")
    print("|---|---|---|---|---|---|---|---|")
    for count in counts:
        module = synthetic(count)
        start = time.process_time()
        with tvm.target.Target("llvm"):
            relax.get_pipeline("default_build")(module)
        lowering = time.process_time() - start
        legal = legalize(module)
        marks = [time.process_time()]
        program = walk(legal, "main")
        problem, _ = build(program, REQUEST)
        marks.append(time.process_time())
        plan = planners.plan(problem)
        marks.append(time.process_time())
        verify.check(problem, plan)
        marks.append(time.process_time())
        pools, slots = pools_of(problem, plan, program)
        rewrite_program(legal, program, pools, slots)
        marks.append(time.process_time())
        parts = [b - a for a, b in itertools.pairwise(marks)]
        cells = [count, len(problem.buffers), *(f"{p:.2f} s" for p in [*parts, sum(parts), lowering])]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of zoo programs; all by default")
    parser.add_argument("--run", action="store_true", help="also run planned and unplanned modules and compare")
    parser.add_argument("--dynamic", action="store_true", help="only symbolic programs, at several sizes")
    parser.add_argument("--drawn", action="store_true", help="only random symbolic programs, at random sizes")
    parser.add_argument("--large", action="store_true", help="only times of large programs")
    parser.add_argument("--times", type=int, nargs="+", metavar="OPERATORS", help="only planning times")
    arguments = parser.parse_args()
    np.random.seed(0)
    if arguments.times:
        times(arguments.times)
    elif arguments.large:
        large()
    elif arguments.drawn:
        drawn()
    elif arguments.dynamic:
        dynamic(arguments.programs)
    else:
        bytes_of_zoo(arguments.programs, arguments.run)


if __name__ == "__main__":
    main()
