"""Networks compiled and placed in one memory.

Invariant: every network's plan is its part of one verified joint plan. Each network's own placement is kept as a whole
where the memory has room for that, since its copies were timed for it; otherwise all are planned anew. An artifact,
which was compiled before, stays where it is. Resident constants are chosen by the cycles that they save in all networks
together, each counted as often as it runs, and no other buffer is moved for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import planners
from ..artifact.files import Application, ApplicationError, is_application, joint_name
from ..artifact.model import Artifact
from ..names import model_name
from ..options import CompileOptions, Resident
from ..planners import prefetch
from ..planners.bounds import with_bounds
from ..problem import Plan, Problem, used_bytes
from ..stages import Planned
from ..tuning.ranking import Ranking
from ..verify import check_own, verify
from .joint import (
    AUTO,
    KEPT,
    Connection,
    choose_npus,
    connect_networks,
    ends_of,
    joint_problem,
    named_npu,
    npus_of,
    plan_of,
    plan_part,
    stack_plans,
)

FOLDER = "src"  # of the application's own C, next to the networks'
_SLACK = 1.01  # of the fewest cycles: within these, fewer bytes are better
_NODES = 20_000  # of a joint plan
_HIGHEST_RATE = 1_000_000_000
_ROUNDS = 4  # of compiling for smaller pools, where networks that are as large as the pool have no room together

Compile = Callable[[Path, CompileOptions], Planned]
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A network that was compiled before: its artifact, the directory that has it, and the NPU it is for."""

    artifact: Artifact
    folder: Path
    npu: str


Network = Planned | Given


