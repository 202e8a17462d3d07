"""`npu-memplan plan` and `verify`: a problem file in, a verified plan out, or a plan checked, without TVM.

Invariant: the plan written is the plan shown, and both were verified. Exit code 0 means that every constraint was
checked and holds, 1 that no plan fits or a constraint is broken, 2 that a file is unusable.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from ..artifact.files import read_plan, read_problem, with_capacities, write_plan
from ..command_line import PLACE
from ..planners import PlanningError, plan, planner_names
from ..problem import Plan, PlanStatus, Problem, used_bytes
from ..problem.json import plan_to_json
from ..sizes import count_text, format_size
from ..text_table import align_rows
from ..verify import verify

_SHOWN = 50  # violations, of all


@click.command("plan")
@click.argument("problem", type=PLACE)
@click.option("--capacity", multiple=True, metavar="[POOL=]SIZE", help="Hard size of the first pool, or of a named "
              "one; e.g. 96KiB, sram=96KiB.")  # fmt: skip
@click.option(
    "--planner",
    metavar="NAME",
    help=f"{', '.join(planner_names())}; without one: fit where a --capacity is given, else auto.",
)
@click.option("--least", is_flag=True, help="With --capacity: go on to the least height, do not stop where it fits.")
@click.option("--time-limit", type=float, metavar="S", help="Seconds to search; the best plan so far is kept.")
@click.option("--node-budget", type=int, metavar="N", help="Units of work; the answer then depends on no clock.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--incumbent", type=PLACE, help="A known plan never to be worse than.")
@click.option("-o", "--output", type=PLACE, help="Plan to write: .csv (MiniMalloc's) or .json.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(
    problem: Path,
    capacity: tuple[str, ...],
    planner: str | None,
    least: bool,
    time_limit: float | None,
    node_budget: int | None,
    seed: int,
    incumbent: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan PROBLEM, a CSV (id,lower,upper,size[,alignment][,gaps][,offset]) or JSON file, or
    plan.json of a compiled model."""
    if planner is None:
        planner = "fit" if capacity and not least else "auto"
    elif least and planner not in ("auto", "optimal"):
        raise click.UsageError(f"--least and --planner {planner} contradict each other; give one of them")
    given = with_capacities(read_problem(problem), capacity)
    known = None if incumbent is None else read_plan(incumbent, given)
    started = time.monotonic()
    try:
        answer = plan(given, planner, time_limit, seed, node_budget, known)
    except PlanningError as error:
        if as_json:
            click.echo(json.dumps(_failure(error)))
        click.echo(f"npu-memplan: {error}", err=True)
        sys.exit(1)
    elapsed = time.monotonic() - started
    if output is not None:
        write_plan(output, given, answer)
    if as_json:
        click.echo(json.dumps(plan_to_json(answer)))
    else:
        _show(given, answer, elapsed)
        if output is not None:
            click.echo(f"written to {output}")


def _failure(error: PlanningError) -> dict[str, object]:
    details = {name: value for name, value in asdict(error).items() if name not in ("message", "proven", "source")}
    return {"status": "infeasible" if error.proven else "unknown", **details, "excess_bytes": error.excess_bytes}


def _show(problem: Problem, answer: Plan, elapsed: float) -> None:
    """A table of the pools, and one line that says what the plan is."""
    rows = [("pool", "capacity", "used", "lower bound", "above bound")]
    for pool, usage in zip(problem.pools, answer.usage, strict=True):
        over = usage.used_bytes - usage.lower_bound_bytes
        share = f"{over / usage.lower_bound_bytes:.2%}" if usage.lower_bound_bytes else "0.00%"
        capacity = "unbounded" if pool.size_bytes is None else format_size(pool.size_bytes)
        above = f"{over} bytes ({share})" if over else "none"
        rows.append((pool.name, capacity, format_size(usage.used_bytes), format_size(usage.lower_bound_bytes), above))
    click.echo(f"{problem.name}: {len(problem.buffers)} buffers, planner {answer.planner}, {elapsed:.2f} s")
    click.echo("\n".join(align_rows(rows, right={1, 2, 3, 4})))
    if answer.status is PlanStatus.OPTIMAL:
        click.echo("optimal: every pool is at a bound that no plan can go below")
    elif answer.planner == "fit" and not answer.note:
        click.echo("feasible: it fits, and there the search stopped; --least goes on")
    else:
        ended = f", the budget ({answer.budget}) ended the search" if answer.stopped_early else ""
        click.echo(f"feasible: not proven least{ended}")
    if answer.note:
        click.echo(f"note: {answer.note}")


@click.command("verify")
@click.argument("problem", type=PLACE)
@click.argument("plan", type=PLACE)
@click.option("--capacity", multiple=True, metavar="[POOL=]SIZE", help="Hard size of the first pool, or of a named "
              "one; e.g. 96KiB, sram=96KiB.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the violations as JSON.")
def verify_command(problem: Path, plan: Path, capacity: tuple[str, ...], as_json: bool) -> None:
    """Check PLAN (.csv with a column offset, or .json) against PROBLEM (.csv or .json);
    plan.json of a compiled model is both."""
    given = with_capacities(read_problem(problem), capacity)
    answer = read_plan(plan, given)
    violations = verify(given, answer)
    if as_json:
        click.echo(json.dumps({"valid": not violations, "violations": msgspec.to_builtins(violations)}))
    elif violations:
        click.echo(f"{count_text(len(violations), 'violated constraint')}:")
        click.echo("\n".join(align_rows([(v.constraint.value, v.message) for v in violations[:_SHOWN]], right=set())))
        if len(violations) > _SHOWN:
            click.echo(f"and {len(violations) - _SHOWN} more")
    else:
        heights = used_bytes(given, answer.placements)
        uses = ", ".join(f"{name} {format_size(height)}" for name, height in heights.items())
        click.echo(f"valid: {len(answer.placements)} placements; {uses}")
    if violations:
        sys.exit(1)
