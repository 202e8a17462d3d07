"""Outputs of one network that are inputs of another, at the same bytes.

Invariant: both have one size and nothing else shares their bytes; the network that reads them never writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..artifact.application import ApplicationError, named, tensor_buffers
from ..artifact.model import Artifact
from ..frontend.attributes import quantised
from ..problem import Buffer, BufferKind, Problem
from ..stages import Planned
from .joint import Connection


class Ends(NamedTuple):
    """What of a network another one may be connected with: names of tensors -> buffers."""

    problem: Problem
    outputs: Mapping[str, str]
    inputs: Mapping[str, str]


def ends_of(network: Planned | Artifact) -> Ends:
    """The inputs and outputs that are whole buffers."""
    if isinstance(network, Artifact):
        outputs, inputs = (tensor_buffers(network, kind) for kind in (BufferKind.OUTPUT, BufferKind.INPUT))
        return Ends(network.problem, outputs, inputs)
    main, program = network.extracted.loaded.module["main"], network.extracted.program
    named_outputs = zip(quantised(main, "output"), (view.tensor.name for view in program.results), strict=True)
    named_inputs = zip(quantised(main, "input"), (tensor.name for tensor in program.inputs), strict=False)
    return Ends(
        network.extracted.problem,
        {tensor.name: buffer for tensor, buffer in named_outputs},
        {tensor.name: buffer for tensor, buffer in named_inputs},
    )


def connect(
    wanted: Collection[tuple[str, str]], networks: Mapping[str, Ends], together: Collection[tuple[str, str]]
) -> tuple[Connection, ...]:
    """The buffers of pairs (NETWORK:OUTPUT, NETWORK:INPUT); `ApplicationError` where one cannot be the other."""
    found: list[Connection] = []
    for output, given in wanted:
        made = _found(output, networks, BufferKind.OUTPUT)
        reads = _found(given, networks, BufferKind.INPUT)
        (one, first), (other, second) = made, reads
        text = f"--connect {output}={given}"
        if one == other:
            raise ApplicationError(f"{text} is within one network; name two")
        if any({one, other} == set(pair) for pair in together):
            raise ApplicationError(
                f"{text}: the networks may run together, so one would be read while it is written; leave --together "
                f"{one},{other} out, or copy the output"
            )
        if first.size_bytes != second.size_bytes:
            raise ApplicationError(
                f"{text}: the output has {first.size_bytes:,} bytes, the input {second.size_bytes:,}; both must be one"
            )
        for network, buffer in (made, reads):
            if any(buffer.name == member for group in networks[network].problem.aliases for member, _ in group.members):
                raise ApplicationError(
                    f"{text}: {buffer.name} has its bytes in common with another tensor of {network}; copy the output"
                )
        if any(named(other, second.name) == known for _, known in found):
            raise ApplicationError(f"{text}: the input is given two outputs; name one")
        found.append((named(one, first.name), named(other, second.name)))
    return tuple(found)


def _found(text: str, networks: Mapping[str, Ends], kind: BufferKind) -> tuple[str, Buffer]:
    network, _, tensor = text.partition(":")
    if network not in networks:
        raise ApplicationError(f"{text!r} names none of the networks, which are: {', '.join(networks)}")
    ends = networks[network]
    known = ends.inputs if kind is BufferKind.INPUT else ends.outputs
    planned = {b.name: b for b in ends.problem.buffers if b.kind is kind}
    if known.get(tensor) not in planned:
        names = ", ".join(name for name, buffer in known.items() if buffer in planned) or "none that is a whole buffer"
        raise ApplicationError(f"{network} has no {kind.value} {tensor!r} to connect; it has: {names}")
    return network, planned[known[tensor]]
