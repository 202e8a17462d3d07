"""The model as each backend makes it, read and lowered once for all limits of memory; a result without its limits.

Invariant: nothing that is read or lowered follows from the size of a pool, so one reading serves every limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .. import verify
from ..errors import RefusalError
from ..options import CompileOptions
from ..request import Loaded
from ..stages import Planned

ENDLESS = 1 << 40  # bytes of a pool whose size does not matter


class ModelCache:
    """`load` reads and lowers the model for some options; here for pools of the sizes `pools`, and once each."""

    def __init__(self, load: Callable[[CompileOptions], Loaded], pools: Mapping[str, int]) -> None:
        self._load, self._pools = load, pools
        self._known: dict[tuple[object, ...], Loaded | RefusalError] = {}

    def loaded(self, wanted: CompileOptions) -> Loaded:
        """The model for `wanted`; raises the same error again where it was refused before."""
        key = wanted.npu_compiler, wanted.optimise, wanted.for_cycles, wanted.stripes, wanted.accelerator
        if key not in self._known:
            try:
                self._known[key] = self._load(replace(wanted, pools=self._pools))
            except RefusalError as refused:
                self._known[key] = refused
        known = self._known[key]
        if isinstance(known, RefusalError):
            raise known
        return replace(known, request=known.request.with_options(wanted))


def without_limits(
    planned: Planned, options: CompileOptions, sizes: Mapping[str, int | None], notes: Sequence[str] = ()
) -> Planned:
    """`planned`, which was found under limits, with the options and sizes of pools requested; verified."""
    extracted = planned.extracted
    loaded = extracted.loaded
    loaded = replace(loaded, notes=(*loaded.notes, *notes), request=replace(loaded.request, options=options))
    pools = tuple(replace(p, size_bytes=sizes.get(p.name, p.size_bytes)) for p in extracted.problem.pools)
    problem = replace(extracted.problem, pools=pools)
    verify.check_own(problem, planned.plan)
    return replace(planned, extracted=replace(extracted, loaded=loaded, problem=problem))


def beside_vela(planned: Planned, models: ModelCache) -> Planned:
    """`planned` with Vela's own bytes and cycles, whichever program was taken; without where Vela refuses the model."""
    loaded = planned.extracted.loaded
    try:
        vela = models.loaded(replace(loaded.request.options, npu_compiler="vela", stripes=False))
    except RefusalError:
        return planned
    loaded = replace(
        loaded,
        vela_arena_bytes=vela.vela_arena_bytes,
        vela_cycles=vela.vela_cycles,
        vela_stream_bounds=vela.vela_stream_bounds,
    )
    return replace(planned, extracted=replace(planned.extracted, loaded=loaded))
