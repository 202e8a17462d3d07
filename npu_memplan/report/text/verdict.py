"""The first line of a compile: whether it fits, in how many bytes, how long it takes on the NPU and on the host.

Invariant: one line; what is estimated says so, and without a size to fit into nothing "fits".
"""

from __future__ import annotations

from ...artifact import Artifact
from ...artifact.board_fit import fit_of
from ...sizes import counted


def verdict(artifact: Artifact) -> str:
    """`kws: fits; sram 20,752 of 65,536 bytes, optimal; NPU about 0.112 to 0.118 ms (estimated)`."""
    fit = fit_of(artifact)
    bounded = any(pool.size_bytes is not None for pool in artifact.problem.pools)
    fits = fit.verdict if fit is not None else "fits" if bounded else ""
    where = f"{fits} on {fit.board.name}" if fit is not None and fit.short is None else fits
    parts = [where, f"{_pools(artifact)}, {artifact.plan.status.value}"]
    if artifact.timing is not None and artifact.estimated_cycles:
        parts.append(f"NPU about {artifact.timing.between(artifact.estimated_cycles)} (estimated)")
    parts.append(host_calls(artifact))
    return f"{artifact.name}: " + "; ".join(part for part in parts if part)


def host_calls(artifact: Artifact) -> str:
    """`8 host calls, roughly 0.35 ms more`, or that nothing runs on the NPU; nothing where all of it does."""
    count, cycles, clock = artifact.host_operations, artifact.host_cycles, artifact.host_clock_hz
    if not count:
        return ""
    calls = counted(count, "host call")
    alone = artifact.host_operations == len(artifact.calls)
    if cycles and clock:
        calls += f", roughly {1000 * cycles / clock:.2g} ms{'' if alone else ' more'}"
    elif cycles:
        calls += f", roughly {cycles:,} cycles"
    return f"nothing runs on the NPU; {calls}" if alone and artifact.target.accelerator != "none" else calls


def _pools(artifact: Artifact) -> str:
    sizes = []
    for pool in artifact.problem.pools:
        used = artifact.pool_bytes(pool.name)
        if used or not pool.read_only:
            sizes.append(f"{pool.name} {used:,}" + ("" if pool.size_bytes is None else f" of {pool.size_bytes:,}"))
    return f"{', '.join(sizes)} bytes"
