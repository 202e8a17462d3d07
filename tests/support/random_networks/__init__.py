"""Random networks as TFLite files: of one to eight operators of every type, rank, broadcast and quantisation, or, from
seed `FIRST_STRUCTURE` on, of the structures that real networks have; from `FIRST_BRANCHING` on, of many branches.

Invariant: a seed is a file, byte for byte; what comes out obeys TFLite's rules, so its reference takes it as a rule.
"""

from __future__ import annotations

from npu_memplan.exactness import EXACT, LIBRARY, Code
from tests.support.operator_table import row
from tests.support.random_networks import branching, pointwise, shaping, structures, weighted
from tests.support.random_networks.drawing import MOST_OPERATORS, Drawing, Value
from tests.support.random_values import RANGE
from tests.support.tflite_builder import ModelBuilder

__all__ = ["FIRST_BRANCHING", "FIRST_STRUCTURE", "MOST_OPERATORS", "draw", "network"]

FIRST_STRUCTURE, FIRST_BRANCHING = 20_000_000, 30_000_000

_TRIES = 200
_OPERATORS = {**weighted.OPERATORS, **pointwise.OPERATORS, **shaping.OPERATORS}
_ADDERS = [adder for adder, weight in _OPERATORS.items() for _ in range(weight)]
_WEIGHTED = [adder for adder, weight in weighted.OPERATORS.items() for _ in range(weight)]
_TYPES = ("int8",) * 9 + ("int16",) * 4 + ("uint8",) * 3 + ("float32",) * 2 + ("int32", "int64", "bool")


def network(seed: int) -> bytes:
    """The file of a seed."""
    return draw(seed).finish()


def draw(seed: int) -> ModelBuilder:
    """The network of a seed."""
    if seed >= FIRST_BRANCHING:
        return branching.draw(seed)
    return structures.draw(seed) if seed >= FIRST_STRUCTURE else _draw_operators(seed)


def _draw_operators(seed: int) -> ModelBuilder:
    d = Drawing(seed)
    _begin(d)
    for _ in range(_TRIES):
        if d.room < 1:
            break
        latest = d.values[-4:] if d.chance(0.8) else d.values
        adders = _WEIGHTED if d.chance(0.3) else _ADDERS
        d.choice(*adders)(d, d.choice(*latest))
    return d.finished() if d.b.operators else _draw_operators(seed + (1 << 40))


def _begin(d: Drawing) -> None:
    """The first value: an input, or what an operator made that only `operator_table` has."""
    dtype = d.choice(*_TYPES)
    if d.chance(0.1):
        _table_row(d, dtype)
    if d.values:
        return
    rank = int(d.choice(4, 4, 4, 4, 4, 3, 2, 2, 1, 5))
    shape = [d.extent() for _ in range(rank)]
    if rank == 4:
        shape = [d.batch, d.extent(), d.extent(), d.depth()]
    while not d.fits(shape):
        shape[shape.index(max(shape))] //= 2
    d.values.append(d.any_input(shape, dtype))


def _table_row(d: Drawing, dtype: str) -> None:
    """A model of `operator_table` at the beginning: its results are values of the network."""
    kinds = EXACT[Code.HOST][dtype] | (LIBRARY.keys() if dtype == "float32" else frozenset())
    made = row(d.choice(*sorted(kinds)), dtype).make(d.rng)
    if any(made.tensors[i].dtype in RANGE and made.tensors[i].scale is None for i in made.outputs):
        return  # a CAST to stored numbers without a scale, which no other operator takes
    d.b = made
    d.inputs, d.read = list(d.b.inputs), {i for o in d.b.operators for i in o[1] if i >= 0}
    for index in d.b.outputs:
        t = d.b.tensors[index]
        d.values.append(Value(index, t.shape, t.dtype, t.scale, t.zero_point, 50.0))
