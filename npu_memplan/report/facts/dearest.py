"""The operators by their time in one inference, the NPU's and the CPU's in one order.

Invariant: everything is the artifact's own estimate, the NPU's by the timing model, the CPU's by a count; all shares
add up to 1. Where the CPU's clock is unknown it is taken as the NPU's, as in all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import shorten

from ...artifact import Artifact
from ...artifact.timing import HostLayer, Layer
from ...names import Names
from ...problem import Agent
from ...sizes import percent_text
from ...text_table import align_rows

DEAREST_HEADING = "What takes the time (estimated)"
DEAREST = 10  # operators that texts list
REASON = 44  # characters of a reason that they print, beside names of
_NAME = 14  # characters; longer ones take room from it, up to
_LONG_NAME = 36


_Row = tuple[Layer | HostLayer, Agent, str, float]


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """An operator of the source model, or a call of the CPU that belongs to none (`operator` is -1)."""

    operator: int
    kind: str
    name: str  # as `explain` knows it: the file's, or kind and number, or the call's function
    agent: Agent
    cycles: int  # of its own clock
    share: float  # of the time of the inference
    bound: str  # what most of its cycles are spent with; of the CPU nothing is known
    reason: str  # why the NPU does not run it


def operator_times(artifact: Artifact) -> tuple[OperatorTime, ...]:
    """Every operator that takes time, the dearest first."""
    npu_hz = artifact.timing.clock_hz if artifact.timing is not None else 0.0
    host_hz = artifact.host_clock_hz or npu_hz
    relative = npu_hz / host_hz if npu_hz and host_hz else 1.0
    rows: list[_Row] = [(row, Agent.NPU, row.bound, float(row.cycles)) for row in artifact.layers]
    rows += [(row, Agent.HOST, "", row.cycles * relative) for row in _host_rows(artifact)]
    names = source_names(artifact)
    total = sum(time for *_, time in rows) or 1.0
    found = [
        OperatorTime(
            row.operator,
            row.kind,
            _operator_name(names, row),
            agent,
            row.cycles,
            time / total,
            bound,
            _reason_on_cpu(artifact, row.operator),
        )
        for row, agent, bound, time in rows
        if row.cycles
    ]
    return tuple(sorted(found, key=lambda row: (-row.share, row.operator, row.name)))


def _host_rows(artifact: Artifact) -> list[HostLayer]:
    """The CPU's rows; calls that one operator became are one row."""
    rows: dict[object, HostLayer] = {}
    for number, row in enumerate(artifact.host_layers):
        key = row.operator if row.operator >= 0 else ("call", number)
        before = rows.get(key)
        rows[key] = row if before is None else replace(before, cycles=before.cycles + row.cycles)
    return list(rows.values())


def source_names(artifact: Artifact) -> list[str]:
    """A name for each operator: the file's where nodes have names, not results alone as in TFLite; else a short one."""
    if artifact.source.endswith(".tflite"):
        return short_names(artifact)
    return [operator.name or short for operator, short in zip(artifact.operators, short_names(artifact), strict=True)]


def short_names(artifact: Artifact) -> list[str]:
    """A name for each operator of kind and number: `conv_2d_3` is the fourth CONV_2D."""
    names = Names()
    return [names.unique_name(operator.kind.lower()) for operator in artifact.operators]


def _operator_name(names: Sequence[str], row: Layer | HostLayer) -> str:
    if 0 <= row.operator < len(names):
        return names[row.operator]
    return getattr(row, "function", row.name) or "(not by operator)"


def _reason_on_cpu(artifact: Artifact, operator: int) -> str:
    return artifact.operators[operator].reason if 0 <= operator < len(artifact.operators) else ""


def dearest_lines(artifact: Artifact) -> list[str]:
    """A table of the dearest operators with what bounds them, or why they are on the CPU; empty without an estimate."""
    times = operator_times(artifact)
    if not times:
        return []
    rows = [("operator", "on", "cycles", "share", "")]
    names = [row.name if len(row.name) <= _LONG_NAME else f"...{row.name[3 - _LONG_NAME :]}" for row in times[:DEAREST]]
    room = REASON + _NAME - max(_NAME, *map(len, names))
    for row, name in zip(times[:DEAREST], names, strict=True):
        where = "NPU" if row.agent is Agent.NPU else "CPU"
        why = row.bound or shorten(row.reason, room, placeholder="...")
        rows.append((name, where, f"{row.cycles:,}", percent_text(row.share, 1), why))
    rest = times[DEAREST:]
    if rest:
        rows.append((f"{len(rest)} more", "", "", percent_text(sum(row.share for row in rest), 1), ""))
    return align_rows(rows, right={2, 3})
