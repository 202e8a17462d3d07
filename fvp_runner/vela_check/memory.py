"""What a file needs of memory: regions, arena, and the board's sizes.

Invariant: what a stream touches is read from the stream, not believed from the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from npu_memplan.models.network import Network
from npu_memplan.models.vela import NpuCall
from npu_memplan.problem import Agent
from npu_memplan.sizes import format_size
from npu_memplan.target_data import Board, BoardMemory

from ..npu_model.checks.footprint import extents
from ..npu_model.errors import NpuModelError
from ..npu_model.model import NpuModel
from .remark import Level, Remark

_NAMES = {0: "constants", 1: "arena", 2: "fast scratch"}


def regions(network: Network) -> Iterator[Remark]:
    """Whether every base pointer that a stream uses is there, and holds what the stream touches."""
    for call in network.npu_calls:
        model = NpuModel(call.accelerator, checks=False)
        try:
            reach = extents(model.prepare(call.words))
        except NpuModelError as error:
            yield Remark(Level.WRONG, "stream", f"operator {call.index}: {error}")
            continue
        sizes = _sizes(network, call)
        found = list(_too_far(call, reach, sizes))
        yield from found
        if not found:
            names = _NAMES if call.resident is None else {**_NAMES, 3: "resident constants"}
            used = ", ".join(f"{names.get(r, f'region {r}')} {format_size(n)}" for r, n in sorted(reach.items()) if n)
            yield Remark(Level.RIGHT, "regions", f"operator {call.index} touches {used}, all within what it is given")


def _sizes(network: Network, call: NpuCall) -> dict[int, int]:
    """Region -> bytes that the operator's tensors give it."""
    tensors = network.tensors
    sizes = {0: call.read_only.nbytes, 1: call.scratch_bytes, 2: call.scratch_fast_bytes or call.scratch_bytes}
    given = [tensors[index].size_bytes for index in (*call.inputs, *call.outputs)]
    if call.resident is not None:
        given.insert(0, call.resident.nbytes)
    sizes |= dict(enumerate(given, 3))
    return {region: size for region, size in sizes.items() if region < 8}


def _too_far(call: NpuCall, reach: dict[int, int], sizes: dict[int, int]) -> Iterator[Remark]:
    for region, end in sorted(reach.items()):
        if not end:
            continue
        name = _NAMES.get(region, f"region {region}")
        if region not in sizes:
            yield Remark(
                Level.WRONG, "regions",
                f"operator {call.index} uses region {region}, but its tensors give base pointers 0 to {max(sizes)}: "
                "the NPU reads at an address that was never set",
            )  # fmt: skip
        elif end > sizes[region]:
            yield Remark(
                Level.WRONG, "arena" if region == 1 else "regions",
                f"operator {call.index} touches {end:,} bytes of region {region} ({name}), the file gives it "
                f"{sizes[region]:,}: {end - sizes[region]:,} too few",
            )  # fmt: skip


def arena(network: Network, given_bytes: int | None) -> Iterator[Remark]:
    """Whether planned tensors are in the arena that the NPU is given, and what of an arena is known to be needed."""
    fast = {call.scratch_fast_tensor for call in network.npu_calls}
    ends = {
        t.index: t.arena_offset + t.size_bytes for t in network.tensors if t.arena_offset >= 0 and t.index not in fast
    }
    least = max(ends.values(), default=0)
    scratch = {call.scratch_tensor for call in network.npu_calls}
    promised = max((ends.get(t, 0) for t in scratch), default=0)
    outside = [
        network.tensors[index]
        for call in network.npu_calls
        for index in (*call.inputs, *call.outputs)
        if index in ends and ends[index] > promised
    ]
    for tensor in {t.index: t for t in outside}.values():
        yield Remark(
            Level.WRONG, "arena",
            f"tensor {tensor.index} {tensor.name!r} ends at byte {ends[tensor.index]:,} of the arena, the NPU is given "
            f"{promised:,}: {ends[tensor.index] - promised:,} too few",
        )  # fmt: skip
    if given_bytes is not None and given_bytes < least:
        yield Remark(
            Level.WRONG, "arena",
            f"the arena has {given_bytes:,} bytes, the planned tensors need {least:,}: {least - given_bytes:,} too few"
            ", and TFLite Micro's own structures come on top",
        )  # fmt: skip
    elif not outside:
        enough = "" if given_bytes is None else f" of {given_bytes:,}"
        text = f"planned tensors need {least:,} bytes{enough}"
        more = "TFLite Micro adds its structures and the scratch of its kernels"
        yield Remark(Level.RIGHT, "arena", f"{text}; {more}")
    shared = max((call.scratch_fast_bytes for call in network.npu_calls), default=0)
    if shared:
        text = f"ethosu_init is to get at least {shared:,} bytes of memory for base pointer 2 (fast scratch)"
        yield Remark(Level.NOTE, "arena", text)


def fit(network: Network, file_bytes: int, board: Board) -> Iterator[Remark]:
    """Whether the board has a memory that holds the arena and one that holds the file, where the NPU reaches them."""
    ends = [t.arena_offset + t.size_bytes for t in network.tensors if t.arena_offset >= 0]
    needs = (("arena", max(ends, default=0), False), ("file", file_bytes, True))
    for what, size, read_only in needs:
        usable = [m for m in board.memories if Agent.NPU in m.agents and (read_only or not m.read_only)]
        fitting = [memory for memory in usable if memory.size_bytes >= size]
        if fitting:
            names = ", ".join(memory.name for memory in fitting)
            yield Remark(Level.RIGHT, "memory", f"{what}: {format_size(size)} fit {names} of {board.name}")
        else:
            yield Remark(
                Level.WRONG, "memory",
                f"{what}: {format_size(size)} fit no memory of board {board.name} that the NPU reaches: "
                f"{_listed(usable)}",
            )  # fmt: skip


def _listed(memories: list[BoardMemory]) -> str:
    return ", ".join(f"{memory.name} has {format_size(memory.size_bytes)}" for memory in memories) or "it has none"
