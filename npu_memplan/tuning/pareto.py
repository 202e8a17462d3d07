"""The front of a model: for some limits of memory the fastest program, and Vela's own two points beside them.

Invariant: every point is a verified plan, and its flags compile to it again; no point that is kept needs as many bytes
as a faster one. Cycles are estimates, of Vela's streams as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import RefusalError
from ..ethosu.arch import Architecture, accelerator
from ..ethosu.time import MemoryMap, counts_around, milliseconds_between, printed_models
from ..frontend.errors import FormatError
from ..options import AUTO, CompileOptions
from ..request import Loaded
from ..stages import Planned, extract_problem
from .limits import LimitSearch
from .ranking import Ranking, port_bound
from .tune import tune

_SHARES = (1.0, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2, 0.12)  # of the arena that Vela needs


class ExploreError(RefusalError):
    """There is nothing to explore."""


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A program: `cycles` in `bytes` of the pool when it may have `limit_bytes`."""

    limit_bytes: int
    bytes: int
    cycles: int
    milliseconds: float
    least_milliseconds: float  # of the range that `compile` prints
    most_milliseconds: float
    backend: str
    bound_cycles: int  # of the NPU's operations, in this memory
    flags: str  # of `npu-memplan compile`; empty: Vela's own placement of its own stream
    host_cycles: int = 0  # of the CPU's calls, of the NPU's clock; part of `cycles`

    @property
    def time_text(self) -> str:
        """The range of its time: `0.093 to 0.104 ms`."""
        return milliseconds_between((self.least_milliseconds, self.most_milliseconds), 1000)

    @property
    def over_port(self) -> float | None:
        """By how much the NPU takes longer than its bound, as a share of the bound; None where there is no bound."""
        return (self.cycles - self.host_cycles) / self.bound_cycles - 1 if self.bound_cycles else None


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The points of a model, fewest bytes first, Vela's own, and that of a compile without a size."""

    model: str
    pool: str
    points: tuple[ParetoPoint, ...]
    vela: tuple[ParetoPoint, ...]
    default: ParetoPoint | None = None  # None: nothing fits Vela's arena, or the board

    def to_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return asdict(self)


def explore(
    model: Path,
    options: CompileOptions,
    load: Callable[[CompileOptions], Loaded],
    limits: Iterable[int] = (),
    report_progress: Callable[[str, int, int], None] = lambda *_: None,
    keep: Callable[[Planned], None] = lambda _: None,
) -> ParetoFront:
    """The front at `limits` bytes of the last pool; without any, at shares of the arena that Vela needs. `load`
    reads and lowers the model; `report_progress` is called with each limit, after how many, of how many; `keep` with
    each program that was found, whose options make it again.

    Raises the frontends' errors, and `ExploreError` when nothing fits.
    """
    options = replace(options.resolve_defaults(), npu_compiler=AUTO, objective="auto")
    memory_map = options.memory_map()
    if memory_map is None:
        raise ExploreError(f"{model.name}: without an NPU there is nothing to explore; name an --accelerator")
    pool = options.planned_pools()[-1].name
    limit_search = LimitSearch(options, memory_map, load)
    vela, rank = [], Ranking(memory_map)
    for optimise in ("Performance", "Size"):
        report_progress(f"Vela's own points, {optimise}", 0, 0)
        try:
            made = limit_search.lower(replace(options, npu_compiler="vela", optimise=optimise))
        except FormatError:  # ONNX and PyTorch, which Vela does not read
            break
        used, cycles = made.vela_arena_bytes.get(pool, 0), sum(made.vela_stream_bounds.values())
        if used and cycles:
            host = rank.host_cycles(made)
            times = _range_of_time([cycles, *made.vela_stream_cycles[:-1]], host, options, memory_map)
            vela.append(ParetoPoint(used, used, cycles + host, *times, f"Vela, {optimise}", 0, "", host))
    shares = {int(vela[0].bytes * share) for share in _SHARES} if vela else set()
    sizes = sorted(limits) or sorted(shares | {point.bytes for point in vela})
    if not sizes:
        raise ExploreError(
            f"{model.name}: there is no arena of Vela's to take shares of; give sizes, e.g. --sizes 32KiB,64KiB"
        )
    found = []
    for number, size in enumerate(sizes):
        report_progress(f"{size:,} bytes of {pool}", number, len(sizes))
        best = limit_search.fastest_within(size)
        if best is None or best.limit_bytes != size:  # nothing, or what was found before
            continue
        keep(best.planned)
        found.append(_point(best.planned, pool, size, memory_map))
    if (least := limit_search.least()) is not None and least.size_bytes <= max(sizes):
        keep(least.planned)
        found.append(_point(least.planned, pool, least.limit_bytes, memory_map))
    if not found:
        raise ExploreError(
            f"{model.name}: no program fits {max(sizes):,} bytes of pool {pool}; give larger --sizes: "
            f"compile --objective bytes says what the smallest program needs"
        )
    report_progress("the default compile", len(sizes), len(sizes))
    usual = tune(options, limit_search.lower, model.name, extract_problem)
    default = None
    if usual is not None:
        keep(usual)
        default = _point(usual, pool, 0, memory_map)
    return ParetoFront(model.name, pool, _undominated_points(found), tuple(vela), default)


def _point(planned: Planned, pool: str, limit_bytes: int, memory_map: MemoryMap) -> ParetoPoint:
    """A program that was made for `limit_bytes` of `pool`; 0: for no size."""
    loaded, rank = planned.extracted.loaded, Ranking(memory_map)
    used = next(usage.used_bytes for usage in planned.plan.usage if usage.pool == pool)
    options, host = loaded.request.options, rank.host_cycles(loaded)
    maps = (replace(memory_map, assumptions=model) for model in printed_models(_npu(options).in_flight_share))
    cycles = [Ranking(one)(planned)[0] for one in maps]
    times = _range_of_time([n - host for n in cycles], host, options, memory_map)
    flags, bound = " ".join(options.to_cli_args()), port_bound(planned, memory_map)
    return ParetoPoint(limit_bytes, used, cycles[0], *times, loaded.backend, bound, flags, host)


def _range_of_time(
    npu_cycles: Sequence[int], host_cycles: int, options: CompileOptions, memory_map: MemoryMap
) -> tuple[float, float, float]:
    """Milliseconds of an inference: nominal, least and most. `npu_cycles`: by model, the nominal ones first."""
    every = [*npu_cycles, *counts_around(npu_cycles[0], [_npu(options)] if npu_cycles[0] else ()).values()]
    nominal, least, most = (n + host_cycles for n in (npu_cycles[0], min(every), max(every)))
    scale = 1000 / memory_map.clock_hz
    return scale * nominal, scale * least, scale * most


def _npu(options: CompileOptions) -> Architecture:
    return accelerator(options.accelerator)


def _undominated_points(found: list[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The points that no other beats in bytes and cycles."""
    kept: list[ParetoPoint] = []
    for point in sorted(found, key=lambda p: (p.bytes, p.cycles)):
        if not kept or point.cycles < kept[-1].cycles:
            kept.append(point)
    return tuple(kept)
