"""The estimate of a command stream as lanes of a trace in Chrome's format: kernels, each port, DMA.

Invariant: one slice for each operation and one for what it moves over each port; a microsecond is one estimated cycle;
slices of a lane never overlap in part; `adds_cycles` of all operations add up to the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .estimate import Estimate

_KERNELS, _DMA, _PORTS = 1, 2, 3  # threads; port p is _PORTS + p
_SECOND_DMA = 5  # two transfers may be unfinished at once
_NAMES = {
    _KERNELS: "kernels",
    _DMA: "DMA",
    _PORTS: "AXI port 0",
    _PORTS + 1: "AXI port 1",
    _SECOND_DMA: "DMA beside DMA",
}
Described = Sequence[tuple[str, Mapping[str, Any]]]  # each operation's title and details


def lanes(title: str, launches: Iterable[tuple[Estimate, Described]], process: int) -> Iterator[dict[str, Any]]:
    """Everything of the trace's process `process`, called `title`: its lanes, and the launches one after the other."""
    yield name_event("process_name", title, process)
    for thread, name in _NAMES.items():
        yield name_event("thread_name", name, process, thread)
    now = 0
    for placed, described in launches:
        yield from _operations(placed, now, process, described)
        yield from _ports(placed, now, process)
        now += placed.total


def name_event(what: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    """The event that names a process or a thread of the trace; `what`: process_name or thread_name."""
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _operations(placed: Estimate, start: int, process: int, described: Described) -> Iterator[dict[str, Any]]:
    """Slices of one launch that begins at cycle `start`."""
    free = 0  # the first DMA lane
    for share, (title, details) in zip(placed.shares, described, strict=True):
        thread = _KERNELS
        if share.is_transfer:
            thread = _DMA if share.start >= free else _SECOND_DMA
            free = share.stop if thread == _DMA else free
        yield {
            "name": title,
            "cat": "dma" if share.is_transfer else "kernel",
            "ph": "X",
            "ts": start + share.start,
            "dur": share.stop - share.start,
            "pid": process,
            "tid": thread,
            "args": {"bound_by": str(share.bound), "adds_cycles": share.cycles, **details},
        }


def _ports(placed: Estimate, start: int, process: int) -> Iterator[dict[str, Any]]:
    """The transfers of each operation over each port, one after the other."""
    free: dict[int, float] = {}
    for number, share in enumerate(placed.shares):
        for (memory, writes), (size, beats, cycles) in share.traffic.items():
            port = placed.ports[memory]
            begin = max(free.get(port, 0.0), share.start)
            free[port] = begin + cycles
            yield {
                "name": f"{'write' if writes else 'read'} {memory} {size} B",
                "cat": "port",
                "ph": "X",
                "ts": start + round(begin),
                "dur": round(begin + cycles) - round(begin),
                "pid": process,
                "tid": _PORTS + port,
                "args": {"operation": number, "beats": beats},
            }
