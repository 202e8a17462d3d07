"""Operators whose tensors contradict each other are refused by name: nothing that nobody expects is raised."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from npu_memplan.errors import NpuMemplanError
from npu_memplan.exactness import EXACT, Code
from npu_memplan.frontend.host_ops.operator import lower_operator
from npu_memplan.models.network import Network
from npu_memplan.models.tensor import Tensor
from npu_memplan.models.tflite import read_network
from tests.support.operator_table import row
from tests.support.single_operators import all_cases

CASES = 4000
_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")


def drawn_shape(shape: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    found, kind = list(shape), rng.randrange(5)
    if kind == 0 and found:
        del found[rng.randrange(len(found))]
    elif kind == 1:
        found.insert(rng.randrange(len(found) + 1), rng.choice((0, 1, 2, 5)))
    elif kind == 2 and found:
        found[rng.randrange(len(found))] = rng.choice((0, 1, 2, 3, 7, 300))
    elif kind == 3:
        rng.shuffle(found)
    else:
        found = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(6))]
    return tuple(found)


def damaged(tensor: Tensor, rng: random.Random) -> Tensor:
    kind = rng.randrange(4)
    if kind < 2:
        changed = replace(tensor, shape=drawn_shape(tensor.shape, rng))
        if tensor.data is None:
            return changed
        return replace(changed, data=np.resize(np.append(tensor.data, np.uint8(1)), changed.size_bytes))
    if kind == 2 and tensor.data is None:
        return replace(tensor, dtype=rng.choice(_DTYPES))
    if kind == 2 and tensor.data is not None and tensor.data.size:
        data = tensor.data.copy()
        data[rng.randrange(data.size)] = rng.randrange(256)
        return replace(tensor, data=data)
    return replace(tensor, scales=rng.choice([(), tensor.scales[:1] * 3]))


def networks() -> list[Network]:
    models = [case.build() for case in list(all_cases())[::3]]
    models += [row(kind, dtype).build() for dtype in EXACT[Code.HOST] for kind in sorted(EXACT[Code.HOST][dtype])]
    return [read_network(model, "m") for model in models]


def test_what_contradicts_itself_is_refused_with_a_reason() -> None:
    rng, known, outcomes = random.Random(5), networks(), {True: 0, False: 0}
    for _ in range(CASES):
        network = rng.choice(known)
        tensors = list(network.tensors)
        for _ in range(rng.choice((1, 1, 2))):
            index = rng.randrange(len(tensors))
            tensors[index] = damaged(tensors[index], rng)
        network = replace(network, tensors=tuple(tensors))
        for operator in network.cpu_operators:
            try:
                lower_operator(network, operator)  # strict: an InternalError for what it does not name
            except NpuMemplanError:
                outcomes[False] += 1
            else:
                outcomes[True] += 1
    assert min(outcomes.values()) > CASES / 10
