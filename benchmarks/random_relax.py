"""Plans random Relax programs, runs them, and compares them with the program without a plan and with nothing shared.

Usage: python -m benchmarks.random_relax [--first N] [--count M] [--keep FOLDER]

Invariant: exit code 0 means that every program computed the same bytes unplanned on poisoned memory, with every storage
on bytes of its own, and as planned on poisoned pools, and that `memory_plan_faults` found nothing. Programs are tried
in forks of a process that has imported everything, so that a crash is a result.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from npu_memplan.extract.build import build, prepare
from npu_memplan.extract.walk import walk
from npu_memplan.options import NO_NPU, CompileOptions
from npu_memplan.problem import Placement, Plan, PlanStatus, Pool, Problem
from npu_memplan.request import Request
from npu_memplan.rewrite.main import rewrite_program
from npu_memplan.rewrite.pools import pools_of
from npu_memplan.transform import Legalize, PlanMemory, memory_plan_faults, pipeline
from tests.support.fork import run_in_fork
from tests.support.random_relax import NOTES, RandomProgram, random_program, register_functions

POISON = 0xA5
LIMIT_S = 120
_FORK = 20  # programs that one fork tries, if nothing ends it
_M_PERTURB = -6  # of mallopt(3): what allocations are filled with


def apart(module: Any) -> Any:
    """`module` planned with every storage on bytes of its own; sizes must be known."""
    module = prepare(Legalize()(module))
    program = walk(module)
    options = CompileOptions(NO_NPU, objective="bytes", overlaps=False)
    problem, _ = build(program, Request(options, (Pool("workspace"),), io_in_pools=False))
    pools, slots = pools_of(problem, Plan(_placements(problem), (), PlanStatus.FEASIBLE, "apart"), program)
    return rewrite_program(module, program, pools, slots, poison=POISON)


def _placements(problem: Problem) -> tuple[Placement, ...]:
    groups = {name: group for group in problem.aliases for name, _ in group.members}
    starts: dict[Any, int] = {}
    offset = 0
    for buffer in problem.buffers:
        key = groups.get(buffer.name, buffer.name)
        if key not in starts:
            members = [problem.buffer(n) for n, _ in groups[buffer.name].members] if buffer.name in groups else [buffer]
            unit = max(64, *(m.alignment for m in members))
            starts[key] = -(-offset // unit) * unit
            offset = starts[key] + max(m.size_bytes for m in members)
    first = problem.pools[0].name if problem.pools else ""
    return tuple(Placement(b.name, (*b.pools, first)[0], starts[groups.get(b.name, b.name)]) for b in problem.buffers)


def outputs(module: Any, program: RandomProgram) -> list[list[Any]]:
    """The bytes of all results, of the inputs afterwards, and of what packed functions noted."""
    devices = [tvm.cpu(i) for i in range(program.devices)]
    vm = relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False)), devices)
    found = []
    for arguments in program.inputs:
        tensors = [_tensors_of(a) for a in arguments]
        NOTES.clear()
        results = vm["main"](*tensors)
        found.append([*_leaves(results), *_leaves(tensors), *NOTES])
    return found


def _tensors_of(argument: Any) -> Any:
    if isinstance(argument, list):
        return tvm_ffi.convert([_tensors_of(a) for a in argument])
    return tvm.runtime.tensor(argument)


def _leaves(value: Any) -> list[Any]:
    """The bytes of the tensors, and the extents of the shapes, of a tuple in a tuple."""
    if hasattr(value, "numpy"):
        return [value.numpy().tobytes()]
    if isinstance(value, tvm_ffi.Shape):
        return [tuple(value)]
    return [leaf for field in value for leaf in _leaves(field)]


def faults_of(program: RandomProgram) -> list[str]:
    """What is wrong with the plan of a program; nothing, if all is right."""
    ctypes.CDLL(None).mallopt(_M_PERTURB, POISON)
    planned = PlanMemory(poison=POISON)(program.module)
    faults, undecided = memory_plan_faults(planned)
    found = [f"verifier: {fault}" for fault in faults] + [f"undecided: {text}" for text in undecided]
    got = outputs(planned, program)
    alone = None if program.symbolic else outputs(apart(program.module), program)
    wanted = outputs(program.compact, program)  # last: it changes constants that it changes in place
    if got != wanted:
        found.append("DIFFERS from the unplanned program")
    if alone is not None and alone != wanted:
        found.append("DIFFERS with all storages apart")
    return found


def _try(seeds: list[int], keep: Path | None) -> int:
    register_functions()
    for seed in seeds:
        print(f"{seed} begins", flush=True)
        program = random_program(seed)
        if keep is not None:
            (keep / f"{seed}.py").write_text(program.text)
        for text in faults_of(program):
            print(f"{seed} {text}", flush=True)
        print(f"{seed} done", flush=True)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Tries the programs of the seeds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="write the text of each program there")
    asked = parser.parse_args(arguments)
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    left = list(range(asked.first, asked.first + asked.count))
    printed = Path(tempfile.mkdtemp()) / "printed"
    while left:
        seeds = left[:_FORK]
        ended = run_in_fork(lambda seeds=seeds: _try(seeds, asked.keep), printed, LIMIT_S * len(seeds))  # type: ignore[misc]
        lines = ended.text.splitlines()
        done = [s for s in seeds if f"{s} done" in lines]
        for seed in done:
            texts = [
                line for line in lines if line.startswith(f"{seed} ") and line.split()[1] not in ("begins", "done")
            ]
            counts["undecided"] += any("undecided" in text for text in texts)
            counts["wrong" if any("undecided" not in text for text in texts) else "right"] += 1
            print(*texts, sep="\n", end="\n" if texts else "")
        if len(done) < len(seeds):
            crashed = next(s for s in seeds if s not in done)
            counts["wrong"] += 1
            print(f"{crashed} ENDED with {ended.code}: {' | '.join(lines[-3:])[-400:]}")
            done.append(crashed)
        left = [s for s in left if s not in done]
        sys.stdout.flush()
    total = counts["right"] + counts["wrong"]
    print(
        f"{total} programs, {counts['right']} right, {counts['wrong']} wrong, {counts['undecided']} undecided in part"
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
