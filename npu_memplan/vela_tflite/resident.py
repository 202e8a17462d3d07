"""Resident constants of a file for TFLite Micro: a second tensor of constants, which firmware may place by itself.

Invariant: the kernel `ethos-u` hands every input after the arena to the driver as a base pointer of its own, so what
the first of them holds is base pointer 3, wherever its bytes are. The file alone is whole: it runs from one memory,
too. The assembly source next to it makes the same file of two sections, whose distance the linker puts into the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import planners, verify
from ..ethosu.schedule.prefetch.reads import GRAIN
from ..ethosu.time import MemoryMap
from ..models.flatbuffer import FlatTable, fields_of, target_at
from ..planners.given import with_bounds
from ..problem import BufferKind, Placement, Plan, Pool
from ..rewrite.pools import pools_of
from ..stages import Planned
from ..tuning.ranking import Ranking

REGION = 3  # of the first input after the arena
_POOL, _UNUSED = "resident", "scratch_fast"
_NODES = 20_000  # of the plan of an arena without them
_LENGTH_BYTES = 4  # of a vector, before its bytes


def in_pool_of_their_own(planned: Planned, memory_map: MemoryMap) -> tuple[Planned, bytes, int]:
    """`planned` with its resident constants in the pool that is base pointer 3, what that pool holds, and the cycles.

    What they leave of the arena is used by the other buffers, unless that makes the program slower.
    """
    rank = Ranking(memory_map)
    problem, plan = planned.extracted.problem, planned.plan
    kept = {b.name: b for b in problem.buffers if b.kind is BufferKind.RESIDENT}
    if not kept:
        return planned, b"", rank(planned)[0]
    own = tuple(pool.name for pool in problem.pools)
    (home,) = {place.pool for place in plan.placements if place.buffer in kept}
    between = [Pool(_UNUSED)] * (REGION - 1 - len(own))  # base pointer 2, where it is the arena's again
    problem = replace(
        problem,
        pools=(*problem.pools, *between, Pool(_POOL)),
        buffers=tuple(replace(b, pools=(_POOL,) if b.name in kept else b.pools or own) for b in problem.buffers),
    )
    placements, at = [], 0
    for place in plan.placements:
        if place.buffer in kept:
            place = Placement(place.buffer, _POOL, at)
            at += -(-kept[place.buffer].size_bytes // GRAIN) * GRAIN
        placements.append(place)
    moved = with_bounds(problem, Plan(tuple(placements), (), plan.status, plan.planner, plan.seed))
    again = planners.plan(problem, plan.planner, seed=plan.seed, node_budget=_NODES, incumbent=moved)
    there = replace(memory_map, regions={**memory_map.regions, REGION: memory_map.regions[1 + own.index(home)]})
    extracted, rank = replace(planned.extracted, problem=problem), Ranking(there)
    found = [Planned(extracted, one) for one in (again, moved)]
    best = found[0] if rank(found[0])[0] <= rank(found[1])[0] else found[1]
    verify.check_own(problem, best.plan)
    held, _ = pools_of(problem, best.plan, extracted.program)
    return best, held[-1].image().tobytes(), rank(best)[0]


@dataclass(frozen=True, slots=True)
class Distance:
    """Where a file says how far after that place its vector of resident bytes, the last of the file, begins."""

    at: int  # of the 32-bit number
    start: int  # of the vector: its length, then its bytes
    stop: int


def distance_in(content: bytes, resident: bytes) -> Distance:
    """The place in the file `content`, one of whose buffers holds `resident`."""
    slot = next(field.slot for field in fields_of("Model") if field.name == "Buffers")
    data = next(field.slot for field in fields_of("Buffer") if field.name == "Data")
    for buffer in FlatTable(content, target_at(content, 0)).tables(slot):
        span = buffer.byte_span(data)
        if content[span.start : span.stop] == resident:
            assert not content[span.stop :].strip(b"\0"), "nothing lies behind them"
            return Distance(buffer.place(data), span.start - _LENGTH_BYTES, span.stop)
    raise AssertionError("the file was written with its resident constants")


def assembly(name: str, file: str, content: bytes, resident: bytes) -> str:
    """A source for GNU assemblers (GCC, Clang, Arm Compiler 6): the model as two sections.

    The distance is a number of 32 bits that wraps, as pointers of these cores do, so either section may be first.
    """
    place = distance_in(content, resident)
    upper = name.upper()
    lead = -_LENGTH_BYTES % 16
    return f"""/* {name}: a model for TFLite Micro whose resident constants lie in a section of their own.
   Made by npu_memplan; preprocess and assemble it where {file} is found (-I or -Wa,-I).

   The sections are yours to choose: -D{upper}_SECTION=..., -D{upper}_RESIDENT_SECTION=...
   The second one has {len(resident):,} bytes, which lie in fast memory before the first Invoke: start-up code copies
   sections .data* from flash there, as it does for variables. Do not pass the model to flatbuffers' verifier.

   extern const unsigned char {name}_model[];  tflite::GetModel({name}_model) */
#ifndef {upper}_SECTION
#define {upper}_SECTION .rodata.npu_memplan.{name}
#endif
#ifndef {upper}_RESIDENT_SECTION
#define {upper}_RESIDENT_SECTION .data.npu_memplan.{name}
#endif
#define NPU_MEMPLAN_TEXT(words) #words
#define NPU_MEMPLAN_NAME(section) NPU_MEMPLAN_TEXT(section)

  .section NPU_MEMPLAN_NAME({upper}_SECTION), "a"
  .balign 16
  .global {name}_model
{name}_model:
  .incbin "{file}", 0, {place.at}
  .long .Lresident - .
  .incbin "{file}", {place.at + 4}, {place.start - place.at - 4}

  .section NPU_MEMPLAN_NAME({upper}_RESIDENT_SECTION), "aw"
  .balign 16
  .skip {lead}
  .global {name}_resident
{name}_resident:
.Lresident:
  .incbin "{file}", {place.start}, {place.stop - place.start}

#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", %progbits
#endif
"""
