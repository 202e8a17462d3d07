"""The estimated time of a compiled model: in all, by cause, and by operator of the source model.

Invariant: the layers' cycles add up to the estimate of all NPU calls; everything here was read from the command streams
that run. The CPU's rows are estimates of their own, in cycles of the CPU's clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..files.csv_text import csv_text
from ..problem import Count

if TYPE_CHECKING:
    from ..ethosu.time import Estimate, Share


_LARGE = 0.15  # differences of estimates below that are not explained
# Vela's names of memories in its per-layer file
_VELAS = {"sram": "SRAM AC", "dram": "DRAM AC", "on_chip_flash": "OnFlash AC", "flash": "OffFlash AC"}


@dataclass(frozen=True, slots=True)
class Layer:
    """The NPU's work for one operator of the source model."""

    operator: int  # its index in the file; -1: unknown
    name: str
    kind: str
    operations: Count  # kernels and transfers
    cycles: Count  # by which they make the inference longer
    compute_cycles: Count  # of multipliers or output unit alone, whichever is slower
    macs: Count
    bound: str  # what most of its cycles are spent with
    access_cycles: Mapping[str, Count]  # of each memory's time
    bytes: Mapping[str, Count]  # by memory, read and written


@dataclass(frozen=True, slots=True)
class HostLayer:
    """The cost of one operator in a call of the host by the estimate (`host_time`)."""

    operator: int  # its index in the source model; -1: unknown
    name: str
    kind: str
    function: str
    cycles: Count  # of the host's clock
    operations: Count  # arithmetic
    bytes: Count  # loaded and stored


@dataclass(frozen=True, slots=True)
class Timing:
    """The estimate of one inference. Sums of cycles are those of the artifact's calls."""

    clock_hz: float
    bounds: Mapping[str, Count]  # cycles by cause, the most first
    vela_cycles: Count | None = None  # Vela's own estimate of the stream that it made
    vela_host_cycles: Count | None = None  # what Vela leaves to the CPU takes there, of the CPU's clock
    vela_stream_bounds: Mapping[str, Count] = field(default_factory=dict)  # ours of it, as Vela placed it, by cause
    by_model: Mapping[str, Count] = field(default_factory=dict)  # cycles under each model of a printed range

    def milliseconds(self, cycles: int) -> float:
        """The time at the NPU's clock."""
        return 1000 * cycles / self.clock_hz

    def each_milliseconds(self, cycles: int) -> Iterator[float]:
        """The time of `cycles`, and of those of all models."""
        return map(self.milliseconds, (cycles, *self.by_model.values()))

    def main_causes(self) -> str:
        """`63 % reading flash, 25 % multiplying`: the largest shares."""
        return _shares_text(self.bounds)

    def beside_vela(self) -> str:
        """Vela's own estimate and ours, with what makes differences over 15 %; nothing where Vela made no stream."""
        ours, plan = sum(self.vela_stream_bounds.values()), sum(self.bounds.values())
        if not self.vela_cycles or not ours:
            return ""
        text = f"Vela's own estimate of its stream: {self.vela_cycles:,} cycles; ours of it {ours:,}"
        reasons = []
        if abs(ours / self.vela_cycles - 1) > _LARGE:
            factor = ours / self.vela_cycles
            reasons.append(f"{factor:.2g} times Vela's figure: in ours {_shares_text(self.vela_stream_bounds)}")
        if abs(plan / ours - 1) > _LARGE:
            changes = {
                cause: self.bounds.get(cause, 0) - self.vela_stream_bounds.get(cause, 0)
                for cause in (*self.bounds, *self.vela_stream_bounds)
            }
            sign = 1 if plan > ours else -1
            cause, most = max(changes.items(), key=lambda item: (sign * item[1], item[0]))
            than = "more" if sign > 0 else "fewer"
            reasons.append(f"this plan takes {abs(plan - ours):,} {than}: {abs(most):,} {than} {cause}")
        return f"{text} ({'; '.join(reasons)})" if reasons else text


