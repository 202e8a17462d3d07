"""The first screen of a compile: the verdict, bytes and time compared with Vela's, what was selected and why.

Invariant: at most `LINES` lines, however long paths are; what does not fit is in memory.txt, and its notes are counted.
A reason to doubt results is never left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from ...artifact import Artifact
from ...artifact.board_fit import fit_of
from ...artifact.model import CheckVerdict
from ...options import NO_NPU, CompileOptions, Objective
from ...request import FASTER, ONLY_FLOATS, SELECTED, short_selection
from ...sizes import difference_text, percent_text
from ..facts.npu_work import multiplier_use, operations_text
from .compile_result import result_texts, verdict
from .memory_txt import host_work_text

LINES = 8
WIDTH = 100  # columns
_REASONS = 240  # characters


def first_screen(artifact: Artifact, output: Path) -> list[str]:
    """Lines of at most `WIDTH` columns, but for paths and names that are longer; `output`: where the artifact is."""
    last = [f"written to {output}; npu-memplan explain {output} has the memory map"]
    first = _wrap_text(verdict(artifact))
    facts = [_wrap_text(text) for text in _fact_sentences(artifact)]
    notes = [_wrap_text(f"note: {note}") for note in artifact.notes if not _is_fact(note)]
    room = LINES - len(first) - len(last)
    lines, left = list(first), 0
    for index, paragraph in enumerate((*facts, *notes)):
        more = index + 1 < len(facts) + len(notes)  # a line is kept for the count of what is left out
        if not left and len(lines) - len(first) + len(paragraph) + more <= room:
            lines += paragraph
        else:
            left += 1
    if left:
        lines.append(f"{left} more in {output / artifact.files['memory']}" if "memory" in artifact.files else "...")
    return [*lines, *last]


def _is_fact(note: str) -> bool:
    """Whether a note is among the facts."""
    return note.startswith((SELECTED, FASTER)) or note.endswith(ONLY_FLOATS)


def _fact_sentences(artifact: Artifact) -> Iterator[str]:
    """Sentences, the most important first."""
    claims = result_texts(artifact)
    if artifact.check.verdict is CheckVerdict.DIFFERS:
        yield from claims
    yield from (note for note in artifact.notes if note.endswith(ONLY_FLOATS))
    fit = fit_of(artifact)
    if fit is not None and fit.loading:
        yield fit.loading
    yield from _comparison_with_vela(artifact)
    yield from (note for note in artifact.notes if note.startswith(FASTER))
    if artifact.check.verdict is not CheckVerdict.DIFFERS:
        yield from claims
    if artifact.target.accelerator != NO_NPU and not artifact.npu_operations:
        yield from _reasons_on_cpu(artifact)
    if fit is not None:
        memories = (f"{u.memory.name} {u.used_bytes:,} of {u.memory.size_bytes:,} bytes" for u in fit.uses)
        yield f"{fit.board.name}: {', '.join(memories)}"
    target = artifact.target
    chosen = _selected_program(artifact)
    if chosen and artifact.npu_operations:
        yield f"selected: {chosen}"
        yield f"objective: {objective_text(target)}"
    where = "host only" if target.accelerator == NO_NPU else f"{target.accelerator}, {target.memory_mode}"
    share = multiplier_use(artifact)
    used = "" if share is None else f", {percent_text(share, 1)} of the NPU's peak"
    yield f"{where}: {operations_text(artifact)}{used}"
    if artifact.plan.stopped_early:
        yield f"the search was stopped by its budget ({artifact.plan.budget})"
    if artifact.host_layers:
        yield host_work_text(artifact)


def _reasons_on_cpu(artifact: Artifact) -> Iterator[str]:
    """Why the NPU runs nothing, by kind of operator."""
    kinds: dict[str, dict[str, None]] = {}
    for operator in artifact.operators:
        if operator.reason:
            kinds.setdefault(operator.reason, {})[operator.kind] = None
    texts = [f"{', '.join(named)}: {' '.join(reason.split())}" for reason, named in kinds.items()]
    if texts:
        yield textwrap.shorten(f"why: {'; '.join(texts)}", _REASONS, placeholder=" ...")


def _selected_program(artifact: Artifact) -> str:
    """The compiler of the NPU's operations, and the best program that was not taken."""
    taken = next((note.removeprefix(SELECTED) for note in artifact.notes if note.startswith(SELECTED)), "")
    if not taken:
        return {"vela": "Vela's stream", "tvm": "native lowering"}.get(artifact.target.npu_compiler, "")
    best, *others = short_selection(taken).split("; ")
    if artifact.target.resident != "none":
        best += " before --resident"
    return "; ".join((best, *others))


def _comparison_with_vela(artifact: Artifact) -> Iterator[str]:
    """Bytes and time of Vela's own compile, and how this one differs; by the same estimate for both."""
    parts = []
    for pool, theirs in artifact.vela_arena_bytes.items():
        change = difference_text(artifact.pool_bytes(pool), theirs)
        parts.append(f"{pool} {theirs:,} bytes (here {change})")
    whole, velas = artifact.total_milliseconds, artifact.vela_milliseconds
    if whole and velas is not None:
        what = "NPU and CPU" if artifact.host_cycles else "NPU"
        parts.append(f"{what} {velas:.3f} ms by our estimate (here {difference_text(whole[0], velas)})")
    if parts:
        yield f"Vela's own program: {'; '.join(parts)}"


def objective_text(target: CompileOptions) -> str:
    """The objective that the options ask for."""
    objective, place = target.resolved_objective, "the memory of the board" if target.board else "--pool"
    match objective:
        case Objective.BYTES_IN_TIME:
            return f"the fewest bytes in which an inference takes at most {target.max_ms:g} ms (--max-ms)"
        case Objective.CYCLES_IN_POOLS:
            return f"the fewest cycles within {place}"
        case Objective.CYCLES_IN_VELAS_BYTES if target.objective == "auto":
            return f"{objective.value}, then the fewest bytes within 1 % of them"
    return str(objective.value)


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
