"""How far the search for copies is from the best: CP-SAT's bound and copies for the same operations.

    python -m benchmarks.exact_prefetch MODEL.tflite ... [--accelerator NAME] [--grain 16] [--seconds 60]

For each model two programs, Vela's stream and native lowering, whole, their constants read in place, in the bytes of
Vela's arena (or of the plan of its stream); on the clock with memories in turn, of which CP-SAT states the whole
problem (`tests/support/joint_prefetch.py`). A row a program: operations, constants; cycles without copies, of the
search (the work of `--effort normal`'s last round), of CP-SAT's copies on the same clock; CP-SAT's
bound; the search's cycles over it. `*`: CP-SAT has proven its copies the best of its
model. Maps may lie anywhere (their bytes count), as in the search before copies get addresses. Nothing is asserted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.schedule.constants import constant_blocks
from npu_memplan.ethosu.schedule.prefetch.copies import FreeCapacity
from npu_memplan.ethosu.schedule.prefetch.search import WORK, CopySearch, without_copies
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedProgram
from npu_memplan.ethosu.time.assumptions import IN_TURN
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import extract_problem, lower, plan, read
from npu_memplan.request import request
from npu_memplan.stages import Planned
from npu_memplan.tuning.candidate import called_once, occupied_ranges
from npu_memplan.tuning.ranking import Ranking
from npu_memplan.tuning.weight_prefetch import fast_pool, read_in_place
from tests.support.joint_prefetch import solve_jointly


def planned_in_place(model: Path, options: CompileOptions) -> Planned:
    """A program that reads its constants where they are, in the fewest bytes."""
    extracted = read_in_place(extract_problem(lower(read(model, request(options)))))
    return plan(extracted)


def programs(planned: Planned, limit_bytes: int) -> Iterator[tuple[TimedProgram, FreeCapacity]]:
    """The calls of a program on the clock with memories in turn, and the bytes that are free beside their maps."""
    memory_map = planned.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    problem, rank = planned.extracted.problem, Ranking(memory_map)
    fast = fast_pool(problem.pools, memory_map)
    if fast is None:
        return
    for call in called_once(planned.extracted):
        place = call.places(problem, planned.plan).__getitem__
        needs = rank.demand_cache(call.program.accelerator, IN_TURN)
        timed = TimedProgram(call.program, constant_blocks(call.program), place, needs, fast + 1)
        yield timed, FreeCapacity(occupied_ranges(planned, call, fast), limit_bytes, len(timed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--grain", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60, help="of the solver's deterministic time")
    given = parser.parse_args()
    for model in given.models:
        limit = 0
        for compiler in ("vela", "tvm"):
            options = CompileOptions(given.accelerator, npu_compiler=compiler, objective="cycles").resolve_defaults()
            try:
                planned = planned_in_place(model, options)
                if not limit:
                    arenas = planned.extracted.loaded.vela_arena_bytes.values()
                    limit = sum(arenas) or sum(usage.used_bytes for usage in planned.plan.usage)
                for timed, space in programs(planned, limit):
                    print(
                        f"{model.stem[:24]:24} {compiler:5} {row(timed, space, given.grain, given.seconds)}", flush=True
                    )
            except NpuMemplanError as error:
                print(f"{model.stem[:24]:24} {compiler:5} {str(error).splitlines()[0]}", flush=True)


def row(timed: TimedProgram, space: FreeCapacity, grain_cycles: int, seconds: float) -> str:
    """The figures of one program."""
    search = CopySearch(timed, space)
    search.search_on(WORK // 2)
    found = search.best
    joint = solve_jointly(timed, space, grain_cycles, seconds, found)
    return (
        f"{len(timed):4} ops {len(timed.constants):4} constants, in place {without_copies(timed).cycles:>9,} search "
        f"{found.cycles:>9,} CP-SAT {joint.schedule.cycles:>9,}{'*' if joint.optimal else ' '} bound "
        f"{joint.bound_cycles:>9,}; search/bound {found.cycles / joint.bound_cycles:.3f}"
    )


if __name__ == "__main__":
    main()
