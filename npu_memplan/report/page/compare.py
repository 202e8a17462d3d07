"""compare.html: two compiled programs side by side on one page.

Invariant: every number is one of `diff`'s or of a plan.json; both maps have one scale, so that what looks larger is
larger. The page holds everything it shows and fetches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from ...artifact import Artifact
from ...problem import BufferKind
from ...sizes import kib, percent
from ..colours import KIND_COLOURS, KIND_LABELS
from ..facts.memory import memory_view, shared_areas
from ..facts.work import NpuWork, WorkChange, busy, by_kind
from ..text.diff import Change, PlanDiff, signed
from .build import Page
from .svg import HATCH, svg_inline

_CLASSES = ("first", "second")
_SYSTEM = {"accelerator", "board", "system_config", "memory_mode"}  # options that make cycles those of another system
_SECTIONS = (("maps", "Maps"), ("numbers", "Numbers"), ("work", "NPU work"), ("buffers", "Buffers"))


_Pair = tuple[str, str]  # short names of the two, which differ


def compare_page(before: Artifact, after: Artifact, changes: PlanDiff) -> str:
    """The text of compare.html; `changes` is the `diff` of the two."""
    both, names = (before, after), _short(changes.names)
    body = [_cards(both, names, changes), _maps(both, names), _options(names, changes), _numbers(names, changes)]
    body += [_work(names, changes.work), _buffers(changes)]
    title = before.name if before.name == after.name else f"{before.name} and {after.name}"
    return Page(
        title=f"{title} - two memory plans",
        heading=escape(title),
        subtitle=" and ".join(_keyed(changes.names)),
        body="\n".join(part for part in body if part),
        footer="Sizes are bytes; cycles are estimates of the NPU model, to compare plans with, not a prediction.",
        sections=_SECTIONS,
    ).html()


def _short(names: _Pair) -> _Pair:
    """The last parts of two paths, or all of them where these are equal."""
    first, second = (Path(name).name or name for name in names)
    if first != second:
        return first, second
    return names if names[0] != names[1] else (f"{first} (1)", f"{second} (2)")


def _key(side: str) -> str:
    return f'<i class="key {side}"></i>'


def _keyed(names: _Pair) -> list[str]:
    """Both names behind their sides' colours."""
    return [f"{_key(side)}{escape(name)}" for side, name in zip(_CLASSES, names, strict=True)]


def _heads(names: _Pair, beside: str = "") -> str:
    return "".join(f'<th class="num" scope="col">{name}</th>{beside}' for name in _keyed(names))


def _cards(artifacts: tuple[Artifact, Artifact], names: _Pair, changes: PlanDiff) -> str:
    found = {c.what: c for c in changes.sizes}
    cards = []
    for change in changes.sizes:
        if change.what.startswith("pool "):
            bound = found[f"bound of {change.what.removeprefix('pool ')}"]
            notes = [_bound_note(change.before, bound.before), _bound_note(change.after, bound.after)]
            cards.append(_card(names, change, kib, notes))
    cycles = found.get("estimated NPU cycles")
    if cycles is not None:
        shares = [busy(artifact) for artifact in artifacts]
        notes = [
            ", ".join(filter(None, (_milliseconds(a), f"{percent(s, 1)} of its peak" if s else "")))
            for a, s in zip(artifacts, shares, strict=True)
        ]
        alike = not _SYSTEM & {name for name, _, _ in changes.options}
        cards.append(_card(names, cycles, lambda n: f"{n:,.0f}", notes, alike))
    old, new = (artifact.constants_bytes + artifact.stream_bytes for artifact in artifacts)
    notes = [f"of it {kib(artifact.stream_bytes)} command streams" for artifact in artifacts]
    cards.append(_card(names, Change("read-only data", old, new), kib, notes))
    return f'<section class="cards" aria-label="Summary">{"".join(cards)}</section>'


def _milliseconds(artifact: Artifact) -> str:
    if artifact.timing is None or not artifact.estimated_cycles:
        return ""
    return f"{artifact.timing.milliseconds(artifact.estimated_cycles):.3f} ms at {artifact.timing.clock_hz / 1e6:g} MHz"


def _bound_note(used: int | None, bound: int | None) -> str:
    if used is None or bound is None or not used:
        return ""
    return "at its bound" if used == bound else f"{used - bound:,} above its bound"


def _card(names: _Pair, change: Change, text: Callable[[float], str], notes: Sequence[str], alike: bool = True) -> str:
    """`alike`: whether less is better, which it is not where cycles are of different chips or memories."""
    most = max(change.before or 0, change.after or 0, 1)
    rows = []
    for side, name, value, note in zip(_CLASSES, names, (change.before, change.after), notes, strict=True):
        number = "-" if value is None else text(value)
        rows.append(
            f"<span title={quoteattr(name)}>{_key(side)}{escape(name)}</span>"
            f'<span class="big">{number}</span>'
            f'<div class="meter"><i class="{side}" style="width:{100 * (value or 0) / most:.2f}%"></i></div>'
            + (f'<span class="note">{escape(note)}</span>' if note else "")
        )
    badge = "same" if not change.by else percent(change.by, change.before or 0) if change.before else signed(change.by)
    tone = "" if not change.by or not alike else "good" if change.by < 0 else "warn"
    sign = "+" if change.by > 0 and change.before else ""
    return (
        f'<div class="card"><div class="label">{escape(change.what)}<span class="badge {tone}">{sign}{badge}</span>'
        f'</div><div class="pair">{"".join(rows)}</div></div>'
    )


