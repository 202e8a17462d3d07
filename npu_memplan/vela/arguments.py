"""The parameters of an NPU call: the tensors that its stream reads and writes.

Invariant: each tensor or state comes once, at an address that the stream knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RefusalError
from ..ethosu.program.program import BufferRole
from ..models.network import Network
from ..models.vela import HeldBytes, NpuCall


class LiftError(RefusalError):
    """A command stream cannot be read as a program over buffers."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of an NPU call: the tensor behind it and where the stream expects it."""

    name: str
    role: BufferRole
    tensor: int
    region: int
    address: int
    size_bytes: int
    part: HeldBytes  # which of its bytes hold something before the call and after it, by the stream's addresses


def arguments(network: Network, call: NpuCall) -> tuple[Argument, ...]:
    """The call's parameters: inputs and states in its order, then outputs.

    Each state comes once, however many versions of it the compiler lists among its outputs.
    """
    found: list[Argument] = []
    seen: set[tuple[BufferRole, int, int, int]] = set()
    counts: dict[BufferRole, int] = {}
    listed = [(i, a, True) for i, a in zip(call.inputs, call.input_addresses, strict=True)]
    listed += [(i, a, False) for i, a in zip(call.outputs, call.output_addresses, strict=True)]
    for index, (region, address), is_input in listed:
        tensor = network.tensors[index]
        role = BufferRole.INPUT if is_input else BufferRole.OUTPUT
        whole = ((address, address + tensor.size_bytes),)
        part = call.parts.get(index) or HeldBytes(whole, whole, updated=False)
        if tensor.is_variable or part.updated:
            role = BufferRole.STATE
        key = (role, region, address, tensor.size_bytes)
        if key in seen:
            continue
        seen.add(key)
        if address < 0:
            raise LiftError(
                f"{network.name}: tensor {index} {tensor.name!r} is an argument of NPU call {call.index} "
                "but has no arena offset; compile the network with Vela again"
            )
        number = counts[role] = counts.get(role, -1) + 1
        found.append(Argument(f"{role.value}{number}", role, index, region, address, tensor.size_bytes, part))
    return tuple(found)