def _shares_text(bounds: Mapping[str, int]) -> str:
    total = sum(bounds.values()) or 1
    return ", ".join(f"{100 * cycles / total:.0f} % {cause}" for cause, cycles in list(bounds.items())[:3])


def layers_of(
    made: Iterable[tuple[Estimate, Sequence[int]]], operators: Sequence[tuple[str, str]]
) -> tuple[Layer, ...]:
    """Estimates with the operator of each operation, taken together; `operators`: (name, kind) in the file's order."""
    parts: dict[int, list[Share]] = {}
    for time, served in made:
        known = served or [-1] * len(time.shares)
        for share, operator in zip(time.shares, known, strict=True):
            parts.setdefault(operator, []).append(share)
    known_first = sorted(parts, key=lambda index: (index < 0, index))
    return tuple(
        _layer_row(index, parts[index], *(operators[index] if index >= 0 else ("", ""))) for index in known_first
    )


def _layer_row(index: int, shares: Sequence[Share], name: str, kind: str) -> Layer:
    access: defaultdict[str, float] = defaultdict(float)
    moved: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for share in shares:
        causes[str(share.bound)] += share.cycles
        for (memory, _), (size, _, cycles) in share.traffic.items():
            access[memory] += cycles
            moved[memory] += size
    return Layer(
        operator=index,
        name=name,
        kind=kind,
        operations=len(shares),
        cycles=sum(share.cycles for share in shares),
        compute_cycles=sum(share.compute_cycles for share in shares),
        macs=sum(share.macs for share in shares),
        bound=max(causes.items(), key=lambda item: (item[1], item[0]))[0],
        access_cycles={memory: round(cycles) for memory, cycles in sorted(access.items())},
        bytes=dict(sorted(moved.items())),
    )


def layers_csv(layers: Sequence[Layer], peak_macs: int, host: Sequence[HostLayer] = (), clocks: float = 1.0) -> str:
    """layers.csv: a row an operator, Vela's columns; `clocks`: NPU's to a host's, `peak_macs`: NPU's a cycle."""
    memories = sorted({memory for layer in layers for memory in layer.bytes})
    accessed = {**_VELAS, **{memory: f"{memory} cycles" for memory in memories if memory not in _VELAS}}
    header = (
        ["Operator Index", "Original Operator", "Target", "NPU Operations", "Op Cycles", "Network% (cycles)", "NPU"]
        + [*accessed.values(), "MAC Count", "Network% (MAC)", "Util% (MAC)", "Bound By"]
        + [f"{memory} bytes" for memory in memories]
        + ["Host Cycles (rough)", "Name"]
    )
    added = {id(row): round(row.cycles * clocks) for row in host}
    cycles = sum(layer.cycles for layer in layers) + sum(added.values()) or 1
    macs = sum(layer.macs for layer in layers) or 1
    rows: list[list[object]] = []
    for layer in layers:
        rows.append(
            [layer.operator, layer.kind, "NPU", layer.operations, layer.cycles, f"{100 * layer.cycles / cycles:.2f}"]
            + [layer.compute_cycles, *(layer.access_cycles.get(memory, 0) for memory in accessed)]
            + [
                layer.macs,
                f"{100 * layer.macs / macs:.2f}",
                f"{utilisation_percent(layer, peak_macs):.2f}",
                layer.bound,
            ]
            + [layer.bytes.get(memory, 0) for memory in memories]
            + [0, layer.name]
        )
    for row in host:
        rows.append(
            [row.operator, row.kind, "CPU", 0, added[id(row)], f"{100 * added[id(row)] / cycles:.2f}", 0]
            + [0 for _ in accessed]
            + [0, "0.00", "0.00", "host"]
            + [0 for _ in memories]
            + [row.cycles, row.name]
        )
    return csv_text(header, rows)


def utilisation_percent(layer: Layer, peak_macs: int) -> float:
    """Per cent of the multiply-accumulates that the NPU could make in the cycles that the layer adds."""
    cycles = max(layer.cycles, layer.compute_cycles, *layer.access_cycles.values())
    return 100 * layer.macs / (cycles * peak_macs) if cycles else 0.0