@dataclass(frozen=True, slots=True)
class Between:
    """The relations between networks: which may run together, which outputs are inputs."""

    together: Collection[tuple[str, str]] = ()
    connected: tuple[Connection, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Linked:
    """Networks with their parts of the plan of them all."""

    networks: Mapping[str, Network]
    problem: Problem
    plan: Plan
    alone_bytes: Mapping[str, Mapping[str, int]]  # by network and pool: what each needs by itself
    connected: tuple[Connection, ...] = ()
    npus: Mapping[str, str] = field(default_factory=dict)  # by network, where NPUs were named or there are several


@dataclass(frozen=True, slots=True)
class Compiler:
    """Makes programs of `models` for the NPUs of a board, each once."""

    models: Mapping[str, Path]
    npus: Mapping[str, CompileOptions]
    compile_network: Compile
    _made: dict[object, Planned] = field(default_factory=dict)

    def plan_network(self, network: str, npu: str, pools: Mapping[str, int]) -> Planned:
        """The program of `network`, searched for `pools`, in the pools of the application."""
        key, options = (network, npu, tuple(pools.items())), self.npus[npu]
        if key not in self._made:
            own = replace(options, resident="none", pools=dict(pools))
            self._made[key] = _in_pools(self.compile_network(self.models[network], own), options)
        return self._made[key]


def link(
    models: Sequence[Path],
    options: CompileOptions,
    name: str,
    compile_network: Compile,
    together: Collection[tuple[str, str]] = (),
    rates: Weights | None = None,
    wanted: Collection[tuple[str, str]] = (),
    npus: Mapping[str, str] | None = None,
) -> Linked:
    """The networks of `models`, files or artifacts, in the pools of `options`; files are compiled for these, or for
    less where they do not fit together.

    `compile_network` makes one network's program. `rates`: how often a network runs, 1 without. `wanted`: outputs that
    are other networks' inputs, as NETWORK:TENSOR. `npus`: on which NPU of the board a network runs, the board's own
    without; of "", `AUTO` for all that are not named. Raises `ApplicationError`, or `PlanningError` where there is no
    room.
    """
    names, npus = network_models(models, options), npus or {}
    _check_request(names, together, rates or {}, npus)
    repeated = {network: (rates or {}).get(network, 1.0) for network in names}
    requested, known = Resident.parse(options.resident), npus_of(options)
    given = {n: _given_artifact(path, known) for n, path in names.items() if path.is_dir()}
    _check_given(given, together, options)
    compiler = Compiler(names, known, compile_network)
    pools = {} if requested.most_bytes != 0 else options.pools
    on = _assign_npus(compiler, given, npus, Between(together), repeated, pools)
    for more in reversed(range(_ROUNDS)):
        made: Mapping[str, Network] = {
            n: given[n] if n in given else compiler.plan_network(n, on[n], pools) for n in names
        }
        weights = _by_time(made, repeated)
        alone = {n: {u.pool: u.used_bytes for u in problem_and_plan(one)[1].usage} for n, one in made.items()}
        ends = (
            {n: ends_of(one.artifact if isinstance(one, Given) else one) for n, one in made.items()} if wanted else {}
        )
        between = Between(together, connect_networks(wanted, ends, together))
        try:
            made, problem, plan = place_networks(made, name, between, weights, options)
        except planners.PlanningError as error:  # each used the pool as if it were alone
            if not more or not pools.get(error.pool):
                raise
            share = error.available_bytes / error.required_bytes
            used = max(sizes.get(error.pool, 0) for sizes in alone.values())  # less than the pool changes nothing
            pools = {**pools, error.pool: int(min(pools[error.pool], used) * share)}
        else:
            break
    compiled = {n: one for n, one in made.items() if isinstance(one, Planned)}
    if requested.most_bytes != 0 and compiled:
        made = {**made, **with_residents(compiled, plan, requested, weights)}
        made, problem, plan = place_networks(made, name, between, weights, options)
    return Linked(made, problem, plan, alone, between.connected, on if npus or len({*on.values()}) > 1 else {})


def _assign_npus(
    compiler: Compiler,
    given: Mapping[str, Given],
    wanted: Mapping[str, str],
    between: Between,
    rates: Weights,
    pools: Mapping[str, int],
) -> dict[str, str]:
    """The NPU of each network: named by the user, the one that an artifact is for, or the one that ends first."""
    known = compiler.npus
    auto = wanted.get("") == AUTO
    if auto and len(known) == 1:
        raise ApplicationError(
            "--npu auto chooses between the NPUs of a board, and there is one; name a board that has several with "
            "--options '--board NAME', or the other boards of its chip in the board file (beside)"
        )
    possible = {n: list(known) if auto else [next(iter(known))] for n in compiler.models}
    possible |= {n: [named_npu(npu, known)] for n, npu in wanted.items() if n}
    for n, one in given.items():
        if n in wanted and possible[n] != [one.npu]:
            raise ApplicationError(f"{one.folder} is compiled for {one.npu}; leave --npu {n} out, or give the model")
        possible[n] = [one.npu]
    if all(len(npus) == 1 for npus in possible.values()):
        return {n: npus[0] for n, npus in possible.items()}

    def inference_s(n: str, npu: str) -> float:
        one: Network = given[n] if n in given else compiler.plan_network(n, npu, pools)
        return rates[n] * _npu_cycles(one) / (_clock_hz(one) or 1.0)

    times = {n: {npu: inference_s(n, npu) for npu in npus} for n, npus in possible.items()}
    return choose_npus(times, between.together)


def _by_time(networks: Mapping[str, Network], rates: Weights) -> dict[str, float]:
    """The rates, larger where a cycle takes longer than one of the fastest NPU."""
    clocks = {n: _clock_hz(one) for n, one in networks.items()}
    most = max(clocks.values())
    return {n: rate * (most / clocks[n] if clocks[n] else 1.0) for n, rate in rates.items()}


def problem_and_plan(network: Network) -> tuple[Problem, Plan]:
    """The problem and the plan of a network by itself; what an artifact has stays where it is."""
    if isinstance(network, Planned):
        return network.extracted.problem, network.plan
    problem, plan = network.artifact.problem, network.artifact.plan
    at = {p.buffer: (p.pool, p.offset_bytes) for p in plan.placements}
    return replace(problem, buffers=tuple(replace(b, fixed=at[b.name]) for b in problem.buffers)), plan


def place_networks(
    networks: Mapping[str, Network], name: str, between: Between, weights: Weights, options: CompileOptions
) -> tuple[Mapping[str, Network], Problem, Plan]:
    """The networks on their places in one memory, with the problem and plan of all."""
    both = {network: problem_and_plan(one) for network, one in networks.items()}
    sizes = {pool.name: pool.size_bytes for pool in options.resolve_defaults().planned_pools()}
    together = between.together
    problem = joint_problem(
        name, {network: problem for network, (problem, _) in both.items()}, together, between.connected
    )
    problem = replace(problem, pools=tuple(replace(p, size_bytes=sizes.get(p.name)) for p in problem.pools))
    plans = []
    first = next(iter(both.values()))[1]
    stacked = plan_of(problem, stack_plans(both, together), first)
    if not verify(problem, stacked):
        plans.append(with_bounds(problem, stacked))
    if not together or not plans:
        try:
            plans.append(_planned_anew(problem, first.seed))
        except planners.PlanningError:
            if not plans:
                raise
    found = [({n: _take_placements(n, one, plan) for n, one in networks.items()}, plan) for plan in plans]
    cycles = [sum(weights[n] * _npu_cycles(one) for n, one in parts.items()) for parts, _ in found]
    near = [one for one, cost in zip(found, cycles, strict=True) if cost <= _SLACK * min(cycles)]
    parts, plan = min(near, key=lambda one: sum(used_bytes(problem, one[1].placements).values()))
    check_own(problem, plan)
    for one in parts.values():
        check_own(*problem_and_plan(one))
    return parts, problem, plan


def _planned_anew(problem: Problem, seed: int) -> Plan:
    answer = planners.plan(problem, seed=seed, node_budget=_NODES)
    return prefetch.run_ahead(problem, answer)


def _take_placements(name: str, network: Network, joint: Plan) -> Network:
    if isinstance(network, Given):
        return network
    problem = network.extracted.problem
    return replace(network, plan=with_bounds(problem, plan_part(name, problem, joint)))


def _npu_cycles(network: Network) -> int:
    if isinstance(network, Given):
        return network.artifact.estimated_cycles or 0
    memory_map = network.extracted.loaded.request.options.memory_map()
    return 0 if memory_map is None else Ranking(memory_map).npu_cycles(network)


def _clock_hz(network: Network) -> float:
    """The clock of the NPU; 0: unknown."""
    if isinstance(network, Given):
        return network.artifact.timing.clock_hz if network.artifact.timing else 0.0
    memory_map = network.extracted.loaded.request.options.memory_map()
    return 0.0 if memory_map is None else memory_map.clock_hz


def _given_artifact(folder: Path, npus: Mapping[str, CompileOptions]) -> Given:
    """The artifact in `folder`; `ApplicationError` where it is not for the pools and one of `npus`."""
    artifact = Artifact.load(folder)
    target, options = artifact.target, next(iter(npus.values()))
    pools = [pool.name for pool in options.resolve_defaults().planned_pools()]
    found = [npu for npu, one in npus.items() if one.resolve_defaults().accelerator == target.accelerator]
    if [pool.name for pool in artifact.problem.pools] != pools or not found:
        own = ", ".join(pool.name for pool in artifact.problem.pools)
        raise ApplicationError(
            f"{folder} is compiled for {target.accelerator} with the pools {own}, the application is for "
            f"{' and '.join(one.resolve_defaults().accelerator for one in npus.values())} with {', '.join(pools)}; "
            "compile it "
            "again, or give its options with --options"
        )
    npu = next((npu for npu in found if npus[npu].resolve_defaults().board == target.board), found[0])
    for pool in options.resolve_defaults().planned_pools():
        if pool.size_bytes is not None and artifact.pool_bytes(pool.name) > pool.size_bytes:
            raise ApplicationError(
                f"{folder} needs {artifact.pool_bytes(pool.name):,} bytes of pool {pool.name}, which has "
                f"{pool.size_bytes:,}; give more with --pool, or the model in its place"
            )
    if artifact.target.launch != "small-driver":
        raise ApplicationError(f"{folder} is compiled with --emit {artifact.target.launch}; link takes none")
    return Given(artifact, folder, npu)


def _check_given(given: Mapping[str, Given], together: Collection[tuple[str, str]], options: CompileOptions) -> None:
    """`ApplicationError` where artifacts, which cannot move, need the same bytes at the same time."""
    if not given:
        return
    pairs = [pair for pair in together if given.keys() >= set(pair)]
    problem = joint_problem("", {n: problem_and_plan(one)[0] for n, one in given.items()}, pairs)
    sizes = {pool.name: pool.size_bytes for pool in options.resolve_defaults().planned_pools()}
    problem = replace(problem, pools=tuple(replace(p, size_bytes=sizes.get(p.name)) for p in problem.pools))
    placements = [
        replace(p, buffer=joint_name(n, p.buffer)) for n, one in given.items() for p in one.artifact.plan.placements
    ]
    found = verify(problem, plan_of(problem, placements, next(iter(given.values())).artifact.plan))
    if found:
        raise ApplicationError(
            f"artifacts stay where they lie, and these cannot: {found[0].message}; give the models in their place"
        )


def _in_pools(planned: Planned, options: CompileOptions) -> Planned:
    """`planned` with the pools of the application."""
    extracted, loaded = planned.extracted, planned.extracted.loaded
    sizes = {pool.name: pool.size_bytes for pool in options.resolve_defaults().planned_pools()}
    problem = replace(
        extracted.problem,
        pools=tuple(replace(p, size_bytes=sizes.get(p.name, p.size_bytes)) for p in extracted.problem.pools),
    )
    target = replace(loaded.request.options, pools=options.pools)
    loaded = replace(loaded, request=replace(loaded.request, options=target))
    return replace(planned, extracted=replace(extracted, problem=problem, loaded=loaded))


def kept_bytes(problem: Problem) -> int:
    """The bytes that a network keeps between its runs."""
    return sum(buffer.size_bytes for buffer in problem.buffers if buffer.kind in KEPT)


def network_models(models: Sequence[Path], options: CompileOptions) -> dict[str, Path]:
    """The file or artifact of each network; `ApplicationError` where names or options cannot be linked."""
    found: dict[str, Path] = {}
    for model in models:
        if is_application(model):
            inside = ", ".join(str(model / network.name) for network in Application.load(model).networks)
            raise ApplicationError(f"{model} has linked networks; give them by themselves: {inside}")
        name = Artifact.load(model).name if model.is_dir() else model_name(model.stem)
        if name.lower() == FOLDER:
            raise ApplicationError(f"{model} would be called {name}, as the folder of the application's C; rename it")
        same = next((other for other in found if other.upper() == name.upper()), "")
        if same:
            raise ApplicationError(
                f"{found[same]} and {model} would both be called {name} in C; rename one of the files"
            )
        found[name] = model
    if options.name or options.constant_pools or options.launch != "small-driver":
        raise ApplicationError("link takes no --name, --constant-pool and --emit for its networks; leave them out")
    return found


def _check_request(
    names: Collection[str], together: Collection[tuple[str, str]], rates: Weights, npus: Mapping[str, str]
) -> None:
    for pair in together:
        if pair[0] == pair[1]:
            raise ApplicationError(f"--together {','.join(pair)} names one network twice")
    named = (*(n for pair in together for n in pair), *rates, *(n for n in npus if n))
    unknown = [n for n in named if n not in names]
    if unknown:
        raise ApplicationError(f"{unknown[0]!r} is none of the networks, which are: {', '.join(names)}")
    wrong = [n for n, rate in rates.items() if not 0 < rate <= _HIGHEST_RATE]
    if wrong:
        raise ApplicationError(
            f"--rate {wrong[0]}={rates[wrong[0]]:g} is not above 0, or above {_HIGHEST_RATE:,}; a network that never "
            "runs is not linked"
        )


def with_residents(
    networks: Mapping[str, Planned], plan: Plan, requested: Resident, weights: Mapping[str, float]
) -> dict[str, Planned]:
    """The networks with resident constants in what their joint `plan` leaves of the fast pool."""
    from ..tuning.resident import share_room  # only where constants are to be resident

    made = share_room(list(networks.values()), plan, requested, [weights[name] for name in networks])
    if made is None:
        raise ApplicationError(
            "--resident all does not fit beside the networks, or the pool has no size for --resident auto; give "
            "--pool NAME=SIZE, or leave the choice to --resident auto"
        )
    return dict(zip(networks, made, strict=True))