def _maps(artifacts: tuple[Artifact, Artifact], names: _Pair) -> str:
    scale = {
        pool: max(usage.used_bytes for a in artifacts for usage in a.plan.usage if usage.pool == pool)
        for pool in dict.fromkeys(usage.pool for a in artifacts for usage in a.plan.usage)
    }
    present = {b.kind for a in artifacts for b in a.problem.buffers}
    legend = "".join(
        f'<span><i style="background:{KIND_COLOURS[k]}"></i>{escape(KIND_LABELS[k])}</span>'
        for k in BufferKind
        if k in present
    )
    views = [(a.problem, pool) for a in artifacts for pool in memory_view(a.problem, a.plan).pools]
    if any(True for problem, pool in views for _ in shared_areas(problem, pool)):
        legend += '<span><i class="shared"></i>shared on purpose</span>'
    columns = "".join(
        f"<div><h3>{name}</h3>{svg_inline(a.problem, a.plan, scale)}</div>"
        for name, a in zip(_keyed(names), artifacts, strict=True)
    )
    return (
        '<section id="maps" class="panel"><div class="bar"><h2>Memory maps</h2><span class="quiet">addresses have one '
        f'scale; time is program order</span></div><div class="legend">{legend}</div>'
        f'<div class="sides">{columns}</div><svg width="0" height="0" aria-hidden="true">{HATCH}</svg></section>'
    )


def _options(names: _Pair, changes: PlanDiff) -> str:
    if not changes.options:
        return ""
    rows = [[name, escape(old), escape(new)] for name, old, new in changes.options]
    return _panel("asked", "Options that differ", _table(f'<th scope="col">option</th>{_heads(names)}', rows))


def _numbers(names: _Pair, changes: PlanDiff) -> str:
    rows = [
        [c.what, *("-" if v is None else f"{v:,}" for v in (c.before, c.after)), _change(c.by), _share(c)]
        for c in changes.sizes
    ]
    heads = f'<th scope="col"></th>{_heads(names)}<th class="num" scope="col">change</th><th class="num"></th>'
    return _panel("numbers", "Numbers", _table(heads, rows))


def _share(change: Change) -> str:
    return percent(change.by, change.before) if change.before and change.by else ""


def _change(by: int) -> str:
    tone = "less" if by < 0 else "more" if by else "quiet"
    return f'<span class="{tone}">{signed(by)}</span>'


def _work(names: _Pair, work: tuple[WorkChange, ...]) -> str:
    if not work:
        return ""
    kinds = by_kind(work)
    most = max(max(c.before.cycles, c.after.cycles) for c in kinds) or 1
    lines = []
    for kind in kinds:
        lines.append(_work_row(kind, kind.kind, "kind", most))
        sizes = [c for c in work if c.kind == kind.kind and c.output]
        if len(sizes) > 1:
            lines += [_work_row(c, f"to {c.output}", "size", most) for c in sizes]
        elif sizes:
            lines[-1] = _work_row(kind, f"{kind.kind} to {sizes[0].output}", "kind", most)
    heads = _heads(names, '<th class="num" scope="col">cycles</th>')
    table = (
        f'<div class="plain"><table><thead><tr><th scope="col">operation</th>{heads}<th class="num" scope="col">change'
        f'</th><th scope="col"></th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )
    hint = "estimated cycles by which operations make the inference longer; they add up to the estimate"
    return _panel("work", "The NPU's work", table, hint)


def _work_row(change: WorkChange, name: str, kind: str, most: int) -> str:
    both = (change.before, change.after)
    cells = "".join(f'<td class="num">{n}</td><td class="num">{c}</td>' for n, c in map(_cells, both))
    bars = "".join(
        f'<div class="meter"><i class="{side}" style="width:{100 * w.cycles / most:.2f}%"></i></div>'
        for side, w in zip(_CLASSES, both, strict=True)
    )
    return (
        f'<tr class="{kind}"><th scope="row">{escape(name)}</th>{cells}<td class="num">{_change(change.by)}</td>'
        f'<td class="bars">{bars}</td></tr>'
    )


def _cells(work: NpuWork) -> tuple[str, str]:
    return (f"{work.count:,} x", f"{work.cycles:,}") if work.count else ("-", "-")


def _buffers(changes: PlanDiff) -> str:
    if not changes.buffers:
        return ""
    rows = [[b.buffer, b.what, escape(b.detail)] for b in changes.buffers]
    table = _table('<th scope="col">buffer</th><th class="num">what</th><th class="num">how</th>', rows)
    counts = ", ".join(f"{n:,} {what}" for what, n in changes.kinds.items())
    return _panel("buffers", "Buffers", f"<details><summary>{escape(counts)}</summary>{table}</details>")


def _panel(name: str, heading: str, content: str, hint: str = "") -> str:
    hint_html = f'<span class="quiet">{escape(hint)}</span>' if hint else ""
    bar = f'<div class="bar"><h2>{escape(heading)}</h2>{hint_html}</div>'
    return f'<section id="{name}" class="panel">{bar}{content}</section>'


def _table(heads: str, rows: Sequence[Sequence[str]]) -> str:
    """A table whose first cells are headings (escaped here) and whose others are HTML."""
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f'<td class="num">{c}</td>' for c in row[1:]) + "</tr>"
        for row in rows
    )
    return f'<div class="plain"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
