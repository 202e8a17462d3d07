"""Makes a network that shows something as small as still shows it.

Invariant: what is left is a valid network of operators of the first one, with their tensors as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tests.support.tflite_builder import ModelBuilder


def part(b: ModelBuilder, kept: Collection[int]) -> ModelBuilder:
    """The operators `kept` alone: what others made is an input, what nobody reads any more an output."""
    found = ModelBuilder(b.subgraphs)
    found.tensors = list(b.tensors)
    found.operators = [operator for i, operator in enumerate(b.operators) if i in kept]
    made = [i for operator in found.operators for i in operator[2]]
    read = list(dict.fromkeys(i for operator in found.operators for i in operator[1] if i >= 0))
    given = [i for i in read if i not in made and b.tensors[i].data is None and not b.tensors[i].is_variable]
    return found.made(given, [i for i in made if i not in read or i in b.outputs])


def reduced(b: ModelBuilder, shown: Callable[[ModelBuilder], str]) -> ModelBuilder:
    """As few operators as still show what `b` shows; `shown` is empty where nothing is to be seen."""
    wanted = shown(b)
    if not wanted:
        return b
    kept = list(range(len(b.operators)))
    smaller = True
    while smaller and len(kept) > 1:
        smaller = False
        for operator in list(kept):
            rest = [i for i in kept if i != operator]
            if rest and shown(part(b, rest)) == wanted:
                kept, smaller = rest, True
    return part(b, kept)
