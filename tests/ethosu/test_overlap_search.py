"""Which buffers of a program may overlap, against every pair compared over all operations."""

from __future__ import annotations

import random

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program.hazards import in_place_distances
from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from npu_memplan.ethosu.stream.fields import ADDRESS_REGISTERS
from npu_memplan.ethosu.stream.isa import Register
from tests.ethosu.test_overlap import Use, distances
from tests.support.hand_made import pool, view

WIDTH = 4  # bytes of a row
Place = tuple[str, int, int]  # buffer, first row, rows


def _copy(source: Place, target: Place) -> NpuOperation:
    """Copies rows of one buffer to another."""
    shape = (target[2], WIDTH, 1)
    made = pool(view("IFM", 0, shape), view("OFM", 0, shape))
    registers = {
        r: v for r, v in made.registers.items() if r not in ADDRESS_REGISTERS and not r.name.endswith("REGION")
    }
    addresses = {Register.IFM_BASE0: (source[0], WIDTH * source[1]), Register.OFM_BASE0: (target[0], WIDTH * target[1])}
    return NpuOperation(made.op, made.parameter, registers, addresses)


def _program(copies: list[tuple[Place, Place]], rows: dict[str, int]) -> NpuProgram:
    roles = {"x": BufferRole.INPUT, "y": BufferRole.OUTPUT}
    buffers = [NpuBuffer(n, WIDTH * r, roles.get(n, BufferRole.FEATURE_MAP)) for n, r in rows.items()]
    return NpuProgram(accelerator("ethos-u55-256"), tuple(buffers), tuple(_copy(a, b) for a, b in copies))


def _random_program(rng: random.Random) -> NpuProgram:
    """Buffers made of rows of earlier ones, in one piece or several, sometimes not to their end."""
    rows = {"x": rng.randint(2, 5)}
    copies: list[tuple[Place, Place]] = []
    for number in range(rng.randint(2, 7)):
        name = "y" if number == 6 else f"b{number}"
        rows[name] = rng.randint(1, 5)
        start = 0
        while start < rows[name]:
            source = rng.choice([n for n in rows if n != name])
            count = rng.randint(1, min(rows[name] - start, rows[source]))
            copies.append(((source, rng.randint(0, rows[source] - count), count), (name, start, count)))
            start += count
            if rng.random() < 0.1:
                break
    return _program(copies, rows)


def _every_pair(program: NpuProgram) -> set[tuple[object, ...]]:
    """Of every buffer born while another one is read for the last time, or has yet to be."""
    live, count = program.live_ranges(), len(program.operations)
    spans = [{(n, w): (s[0][0], s[-1][1]) for n, s, w in program.accesses(i)} for i in range(count)]
    found: set[tuple[object, ...]] = set()
    for target in program.buffers:
        for source in program.buffers:
            if source is target or not {source.name, target.name} <= live.keys():
                continue
            (first, last), (born, dies) = live[source.name], live[target.name]
            dies = count if target.role is BufferRole.OUTPUT else dies
            written = max((i for i in range(count) if (source.name, True) in spans[i]), default=-1)
            outside = target.role is BufferRole.INPUT or source.role is BufferRole.OUTPUT
            if outside or not (first <= born <= last <= dies and written < born):
                continue
            if (target.name, True) not in spans[born]:
                continue
            uses = []
            for i in range(born, last + 1):
                inside = in_place_distances(program.at_zero(i), {"IFM": source.name, "OFM": target.name})
                reads, writes = spans[i].get((source.name, False)), spans[i].get((target.name, True))
                uses.append(Use(reads, writes, inside.get(source.name) if reads and writes else None))
            allowed = distances(uses, source.size_bytes, target.size_bytes)
            if allowed is not None:
                found.add((source.name, target.name, *allowed, born, last))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_all_pairs_that_may_overlap_are_found(seed: int) -> None:
    program = _random_program(random.Random(seed))
    found = [(o.allowed.first, o.allowed.second, o.allowed.lowest, o.allowed.highest, o.operation, o.last)
             for o in find_overlaps(program)]  # fmt: skip
    assert len(found) == len(set(found))
    assert set(found) == _every_pair(program)
