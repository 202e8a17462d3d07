"""The copies of a program stated at once for OR-tools' CP-SAT: when each transfer starts, of which constants, and where
the copies lie. A yardstick for the searches: what no copies of these operations go below, and copies that come near it.

Times are whole numbers of `grain_cycles`; durations are rounded down. Operation i of the program, constant k:

- *Variables.* `copied[k]`; `held[k]`, the first operation while which its copy holds bytes, up to its last reader;
  `at[k]`, its first byte in units of 16; when each of its transfers begins. Of each kernel, when it starts, has
  multiplied, put out and written, and when it passes each memory.
- *Constraints.* Those of the clock for kernels in order (`time/timeline.py`), in the form that `copy_moment` gives: a
  kernel starts behind the copy that it reads, behind the blocks of the one before that it depends on, and not before
  all but `max_outstanding_kernels` have ended; it multiplies, puts out and writes behind the one before and behind
  what passes its memories. A memory serves one transfer or one kernel at a time. No transfer begins before the
  kernels end that run before `held[k]`. Copies and maps overlap nowhere in (operation, byte); of maps without places
  (`FreeCapacity`) the bytes count.
- *Objective.* The end of the last kernel and transfer.

Invariant: each constraint holds for every schedule on the clock of `IN_TURN`; what is left out (commands, the order in
which the stream starts transfers) only makes that later. So the bound is one of that clock, for any copies and the
operations in their forms; what is found is replayed on the clock, and counts as that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npu_memplan.errors import RefusalError
from npu_memplan.ethosu.schedule.prefetch.copies import Copy, DmaSchedule, FreeCapacity
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedProgram
from npu_memplan.ethosu.time import ResourceUse
from tests.support.prefetch_oracle import replayed

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntervalVar, IntVar

_UNIT = 16  # bytes
_UNFINISHED = 2  # operations before a copy that may have begun and not ended: at most, `Copy`


class SolverError(RefusalError):
    """The solver is not installed, or found nothing in its time."""


@dataclass(frozen=True, slots=True)
class JointSchedule:
    """What the solver knows after its time."""

    bound_cycles: int  # no copies of these operations take fewer
    model_cycles: int  # of the best copies found, by the model
    schedule: DmaSchedule  # these copies on the clock
    optimal: bool  # whether the two meet: the copies are the best that the model has


def solve_jointly(
    timed: TimedProgram, space: FreeCapacity, grain_cycles: int, seconds: float, hint: DmaSchedule | None = None
) -> JointSchedule:
    """The best copies of the model in free bytes. `timed` is of a clock with memories in turn; `hint`: copies to begin
    with.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SolverError("the exact schedule needs OR-tools: pip install 'npu_memplan[exact]'") from error
    model = cp_model.CpModel()
    stated = _Stated(model, timed, space, grain_cycles)
    if hint is not None:
        stated.begin_with(hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = seconds
    solver.parameters.num_workers = 1  # deterministic
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise SolverError(f"no schedule was found in a time of {seconds:g}; give the solver more, or a coarser grain")
    found = replayed(timed, stated.copies(solver))
    bound = int(solver.best_objective_bound) * grain_cycles
    made = int(solver.objective_value) * grain_cycles
    return JointSchedule(bound, made, found, status == cp_model.OPTIMAL)


class _Kernel:
    """When a kernel starts, has multiplied, put out and written."""

    def __init__(self, time: Callable[[str], IntVar], index: int, needs: tuple[ResourceUse, ResourceUse]) -> None:
        self.needs = needs  # with its constants in place, and from a copy
        self.starts, self.multiplied = time(f"starts {index}"), time(f"multiplied {index}")
        self.put_out, self.written = time(f"put out {index}"), time(f"written {index}")


class _Stated:
    """The model of a program."""

    def __init__(self, model: CpModel, timed: TimedProgram, space: FreeCapacity, grain_cycles: int) -> None:
        self._model, self._timed, self._space, self._grain = model, timed, space, grain_cycles
        constants = timed.constants
        self._horizon = replayed(timed, ()).cycles // grain_cycles + 1
        self._copied = [model.new_bool_var(f"copied {k}") for k in range(len(constants))]
        self._held = [model.new_int_var(0, c.readers[0], f"held {k}") for k, c in enumerate(constants)]
        self._at = [model.new_int_var(0, self._last_unit(k), f"at {k}") for k in range(len(constants))]
        self._passing: dict[str, list[IntervalVar]] = {}  # by memory
        self._last = self._time("last")
        steps = {index: timed.step(index) for index in range(len(timed))}
        self._kernels = {
            index: _Kernel(self._time, index, (step.slow, step.fast))
            for index, step in steps.items()
            if not step.slow.is_transfer
        }
        self._order = list(self._kernels)
        for number, index in enumerate(self._order):
            self._state_kernel(number, index)
        self._starts = [self._state_copy(constant) for constant in range(len(constants))]
        for intervals in self._passing.values():
            model.add_no_overlap(intervals)
        self._state_places()
        model.minimize(self._last)

    def _time(self, name: str) -> IntVar:
        return self._model.new_int_var(0, self._horizon, name)

    def _grains(self, cycles: float) -> int:
        return int(cycles // self._grain)

    def _units(self, constant: int) -> int:
        return -(-self._timed.constants[constant].size_bytes // _UNIT)

    def _last_unit(self, constant: int) -> int:
        return max(0, self._space.limit_bytes // _UNIT - self._units(constant))

    def _state_kernel(self, number: int, index: int) -> None:
        """A kernel behind those before it, in each of its forms."""
        model, kernel, constant = self._model, self._kernels[index], self._timed.reads.get(index)
        most = self._timed.program.accelerator.max_outstanding_kernels
        model.add(self._last >= kernel.written)
        model.add(kernel.starts >= (self._kernels[self._order[number - most]].written if number >= most else 0))
        for copied in (False, True) if constant is not None else (False,):
            taken = [] if constant is None else [self._copied[constant] if copied else ~self._copied[constant]]
            self._state_work(kernel, kernel.needs[copied], taken)
            self._state_memories(kernel, kernel.needs[copied], taken, f"{index} {copied}")
            for behind in (False, True) if number else ():
                self._state_order(self._order[number - 1], index, (behind, copied), taken)

    def _state_work(self, kernel: _Kernel, needs: ResourceUse, taken: list[Any]) -> None:
        """What it takes by itself."""
        traffic, blocks, jobs = needs.traffic, needs.blocks, needs.jobs
        first = traffic.input_latency + traffic.input_asking / jobs + needs.multiplying
        fetched = max((sum(pair) for pair in traffic.inputs), default=0.0) + needs.multiplying / jobs
        weighed = max((sum(pair) for pair in traffic.weights), default=0.0)  # they may be asked for before it starts
        for later, sooner, cycles in (
            (kernel.multiplied, kernel.starts, max(first, fetched)),
            (kernel.multiplied, 0, weighed),
            (kernel.put_out, kernel.multiplied, needs.output / blocks),
            (kernel.written, kernel.put_out, traffic.output_cycles / blocks),
        ):
            self._model.add(later >= sooner + self._grains(cycles)).only_enforce_if(taken)

    def _state_memories(self, kernel: _Kernel, needs: ResourceUse, taken: list[Any], name: str) -> None:
        """It has written when it has passed each memory, and put out all but the last block's writes before."""
        model, late = self._model, self._grains(needs.traffic.output_cycles / needs.blocks) + 1
        for memory, occupied, latency in needs.traffic.memories:
            begins, length = self._time(f"passes {memory} {name}"), self._grains(occupied)
            there = taken[0] if taken else self._model.new_constant(1)
            interval = model.new_optional_interval_var(begins, length, begins + length, there, f"{memory} {name}")
            self._passing.setdefault(memory, []).append(interval)
            passed = begins + self._grains(occupied + latency)
            model.add(begins >= kernel.starts).only_enforce_if(taken)
            model.add(kernel.written >= passed).only_enforce_if(taken)
            model.add(kernel.put_out + late >= passed).only_enforce_if(taken)

    def _state_order(self, before: int, index: int, copied: tuple[bool, bool], taken: list[Any]) -> None:
        """It depends on the blocks of the kernel before it, and each unit works on one kernel after the other."""
        model, one, other = self._model, self._kernels[before], self._kernels[index]
        read = self._timed.reads.get(before)
        if copied[0] and read is None:
            return
        if read is not None:
            taken = [*taken, self._copied[read] if copied[0] else ~self._copied[read]]
        first, needs = one.needs[copied[0]], other.needs[copied[1]]
        depends, blocks = min(needs.depends, first.blocks), first.blocks
        fetching = max((asking for _, asking in first.traffic.inputs), default=0.0)
        weighed = max((sum(pair) for pair in needs.traffic.weights), default=0.0)
        for later, sooner, cycles in (
            (other.starts, one.starts, fetching),
            (other.multiplied, one.multiplied, weighed),
            (other.multiplied, one.put_out, needs.multiplying),
            (other.put_out, one.put_out, needs.output + needs.multiplying / needs.blocks),
            (other.written, one.written, needs.traffic.output_cycles),
        ):
            model.add(later >= sooner + self._grains(cycles)).only_enforce_if(taken)
        # rounded: blocks of the one before, of which `depends` may be unfinished, take alike
        model.add(
            blocks * other.starts + blocks - 1 >= (blocks - depends) * one.written + depends * one.starts
        ).only_enforce_if(taken)

    def _state_copy(self, constant: int) -> list[IntVar]:
        """Its transfers, behind the kernels that have to leave its bytes and before its first reader; their begins."""
        model, timed, there = self._model, self._timed, self._copied[constant]
        block = timed.constants[constant]
        first = block.readers[0]
        freed = self._time(f"freed {constant}")
        model.add_element(self._held[constant], [self._left(held) for held in range(first + 1)], freed)
        begins: list[IntVar] = []
        ready: Any = freed
        for number, (start, stop) in enumerate(block.spans):
            traffic = timed.transfer(stop - start).traffic
            begun = self._time(f"transfer {constant} {number}")
            model.add(begun >= ready).only_enforce_if(there)
            begins.append(begun)
            ready = self._time(f"arrived {constant} {number}")
            for memory, occupied, latency in traffic.memories:
                passes, length = self._time(f"passes {memory} of {constant} {number}"), self._grains(occupied)
                interval = model.new_optional_interval_var(passes, length, passes + length, there, "")
                self._passing.setdefault(memory, []).append(interval)
                model.add(passes >= begun).only_enforce_if(there)
                model.add(ready >= passes + self._grains(occupied + latency)).only_enforce_if(there)
        model.add(self._kernels[first].starts >= ready).only_enforce_if(there)
        return begins

    def _left(self, held: int) -> IntVar | int:
        """When the kernels have written that run before operation `held`; a copy waits for one less by each transfer of
        the program among the operations that it does not wait for.
        """
        behind = range(held, min(held + _UNFINISHED, len(self._timed)))
        kernels = sum(index < held for index in self._order)
        left = kernels - 1 - sum(index not in self._kernels for index in behind)
        return self._kernels[self._order[left]].written if left >= 0 else 0

    def _state_places(self) -> None:
        """Copies beside the maps: in bytes at each operation, and where maps have places, in rectangles."""
        model, timed = self._model, self._timed
        lives, places, sizes = [], [], []
        for k, constant in enumerate(timed.constants):
            stop, units, there = constant.readers[-1] + 1, self._units(k), self._copied[k]
            length = model.new_int_var(1, stop, f"life {k}")
            lives.append(model.new_optional_interval_var(self._held[k], length, stop, there, f"life {k}"))
            places.append(model.new_optional_interval_var(self._at[k], units, self._at[k] + units, there, f"place {k}"))
            sizes.append(units)
            if units * _UNIT > self._space.limit_bytes:
                model.add(there == 0)
        capacity = self._space.limit_bytes // _UNIT
        maps = [-(-int(used) // _UNIT) for used in self._space.used]
        fixed = [model.new_fixed_size_interval_var(i, 1, f"maps {i}") for i in range(len(timed))]
        model.add_cumulative([*lives, *fixed], [*sizes, *(min(capacity, used) for used in maps)], capacity)
        if not self._space.placed:
            return
        model.add_no_overlap_2d(lives, places)
        for number, (first, last, start, stop) in enumerate(self._space.held.tolist()):
            for k, constant in enumerate(timed.constants):
                if first <= constant.readers[-1]:
                    self._keep_apart(k, number, last, start // _UNIT, -(-stop // _UNIT), first)

    def _keep_apart(self, k: int, number: int, last: int, start: int, stop: int, first: int) -> None:
        """A copy from what lies in units `[start, stop)` while operations `[first, last]` run."""
        model, there = self._model, self._copied[k]
        below, above = (model.new_bool_var(f"{way} {k} {number}") for way in ("below", "above"))
        model.add(self._at[k] + self._units(k) <= start).only_enforce_if(below)
        model.add(self._at[k] >= stop).only_enforce_if(above)
        choices = [~there, below, above]
        if last < self._timed.constants[k].readers[0]:
            behind = model.new_bool_var(f"behind {k} {number}")
            model.add(self._held[k] > last).only_enforce_if(behind)
            choices.append(behind)
        model.add_bool_or(choices)

    def begin_with(self, schedule: DmaSchedule) -> None:
        """Hint at copies that are known."""
        sent = {copy.constant: copy for copy in schedule.copies}
        for k in range(len(self._timed.constants)):
            self._model.add_hint(self._copied[k], k in sent)
            if k in sent:
                self._model.add_hint(self._held[k], max(0, sent[k].before - sent[k].unfinished))
                self._model.add_hint(self._at[k], sent[k].at // _UNIT)

    def copies(self, solver: CpSolver) -> tuple[Copy, ...]:
        """The copies of a solution, in the order of their transfers."""
        sent = [k for k, there in enumerate(self._copied) if solver.boolean_value(there)]
        found: list[Copy] = []
        for k in sorted(sent, key=lambda k: (solver.value(self._starts[k][0]), k)):
            held, first = solver.value(self._held[k]), self._timed.constants[k].readers[0]
            before = max(min(first, held + _UNFINISHED), found[-1].before if found else 0)
            before = min(before, first)
            found.append(Copy(k, before, solver.value(self._at[k]) * _UNIT, min(_UNFINISHED, before - held)))
        return tuple(sorted(found, key=lambda copy: copy.before))
