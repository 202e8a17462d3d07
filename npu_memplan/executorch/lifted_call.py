"""A call of an Ethos-U delegate as operations on buffers, and the delegate's bytes once these lie elsewhere.

Invariant: constants keep their places; what lies in the fast scratch does, unless `fast_bytes` say that it may move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ethosu.hazards.waits import schedule
from ..ethosu.program.program import BufferRole, NpuBuffer, NpuProgram
from ..ethosu.stream.commands import Command
from ..ethosu.stream.container import build_payload
from ..ethosu.stream.decode import decode
from ..ethosu.stream.encode import encode
from ..ethosu.time import estimate
from ..models.executorch.vela_blocks import ALIGNMENT, SCRATCH_LIMIT_BYTES, slots_data, with_blocks
from ..models.executorch.vela_network import EthosUCall
from ..models.network import Network
from ..models.vela import NpuCall
from ..vela.arguments import LiftError, arguments
from ..vela.lift import lift
from .lowered_for import memories_for

SCRATCH, FAST = 1, 2  # regions
_ANY_SIZE = 1 << 40
Commands: TypeAlias = "tuple[Command, ...]"
_NOTHING: Mapping[str, int] = {}


def with_fast_scratch(one: EthosUCall) -> Network:
    """The call with a memory of its own behind region 2, whose size no file says."""
    if not one.uses_fast_scratch:
        return one.network
    return replace(one.network, operators=(replace(one.call, scratch_fast_bytes=_ANY_SIZE),))


@dataclass(frozen=True, slots=True, eq=False)
class LiftedCall:
    """One call; `contents` are what lies in the scratch, `slots` the buffers of inputs and outputs in their order.

    `fast_bytes`: of the fast scratch, where contents that are no inputs or outputs may lie as well. `limit_bytes`: the
    most bytes of scratch; 0: any number.
    """

    one: EthosUCall
    call: NpuCall
    program: NpuProgram
    contents: tuple[NpuBuffer, ...]
    slots: tuple[str, ...]
    board: str = ""  # whose memories cycles are estimated with; empty: those that the delegate was compiled for
    fast_bytes: int = 0
    limit_bytes: int = 0

    def commands(self, places: Mapping[str, int], fast: Mapping[str, int] = _NOTHING) -> Commands:
        """The stream with the contents at these bytes of the scratch, and of the fast scratch."""

        def where(name: str) -> tuple[int, int]:
            for region, known in ((SCRATCH, places), (FAST, fast)):
                if name in known:
                    return region, known[name]
            buffer = self.program.buffer(name)
            return buffer.original_region, buffer.original_offset

        placed = [self.program.place(index, where) for index in range(len(self.program.operations))]
        return schedule(placed, self.program.accelerator)

    def cycles(self, commands: Iterable[Command] | None = None) -> int:
        """An estimate; of its own stream by default."""
        if commands is None:
            commands = decode(self.call.words, self.call.accelerator.language)
        return estimate(commands, self.call.accelerator, memories_for(self.one, {}, self.board)).total

    def end_bytes(self, places: Mapping[str, int]) -> int:
        """The scratch that the contents need at these places."""
        end = max((places[b.name] + b.size_bytes for b in self.contents if b.name in places), default=0)
        return -(-end // ALIGNMENT) * ALIGNMENT

    def data(self, commands: Commands, places: Mapping[str, int]) -> bytes:
        """The delegate's bytes with that stream; `LiftError` where its blocks cannot state the places."""
        blocks, scratch_bytes = self.one.blocks, self.end_bytes(places)
        if scratch_bytes > SCRATCH_LIMIT_BYTES:
            raise LiftError(
                f"delegate {self.one.delegate} needs {scratch_bytes:,} bytes of scratch; its blocks state "
                f"{SCRATCH_LIMIT_BYTES:,} at most: export a smaller network, or split it"
            )
        old = (*blocks.inputs, *blocks.outputs)
        moved = [replace(slot, offset_bytes=places[name]) for slot, name in zip(old, self.slots, strict=True)]
        count = len(blocks.inputs)
        changed = {
            "cmd_data": build_payload(replace(self.call.payload, words=encode(commands))),
            "scratch_size": scratch_bytes.to_bytes(4, "little"),
            **({"inputs": slots_data(moved[:count])} if count else {}),
            **({"outputs": slots_data(moved[count:])} if len(moved) > count else {}),
        }
        return with_blocks(self.one.method.delegates[self.one.delegate], changed)


def lift_call(one: EthosUCall, board: str = "") -> LiftedCall:
    """`LiftError` where the stream, or what the delegate takes and gives, is not of separate buffers."""
    network = with_fast_scratch(one)
    call = network.npu_calls[0]
    program = lift(network, call)
    named = {argument.tensor: argument.name for argument in arguments(network, call)}
    count = len(one.blocks.inputs) + len(one.blocks.outputs)
    if len(named) != count:
        raise LiftError("it has inputs or outputs that lie over one another")
    unplanned = (BufferRole.CONSTANTS, BufferRole.LUT)
    contents = tuple(b for b in program.buffers if b.original_region == SCRATCH and b.role not in unplanned)
    return LiftedCall(one, call, program, contents, tuple(named[number] for number in range(count)), board)
