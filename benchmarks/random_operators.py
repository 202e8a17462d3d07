"""Random single operators by native lowering, on every configuration of a family, against their reference.

    python -m benchmarks.random_operators --count 1000 [--operators ARG_MAX,TILE]

Invariant: a seed is a model, its operator drawn as in `tests/support/random_networks`; what is on the NPU and called
exact equals tflite-micro (LiteRT where that has no kernel) on two inputs, in a stream with the waits and block
dependencies of a compile, which the NPU model checks. Nothing is planned: buffers lie one behind the other.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import LoweringTarget, lower
from npu_memplan.exactness import Code, Exactness
from npu_memplan.frontend.tflite.description import known_of
from npu_memplan.frontend.tflite.lowered import NpuGroup
from npu_memplan.models.network import CpuOperator
from npu_memplan.models.tflite import read_network
from tests.support.on_model import partition_model, run_program
from tests.support.random_networks import pointwise, shaping, weighted
from tests.support.random_networks.drawing import Drawing
from tests.support.random_networks.verdict import random_inputs

_U85 = tuple(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048))
_TYPES = ("int8", "int8", "int8", "int16", "uint8")
_OPERATORS = {**weighted.OPERATORS, **pointwise.OPERATORS, **shaping.OPERATORS}
_ADDERS = [adder for adder, weight in _OPERATORS.items() for _ in range(weight)]
_TRIES = 200


def draw(seed: int) -> bytes:
    """The model of a seed: one operator of quantised values, as a rule."""
    d = Drawing(seed)
    d.most = 1
    rank = int(d.choice(4, 4, 4, 4, 3, 2))
    shape = [d.extent() for _ in range(rank)]
    if rank == 4:
        shape = [d.batch, d.extent(), d.extent(), d.depth()]
    while not d.fits(shape):
        shape[shape.index(max(shape))] //= 2
    d.values.append(d.any_input(shape, d.choice(*_TYPES)))
    for _ in range(_TRIES):
        if d.room < 1:
            break
        d.choice(*_ADDERS)(d, d.values[0])
    return d.finished().finish()


def trials(seed: int, npus: tuple[str, ...], operators: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Of each NPU: what the model of a seed came to, and its operators or the fault; nothing for a model without any of
    `operators`, where there are some.
    """
    model = draw(seed)
    network = read_network(model, "random")
    drawn = [o.name for o in network.operators if isinstance(o, CpuOperator)]
    kinds = "+".join(drawn)
    if operators and operators.isdisjoint(drawn):
        return
    inputs = [random_inputs(network, 2 * seed + i) for i in range(2)]
    try:
        reference = TFLiteReference(model, "random")
        expected = [reference.run(values) for values in inputs]
    except ReferenceRunError:
        yield "no reference", kinds
        return
    parts = partition_model(model, npus[0])
    step, *others = parts.steps()
    if parts.left or others or not isinstance(step, NpuGroup):  # a reshape alone is no function
        yield "host", kinds
        return
    graph, names = step.graph, [parts.names[index] for index in parts.network.inputs]
    exact = all(
        known_of(Code.LOWERED, network, o).exactness is Exactness.EXACT
        for o in network.operators
        if isinstance(o, CpuOperator)
    )
    for npu in npus:
        for for_cycles in (False, True):
            lowered = lower(graph, accelerator(npu), LoweringTarget(for_cycles=for_cycles))
            for values, wanted in zip(inputs, expected, strict=True):
                given = dict(zip(names, values, strict=True))
                found = run_program(lowered, {name: given[name].copy() for name in graph.inputs}, scheduled=True)
                wrong = sum(
                    int(np.count_nonzero(a.reshape(-1) != b.reshape(-1))) for a, b in zip(found, wanted, strict=True)
                )
                if wrong and exact:
                    raise AssertionError(f"{wrong} elements differ on {npu}")
        yield ("exact" if exact else "unproven"), kinds


def main() -> int:
    """Run a campaign; 1 when there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_operators", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--npus", default=",".join(_U85), help="by commas; one family, the first decides what is taken")
    parser.add_argument("--operators", default="", help="by commas: only models that have one of them")
    options = parser.parse_args()
    operators = frozenset(filter(None, options.operators.split(",")))
    verdicts: Counter[str] = Counter()
    kinds: Counter[tuple[str, str]] = Counter()
    for seed in range(options.first, options.first + options.count):
        try:
            for verdict, names in trials(seed, tuple(options.npus.split(",")), operators):
                verdicts[verdict] += 1
                kinds[verdict, names] += 1
        except (NpuMemplanError, AssertionError, ValueError, IndexError, KeyError, TypeError) as error:
            verdicts["FAULT"] += 1
            print(f"{seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        if seed % 100 == 99:
            print(f"up to {seed}: {dict(verdicts)}", flush=True)
    for (verdict, names), count in sorted(kinds.items()):
        print(f"{verdict:14} {names:40} {count}")
    print(dict(verdicts))
    return int(bool(verdicts["FAULT"]))


if __name__ == "__main__":
    sys.exit(main())
