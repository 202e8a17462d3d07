"""What the NPU does in one inference: operations of one kind and output size, taken together.

Invariant: everything is read from the command streams that were written (see `bricks`). An operation's cycles are those
by which it makes its stream longer, so they add up to the estimate of the inference.
Kernels in a row that fill one feature map channel by channel count as parts of one output: Vela splits so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...artifact import Artifact
from ...artifact.parts import Call
from ...ethosu.arch import ACCELERATORS
from ...ethosu.program.featuremap import FeatureMap
from ...ethosu.stream.isa import BRICK_CHANNELS
from ...ethosu.time import Described, Estimate, Share, estimate
from ...sizes import counted
from .bricks import command_streams, describe_operation, kind_of


@dataclass(frozen=True, slots=True)
class NpuWork:
    """`count` operations of one kind with outputs of one size."""

    kind: str  # e.g. "depthwise convolution", "DMA"
    output: str  # e.g. "25x5x64", or "" for transfers
    count: int = 0
    cycles: int = 0  # estimated
    macs: int = 0


def operations(artifact: Artifact) -> str:
    """`"5 NPU operations, 1 host call"`."""
    return f"{counted(artifact.npu_operations, 'NPU operation')}, {counted(artifact.host_operations, 'host call')}"


def npu_work(artifact: Artifact, directory: Path | None) -> tuple[NpuWork, ...]:
    """The NPU's work in the order in which each kind and size begins; nothing without `directory`."""
    shares = [share for _, time in estimates(artifact, directory) for share in time.shares]
    found: dict[tuple[str, str], list[Share]] = {}
    for share, output in _outputs(shares):
        found.setdefault((kind_of(share.operation), output), []).append(share)
    return tuple(
        NpuWork(*key, len(same), sum(s.cycles for s in same), sum(s.macs for s in same)) for key, same in found.items()
    )


def estimates(artifact: Artifact, directory: Path | None) -> Iterator[tuple[Call, Estimate]]:
    """The NPU's calls in program order, each with the estimate of its stream; nothing without `directory`."""
    npu, memory_map = ACCELERATORS.get(artifact.target.accelerator), artifact.memory_map
    if directory is not None and npu is not None and memory_map is not None:
        for call, commands in command_streams(artifact, directory):
            yield call, estimate(commands, npu, memory_map)


def described(call: Call, time: Estimate) -> Described:
    """What a trace says of each operation of a call."""
    return [(describe_operation(s.operation), {"call": call.function, "macs": s.macs}) for s in time.shares]


def _outputs(stream: Sequence[Share]) -> Iterator[tuple[Share, str]]:
    """Every operation with the size of the output it writes, or helps to write; transfers have none."""
    parts: list[tuple[Share, FeatureMap]] = []
    for share in stream:
        if share.is_transfer:
            yield share, ""
            continue
        view = FeatureMap.ofm(share.operation)
        if parts and not (parts[-1][0].operation.op is share.operation.op and _goes_on(parts[-1][1], view)):
            yield from _together(parts)
            parts.clear()
        parts.append((share, view))
    yield from _together(parts)


def _goes_on(first: FeatureMap, second: FeatureMap) -> bool:
    """Whether `second` holds the channels after `first`, of one feature map."""
    alike = all(
        getattr(first, name) == getattr(second, name)
        for name in ("region", "brick", "element_bytes", "height", "width", "stride_x", "stride_y", "stride_c")
    )
    if first.brick:
        step, room = -(-first.depth // BRICK_CHANNELS) * first.stride_c, first.stride_y
    else:
        step, room = first.depth * first.element_bytes, first.stride_x
    return alike and step < room and second.bases[0] - first.bases[0] == step


def _together(parts: Sequence[tuple[Share, FeatureMap]]) -> Iterator[tuple[Share, str]]:
    depth = sum(view.depth for _, view in parts)
    return ((share, f"{view.height}x{view.width}x{depth}") for share, view in parts)


def busy(artifact: Artifact) -> float | None:
    """Share of the NPU's multiply-accumulates that the inference uses in its estimated time; None when unknown."""
    npu = ACCELERATORS.get(artifact.target.accelerator)
    if npu is None or not artifact.estimated_cycles or artifact.npu_macs is None:
        return None
    return artifact.npu_macs / (artifact.estimated_cycles * npu.macs)


@dataclass(frozen=True, slots=True)
class WorkChange:
    """The same work by two programs; a side that lacks it has a count of 0."""

    kind: str
    output: str
    before: NpuWork
    after: NpuWork

    @property
    def by(self) -> int:
        """Estimated cycles that `after` needs more."""
        return self.after.cycles - self.before.cycles


def work_changes(before: tuple[NpuWork, ...], after: tuple[NpuWork, ...]) -> tuple[WorkChange, ...]:
    """Both programs' work side by side, in the order of `before`, then of what only `after` does."""
    old, new = ({(w.kind, w.output): w for w in side} for side in (before, after))
    keys = dict.fromkeys([*old, *new])
    return tuple(WorkChange(*key, old.get(key, NpuWork(*key)), new.get(key, NpuWork(*key))) for key in keys)


def by_kind(changes: tuple[WorkChange, ...]) -> tuple[WorkChange, ...]:
    """The changes with outputs of all sizes taken together, the most cycles first."""
    kinds: dict[str, list[WorkChange]] = {}
    for change in changes:
        kinds.setdefault(change.kind, []).append(change)
    sums = (
        WorkChange(kind, "", _sum(kind, [c.before for c in same]), _sum(kind, [c.after for c in same]))
        for kind, same in kinds.items()
    )
    return tuple(sorted(sums, key=lambda c: -max(c.before.cycles, c.after.cycles)))


def _sum(kind: str, parts: list[NpuWork]) -> NpuWork:
    return NpuWork(kind, "", sum(w.count for w in parts), sum(w.cycles for w in parts), sum(w.macs for w in parts))
