"""The message of a problem that does not fit: numbers, the peak, and what would help.

Invariant: nothing here decides anything; it only describes.
"""

from __future__ import annotations

from collections.abc import Sequence

from .bounds import Peak, forced, load_peak
from .errors import PlanningError
from .model import Model
from .registry import Context


def live_at(model: Model, point: int, pool: int) -> list[tuple[str, int]]:
    """(buffer name, bytes) of all buffers live at `point` that may be in `pool`, largest first."""
    found = [
        (buffer.name, buffer.size_bytes)
        for item in model.items
        if item.first <= point < item.last and pool in item.pools
        for buffer, _ in item.parts
        if any(life.first <= point < life.last for life in buffer.lifetimes)
    ]
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def overfull(model: Model, point: int, pool: int) -> list[str]:
    """Buffers that must share `pool` at `point` and together are larger than it; none can be left out.

    Empty where overlaps or alias groups are among them: their sizes do not simply add up.
    """
    room = model.capacity[pool]
    must = [item for item in model.items if item.pools == (pool,) and item.size]
    live = [item for item in must if any(first <= point < last for first, last in item.lifetimes)]
    if room is None or any(item.index in model.special for item in live):
        return []
    chosen: list[str] = []
    total = 0
    for item in sorted(live, key=lambda item: (-item.size, item.index)):
        chosen.append(item.name)
        total += item.size
        if total > room:
            return sorted(chosen)
    return []


def point_label(model: Model, point: int | None) -> str:
    """The problem's label of `point`, empty when it has none."""
    points = model.problem.points
    return points[point] if point is not None and 0 <= point < len(points) else ""


def explain_no_room(
    model: Model,
    item: int | None = None,
    least: int | None = None,
    subset: Sequence[str] = (),
    proven: bool = False,
    pool: int | None = None,
) -> PlanningError:
    """The `PlanningError` of a problem in which `item` found no place.

    `least` is the least height found or proven for `pool` when it is known better than max-live;
    `subset` are buffers proven unable to be together in it.
    """
    # a pool that the buffers with no other choice already overfill is proof
    only = forced(model)
    worst: tuple[int, int, Peak] | None = None
    for index, size in enumerate(model.capacity):
        if size is not None:
            peak = load_peak(model, index, only)
            if peak.bytes > size and (worst is None or peak.bytes - size > worst[0]):
                worst = (peak.bytes - size, index, peak)
    if worst is not None:
        _, pool, peak = worst
        required, proven = peak.bytes, True
        if not subset and peak.point is not None:
            subset = overfull(model, peak.point, pool)
    else:
        if pool is None:
            candidates = model.items[item].pools if item is not None else tuple(range(len(model.capacity)))
            bounded = [p for p in candidates if model.capacity[p] is not None]
            pool = bounded[-1] if bounded else 0
        peak = load_peak(model, pool)
        size = model.capacity[pool] or 0
        required = max(least or 0, peak.bytes)
        if required <= size:
            required = size + (model.items[item].size if item is not None else 1)
    available = model.capacity[pool] or 0
    name = model.pool_names[pool]
    label = point_label(model, peak.point)
    largest = (
        tuple(live_at(model, peak.point, pool)[:5])
        if peak.point is not None
        else tuple((model.items[i].name, model.items[i].size) for i in peak.members[:5])
    )
    lines = [
        f"the buffers of problem {model.problem.name!r} do not fit pool {name!r}: "
        f"required {required} bytes{'' if proven else ' (least height found)'}, available {available}, "
        f"excess {required - available}"
    ]
    if peak.point is not None:
        lines.append(
            f"  memory is fullest at point {peak.point}{f' ({label})' if label else ''}; largest buffers there:"
        )
    elif largest:
        lines.append("  these conflict with each other; the largest:")
    lines.extend(f"    {buffer}: {size} bytes" for buffer, size in largest)
    if item is not None and worst is None:
        entry = model.items[item]
        lines.append(f"  {entry.name!r} ({entry.size} bytes) found no place")
    if subset:
        shown = ", ".join(subset[:12]) + (f" and {len(subset) - 12} more" if len(subset) > 12 else "")
        lines.append(f"  these {len(subset)} cannot be together in {available} bytes: {shown}")
    lines.append("  " + _remedy(model, pool, required - available, proven, largest))
    return PlanningError(
        "\n".join(lines),
        pool=name,
        required_bytes=required,
        available_bytes=available,
        point=peak.point,
        point_label=label,
        largest=largest,
        proven=proven,
        subset=tuple(subset),
    )


def no_room(context: Context, item: int | None = None) -> PlanningError:
    """The error of a problem that found no place for `item`."""
    return explain_no_room(context.model, item)


def _remedy(model: Model, pool: int, excess: int, proven: bool, largest: Sequence[tuple[str, int]]) -> str:
    """The next step that has a chance."""
    name = model.pool_names[pool]
    options = [f"enlarge pool {name!r} by {excess} bytes"]
    others = [p for p in model.pool_names if p != name]
    single = [b for b, _ in largest if b in {i.name for i in model.items if len(i.pools) == 1}]
    if others and single:
        options.append(f"let {single[0]!r} live in {others[-1]!r} too")
    elif not others:
        options.append("add a second pool that buffers may spill to")
    if not proven:
        options.append("give the planner more time or nodes (a better plan may exist)")
    else:
        options.append("make the buffers at the peak smaller or shorter-lived")
    return "to make it fit: " + ", or ".join(options)
