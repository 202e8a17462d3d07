"""What `compile` says when a model does not fit its pool.

Invariant: the message has required, available and excess in bytes and KiB, the peak point with its
operation, up to five of the largest buffers there with kind and producer, and the options that need less memory.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from ...knobs import knobs
from ...options import CompileOptions
from ...planners.errors import PlanningError
from ...problem import Problem
from ...sizes import both, kib
from ...text_table import align

SHOWN = 5


def does_not_fit(error: PlanningError, problem: Problem, source: str, options: CompileOptions) -> PlanningError:
    """The same error, told for `npu-memplan compile SOURCE` with resolved `options` and the model `problem.name`."""
    return replace(error, message=does_not_fit_text(error, problem, source, options))


def does_not_fit_text(error: PlanningError, problem: Problem, source: str, options: CompileOptions) -> str:
    """The message, several lines without a newline at the end."""
    certainty = "" if error.proven else f" ({error.source}; a smaller plan is not excluded)"
    lines = [
        f"{problem.name} does not fit pool {error.pool}:",
        f"  required   {both(error.required_bytes)}{certainty}",
        f"  available  {both(error.available_bytes)}",
        f"  excess     {both(error.excess_bytes)}",
    ]
    if error.point is not None:
        where = f", {error.point_label}" if error.point_label else ""
        lines.append(f"the peak is at point {error.point}{where}; the largest buffers there:")
    elif error.largest:
        lines.append("the largest of the buffers that cannot be together:")
    buffers = {b.name: b for b in problem.buffers}
    rows = []
    for buffer, size in error.largest[:SHOWN]:
        known = buffers.get(buffer)
        kind = known.kind.value if known else ""
        producer = f"made by {known.producer or 'the caller'}" if known else ""
        rows.append((buffer, kind, f"{size:,} bytes", f"({kib(size)})", producer))
    lines += align(rows, right={2, 3})
    lines.append("what to try:")
    if any(pool.name == error.pool and pool.read_only for pool in problem.pools):
        lines.append(f"  --constant-pool {error.pool}={error.required_bytes}, if the memory is there")
        lines.append("  one more --constant-pool behind it, for what it does not hold")
        return "\n".join(lines)
    budget = error.available_bytes
    options = replace(options, pools={name: size for name, size in options.pools.items() if name != error.pool})
    given = options.to_cli_options()
    command = shlex.join(["npu-memplan", "compile", source, *(w for option in given for w in option)])
    able = knobs(options, budget, source, searched=error.proven)
    if able:
        lines.append(f"  {command} --fit {error.pool}={budget} -o DIR")
        lines.append("    tries all of these, says what each needs, and takes the cheapest that fits:")
    lines += ["  " + row for row in align([(knob.flags(options, budget), knob.does) for knob in able], right=set())]
    if not error.proven:
        lines.append("  --time-limit SECONDS, for a longer search")
    lines.append(f"  --pool {error.pool}={error.required_bytes}, if the memory is there")
    return "\n".join(lines)
