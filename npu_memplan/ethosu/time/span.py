"""An estimate as a range, since no published count decides between the models of shared memories.

Invariant: the nominal cycles are the first model's; text has one figure where the models agree to its last digit.
Programs are compared under `MODELS`; what is printed has more where the accelerator leaves more open, and the error of
networks that the model has not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..arch import Architecture
from ..stream.decode import Command
from .assumptions import LEFT_OUT, MODELS, NOMINAL, Assumptions, printed_models
from .cost import ResourceUseCache
from .memory import MemoryMap
from .timeline import Step, play_steps, prepare_steps

LEAST_COUNT, MOST_COUNT = "nine of ten counts: least", "nine of ten counts: most"
Stream = tuple[Sequence[Command], Architecture]


def cycles_by_model(
    streams: Iterable[Stream],
    memory_map: MemoryMap,
    models: Sequence[Assumptions] = MODELS,
    resource_uses: Callable[[Architecture], ResourceUseCache] | None = None,
) -> dict[str, int]:
    """The cycles of all streams together, under each of `models`, by its name. `resource_uses` gives an NPU's needs in
    these memories that were worked out before: they are the same in all models that say the same of its buffers.
    """
    found: Counter[str] = Counter({model.name: 0 for model in models})
    for commands, accelerator in streams:
        steps: dict[float | None, Sequence[Step]] = {}
        if resource_uses:
            steps[memory_map.assumptions.in_flight_share] = prepare_steps(commands, resource_uses(accelerator))
        for model in models:
            where = replace(memory_map, assumptions=model)
            if model.in_flight_share not in steps:
                steps[model.in_flight_share] = prepare_steps(commands, ResourceUseCache(accelerator, where))
            found[model.name] += play_steps(steps[model.in_flight_share], accelerator, where).total
    return dict(found)


def printed_cycles(streams: Collection[Stream], memory_map: MemoryMap) -> dict[str, int]:
    """The same under each model of a printed range, and between what nine of ten published counts would lie."""
    share = min((accelerator.in_flight_share for _, accelerator in streams), default=1.0)
    found = cycles_by_model(streams, memory_map, printed_models(share))
    return found | counts_around(found[NOMINAL.name], (accelerator for _, accelerator in streams))


def counts_around(nominal: int, accelerators: Iterable[Architecture]) -> dict[str, int]:
    """The range of nine of ten published counts around `nominal` cycles; nothing without an NPU."""
    errors = [LEFT_OUT[accelerator.product] for accelerator in accelerators]
    if not errors:
        return {}
    low, high = min(low for low, _ in errors), max(high for _, high in errors)
    return {LEAST_COUNT: round(nominal * low), MOST_COUNT: round(nominal * high)}


def milliseconds_between(cycles: Collection[float], clock_hz: float) -> str:
    """The least and the most of `cycles` in milliseconds, as text: `0.093 to 0.104 ms`."""
    least, most = (f"{1000 * n / clock_hz:.3f}" for n in (min(cycles), max(cycles)))
    return f"{least} ms" if least == most else f"{least} to {most} ms"


def models_text(by_model: Mapping[str, int]) -> str:
    """The cycles under each model, as text: `shared by halves: 42,020; memories in turn: 54,376`."""
    texts = [f"{name}: {cycles:,}" for name, cycles in by_model.items() if name not in (LEAST_COUNT, MOST_COUNT)]
    if LEAST_COUNT in by_model:
        texts.append(f"range of nine of ten published counts: {by_model[LEAST_COUNT]:,} to {by_model[MOST_COUNT]:,}")
    return "; ".join(texts)
