"""Networks compiled and placed in one memory.

Invariant: every network's plan is its part of one verified joint plan. Each network's own placement is kept as a whole
where the memory has room for that, since its copies were timed for it; otherwise all are planned anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import planners
from ..artifact.application import ApplicationError
from ..names import model_name
from ..options import CompileOptions, Resident
from ..planners import prefetch
from ..planners.given import with_bounds
from ..problem import Plan, Problem, used_bytes
from ..stages import Planned
from ..tuning.ranking import Ranking
from ..verify import check_own, verify
from .joint import KEPT, join, plan_of, stack, take

FOLDER = "src"  # of the application's own C, beside the networks'
_SLACK = 1.01  # of the fewest cycles: within these, fewer bytes are better
_NODES = 20_000  # of a joint plan
_ROUNDS = 4  # of compiling for smaller pools, where networks that are as large as the pool have no room together

Compile = Callable[[Path, CompileOptions], Planned]
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Linked:
    """Networks with their parts of the plan of them all."""

    networks: Mapping[str, Planned]
    problem: Problem
    plan: Plan
    alone_bytes: Mapping[str, Mapping[str, int]]  # by network and pool: what each needs by itself


def link(
    models: Sequence[Path],
    options: CompileOptions,
    name: str,
    compile_network: Compile,
    together: Collection[tuple[str, str]] = (),
    rates: Weights | None = None,
) -> Linked:
    """The networks of `models` in the pools of `options`; all are compiled for these, or for less where they do not fit
    together.

    `compile_network` makes one network's program. `rates`: how often a network runs, 1 without. Raises
    `ApplicationError`, or `PlanningError` where there is no room.
    """
    names = _names(models, options)
    _check(names, together, rates or {}, options)
    weights = {network: (rates or {}).get(network, 1.0) for network in names}
    requested = Resident.parse(options.resident)
    own = replace(options, resident="none", pools={} if requested.most_bytes != 0 else options.pools)
    for more in reversed(range(_ROUNDS)):
        made: Mapping[str, Planned] = {n: _in_pools(compile_network(model, own), options) for n, model in names.items()}
        alone = {network: {u.pool: u.used_bytes for u in planned.plan.usage} for network, planned in made.items()}
        try:
            made, problem, plan = place(made, name, together, weights)
        except planners.PlanningError as error:  # each used the pool as if it were alone
            if not more or not own.pools.get(error.pool):
                raise
            share = error.available_bytes / error.required_bytes
            own = replace(own, pools={**own.pools, error.pool: int(own.pools[error.pool] * share)})
        else:
            break
    if requested.most_bytes != 0:
        from .residents import with_residents

        made = with_residents(made, plan, requested, weights)
        made, problem, plan = place(made, name, together, weights)
    return Linked(made, problem, plan, alone)


def place(
    networks: Mapping[str, Planned], name: str, together: Collection[tuple[str, str]], weights: Weights
) -> tuple[Mapping[str, Planned], Problem, Plan]:
    """The networks on their places in one memory, with the problem and plan of all."""
    problems = {network: planned.extracted.problem for network, planned in networks.items()}
    problem = join(name, problems, together)
    plans = []
    first = next(iter(networks.values())).plan
    stacked = plan_of(problem, stack({n: (p.extracted.problem, p.plan) for n, p in networks.items()}, together), first)
    if not verify(problem, stacked):
        plans.append(with_bounds(problem, stacked))
    if not together or not plans:
        try:
            plans.append(_planned_anew(problem, first.seed))
        except planners.PlanningError:
            if not plans:
                raise
    found = [({n: _taken(n, planned, plan) for n, planned in networks.items()}, plan) for plan in plans]
    cycles = [sum(weights[n] * _cycles(planned) for n, planned in parts.items()) for parts, _ in found]
    near = [one for one, cost in zip(found, cycles, strict=True) if cost <= _SLACK * min(cycles)]
    parts, plan = min(near, key=lambda one: sum(used_bytes(problem, one[1].placements).values()))
    check_own(problem, plan)
    for planned in parts.values():
        check_own(planned.extracted.problem, planned.plan)
    return parts, problem, plan


def _planned_anew(problem: Problem, seed: int) -> Plan:
    answer = planners.plan(problem, seed=seed, node_budget=_NODES)
    return prefetch.run_ahead(problem, answer)


def _taken(network: str, planned: Planned, joint: Plan) -> Planned:
    problem = planned.extracted.problem
    return replace(planned, plan=with_bounds(problem, take(network, problem, joint)))


def _cycles(planned: Planned) -> int:
    memory_map = planned.extracted.loaded.request.options.memory_map()
    return 0 if memory_map is None else Ranking(memory_map)(planned)[0]


def _in_pools(planned: Planned, options: CompileOptions) -> Planned:
    """`planned` with the pools of the application."""
    extracted, loaded = planned.extracted, planned.extracted.loaded
    sizes = {pool.name: pool.size_bytes for pool in options.resolved().planned_pools()}
    problem = replace(
        extracted.problem,
        pools=tuple(replace(p, size_bytes=sizes.get(p.name, p.size_bytes)) for p in extracted.problem.pools),
    )
    target = replace(loaded.request.options, pools=options.pools)
    loaded = replace(loaded, request=replace(loaded.request, options=target))
    return replace(planned, extracted=replace(extracted, problem=problem, loaded=loaded))


def kept_bytes(problem: Problem) -> int:
    """What a network keeps between its runs."""
    return sum(buffer.size_bytes for buffer in problem.buffers if buffer.kind in KEPT)


def _names(models: Sequence[Path], options: CompileOptions) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for model in models:
        name = model_name(model.stem)
        if name.lower() == FOLDER:
            raise ApplicationError(f"{model} would be called {name}, as the folder of the application's C; rename it")
        same = next((other for other in found if other.upper() == name.upper()), "")
        if same:
            raise ApplicationError(
                f"{found[same]} and {model} would both be called {name} in C; rename one of the files"
            )
        found[name] = model
    if options.name or options.constant_pools or options.launch != "small-driver":
        raise ApplicationError("link takes no --name, --constant-pool and --launch for its networks; leave them out")
    return found


def _check(
    names: Collection[str], together: Collection[tuple[str, str]], rates: Weights, options: CompileOptions
) -> None:
    for pair in together:
        if pair[0] == pair[1]:
            raise ApplicationError(f"--together {','.join(pair)} names one network twice")
    unknown = [n for n in (*(n for pair in together for n in pair), *rates) if n not in names]
    if unknown:
        raise ApplicationError(f"{unknown[0]!r} is none of the networks, which are: {', '.join(names)}")
    wrong = [n for n, rate in rates.items() if rate <= 0]
    if wrong:
        raise ApplicationError(
            f"--rate {wrong[0]}={rates[wrong[0]]:g} is not above 0; a network that never runs is not linked"
        )
