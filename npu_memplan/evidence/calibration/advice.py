"""What a record lacks: the micro-streams that tell a parameter apart, and the sentence that says so.

Invariant: a stream that is named is one of the catalogue and not in the record.
"""

from __future__ import annotations

from collections.abc import Collection

from .fit import TOLERANCE, Fitted

# by parameter (of a memory: the last part of its name), the streams that decide it
_DECIDING_STREAMS = {
    "bytes_per_cycle": ("sram kernels", "flash alone", "copies 4096 awaited"),
    "read_latency": ("kernels in place", "copies 512 awaited", "sums in a row"),
    "write_latency": ("copies 512 awaited", "copies 512 in a row"),
    "max_reads": ("sram kernels beside", "copies 4096 awaited"),
    "max_writes": ("sram kernels", "copies 512 in a row"),
    "kernel_start": ("sums in a row", "sums apart", "kernels in place"),
}


def explain_undecided(found: Fitted, there: Collection[str], counter_step: int) -> str:
    """Why a parameter is not decided, and what would decide it."""
    missing = [name for name in _DECIDING_STREAMS[found.parameter.name.rpartition(".")[2]] if name not in there]
    why = (
        f"{found.parameter.name}: {TOLERANCE:.0%} more or less is within the counter's steps of {counter_step:,} cycles"
    )
    if found.alike:
        why += f", or {found.alike} makes up for it"
    if missing:
        return f"{why}; run evidence --micro with the stream {missing[0]!r}, too"
    if found.alike:
        return f"{why}; every stream for it is there: give {found.alike} a known value and leave it out of --fit"
    return f"{why}; no stream depends on it here"
