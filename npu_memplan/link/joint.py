"""The planning problem of several networks: their NPUs, their connections, and their plan taken apart.

Invariant: time is one network after the other, each between a point at which the caller writes its inputs and one at
which the caller reads its outputs. What a network keeps (states, resident constants) lives at all points, everything
else only at its network's own; so a plan of this problem is right for every order of runs. Networks of different NPUs
run at the same time only where `--together` says so, and then conflict as wholes; all NPUs of a board have the same
pools at the same addresses. An output that another network reads is one with its input: both have one size, nothing
else shares their bytes, and the network that reads them never writes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..artifact.files import ApplicationError, joint_name, tensor_buffers
from ..artifact.model import Artifact
from ..frontend.attributes import quantised_tensors
from ..options import CompileOptions
from ..problem import (
    AccessHistory,
    AliasGroup,
    Buffer,
    BufferAccess,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
    used_bytes,
)
from ..stages import Planned
from ..target_data import Board, board_names, load_board

AUTO = "auto"
_MOST_TRIED = 4096  # assignments of one group of networks; above, the longest networks are assigned first

Times = Mapping[str, Mapping[str, float]]  # by network and NPU: seconds of its runs, by rate


def npus_of(options: CompileOptions) -> dict[str, CompileOptions]:
    """The options for each NPU of the board, by the name of the board file that describes it; the own one first."""
    if not options.board:
        return {"": options}
    own = load_board(options.board)
    found = {own.name: options}
    for board in own.other_boards():
        _check_places(own, board, options.resolve_defaults().memory_mode)
        name = board.name if board.name in board_names() else str(board.path)
        found[board.name] = replace(options, board=name, accelerator=board.accelerator, system_config="")
    return found


def named_npu(name: str, npus: Mapping[str, CompileOptions]) -> str:
    """The board file's name for what the user calls `name`: that, or the accelerator where no two are the same."""
    if npus.keys() == {""}:
        raise ApplicationError(
            f"--npu {name} chooses between the NPUs of a board; name the board with --options '--board NAME'"
        )
    found = [npu for npu, options in npus.items() if name in (npu, options.accelerator)]
    if len(found) != 1 and name not in npus:
        known = ", ".join(f"{npu} ({options.accelerator})" for npu, options in npus.items())
        raise ApplicationError(f"--npu {name} names {'several' if found else 'none'} of the NPUs there are: {known}")
    return name if name in npus else found[0]


def choose_npus(times: Times, together: Collection[tuple[str, str]]) -> dict[str, str]:
    """Choose for each network one of the NPUs that `times` has for it, so that all runs end first.

    Networks that may run together, directly or by others, are a group, which takes as long as its busiest NPU; groups
    run one after the other.
    """
    chosen: dict[str, str] = {}
    for group in _connected_groups(list(times), together):
        if len(group) == 1:
            chosen[group[0]] = min(times[group[0]], key=times[group[0]].__getitem__)
        else:
            chosen |= _balance_npus(group, times)
    return chosen


def _balance_npus(group: Sequence[str], times: Times) -> dict[str, str]:
    """The choice of NPUs with the least time of the group's busiest NPU, then of all NPUs together."""

    def busy_times(npus: Iterable[str]) -> tuple[float, float]:
        loads: dict[str, float] = {}
        for network, npu in zip(group, npus, strict=False):
            loads[npu] = loads.get(npu, 0.0) + times[network][npu]
        return max(loads.values()), sum(loads.values())

    if math.prod(len(times[network]) for network in group) <= _MOST_TRIED:
        return dict(zip(group, min(itertools.product(*(times[n] for n in group)), key=busy_times), strict=True))
    group = sorted(group, key=lambda n: -min(times[n].values()))
    npus: list[str] = []
    for network in group:
        npus.append(min(times[network], key=lambda npu: busy_times([*npus, npu])))
    return dict(zip(group, npus, strict=True))


def _connected_groups(names: Sequence[str], together: Collection[tuple[str, str]]) -> Iterator[list[str]]:
    left = list(names)
    while left:
        group = [left.pop(0)]
        for one in group:  # grows while it is walked
            near = [other for other in left if (one, other) in together or (other, one) in together]
            group += near
            left = [other for other in left if other not in near]
        yield group


def _check_places(own: Board, other: Board, memory_mode: str) -> None:
    """`ApplicationError` where a pool would not be the same bytes for both NPUs."""

    def region_places(board: Board) -> dict[str, list[tuple[int, int]]]:
        found = board.memory_placement(memory_mode).pools
        return {p: [(board.memory(m).base, board.memory(m).size_bytes) for m in names] for p, names in found.items()}

    if region_places(own) != region_places(other):
        raise ApplicationError(
            f"boards {own.name} and {other.name} place the pools of {memory_mode} in different memories, and networks "
            f"of both NPUs share them; give both files one [placement.{memory_mode}]"
        )


KEPT = (BufferKind.STATE, BufferKind.RESIDENT)
"""Kinds of buffers that keep their content while other networks run."""

Connection = tuple[str, str]  # an output and the input of another network, which is given it, by their joint names


def joint_problem(
    name: str,
    networks: Mapping[str, Problem],
    together: Collection[tuple[str, str]] = (),
    connected: Collection[Connection] = (),
) -> Problem:
    """The problem of all `networks`; pairs of `together` may run at the same time."""
    parts, first = [], 0
    last = sum(_point_count(problem) for problem in networks.values())
    for network, problem in networks.items():
        parts.append(_shift_problem(network, problem, first, last))
        first += _point_count(problem)
    shared = {end for connection in connected for end in connection}
    always = (Lifetime(0, last),)
    return Problem(
        tuple(replace(b, lifetimes=always) if b.name in shared else b for part in parts for b in part.buffers),
        next(iter(networks.values())).pools,
        (*(pair for part in parts for pair in part.conflicts), *_conflict_pairs(networks, together)),
        (*(a for part in parts for a in part.aliases), *_connection_groups(connected)),
        tuple(o for part in parts for o in part.overlaps if not {o.first, o.second} & shared),
        tuple(p for part in parts for p in part.points),
        name,
        tuple(known for part in parts for known in part.accesses),
        tuple(b for part in parts for b in part.branches),
    )


def _connection_groups(connected: Collection[Connection]) -> Iterator[AliasGroup]:
    """Each output with all inputs that read it."""
    outputs = dict.fromkeys(output for output, _ in connected)
    for output in outputs:
        inputs = [given for made, given in connected if made == output]
        yield AliasGroup(f"{output} connected", ((output, 0), *((given, 0) for given in inputs)))


def shift_of(networks: Mapping[str, Problem], network: str) -> int:
    """The number that is added to a point of `network`."""
    names = list(networks)
    return sum(_point_count(networks[name]) for name in names[: names.index(network)]) + 1


def plan_part(network: str, problem: Problem, joint: Plan) -> Plan:
    """The part of a joint plan that places the buffers of `problem`, the one of `network`."""
    at = {p.buffer: p for p in joint.placements}
    placements = tuple(replace(at[joint_name(network, b.name)], buffer=b.name) for b in problem.buffers)
    return plan_of(problem, placements, joint)


def plan_of(problem: Problem, placements: Sequence[Placement], like: Plan) -> Plan:
    """A plan with these placements, of which nothing is proven."""
    usage = tuple(PoolUsage(name, used, 0) for name, used in used_bytes(problem, placements).items())
    return Plan(tuple(placements), usage, PlanStatus.FEASIBLE, like.planner, like.seed)


def stack_plans(
    networks: Mapping[str, tuple[Problem, Plan]], together: Collection[tuple[str, str]] = ()
) -> list[Placement]:
    """Placements of the joint problem: each network's plan moved as a whole, above what is kept."""
    pools = next(iter(networks.values()))[0].pools
    bases: dict[str, dict[str, int]] = {}
    tops: dict[str, dict[str, int]] = {}
    for network, (problem, plan) in networks.items():
        partners = {
            other for pair in together if network in pair for other in pair if other != network and other in tops
        }
        bases[network] = {p.name: _align_offset(max((tops[o][p.name] for o in partners), default=0), p) for p in pools}
        passing = [p for p in plan.placements if problem.buffer(p.buffer).kind not in KEPT]
        heights = used_bytes(problem, passing)
        tops[network] = {name: bases[network][name] + height for name, height in heights.items()}
    above = {p.name: max(top[p.name] for top in tops.values()) for p in pools}
    for problem, _ in networks.values():
        for buffer in problem.buffers:
            if buffer.fixed is not None:
                above[buffer.fixed[0]] = max(above[buffer.fixed[0]], buffer.fixed[1] + buffer.size_bytes)
    placements = []
    for network, (problem, plan) in networks.items():
        at = {p.buffer: p for p in plan.placements}
        for buffer in problem.buffers:
            place, name = at[buffer.name], joint_name(network, buffer.name)
            if buffer.fixed is not None:
                offset = buffer.fixed[1]
            elif buffer.kind in KEPT:
                offset = above[place.pool] + -above[place.pool] % buffer.alignment
                above[place.pool] = offset + buffer.size_bytes
            else:
                offset = bases[network][place.pool] + place.offset_bytes
            placements.append(Placement(name, place.pool, offset))
    return placements


def _point_count(problem: Problem) -> int:
    """Points of a network: its own, and those of the caller before and after them."""
    return max(1, len(problem.points)) + 2


def _shift_problem(network: str, problem: Problem, first: int, last: int) -> Problem:
    own = max(1, len(problem.points))
    start, stop = first + 1, first + own + 1

    def new_name(name: str) -> str:
        return joint_name(network, name)

    read_last = {k.buffer for k in problem.accesses if any(access.point >= own for access in k.reads)}

    def shift_lifetimes(buffer: Buffer) -> tuple[Lifetime, ...]:
        if buffer.kind in KEPT:
            return (Lifetime(0, last),)
        found = [Lifetime(life.first + start, life.last + start) for life in buffer.lifetimes]
        if found and buffer.kind is BufferKind.INPUT and found[0].first == start:
            found[0] = Lifetime(first, found[0].last)
        if found and found[-1].last == stop and (buffer.kind is BufferKind.OUTPUT or buffer.name in read_last):
            found[-1] = Lifetime(found[-1].first, stop + 1)
        return tuple(found)

    def shift_history(known: AccessHistory) -> AccessHistory:
        reads, writes = (tuple(a._replace(point=a.point + start) for a in part) for part in (known.reads, known.writes))
        if inputs.get(known.buffer):
            writes = (BufferAccess(first), *writes)
        return AccessHistory(new_name(known.buffer), reads, writes)

    inputs = {b.name: b.kind is BufferKind.INPUT for b in problem.buffers}
    labels = tuple(f"{network}: {label}" for label in problem.points) or (f"{network}: return",)
    return replace(
        problem,
        buffers=tuple(
            replace(
                b, name=new_name(b.name), lifetimes=shift_lifetimes(b),
                producer=b.producer and new_name(b.producer), consumers=tuple(map(new_name, b.consumers)),
            )
            for b in problem.buffers
        ),
        conflicts=tuple((new_name(a), new_name(b)) for a, b in problem.conflicts),
        aliases=tuple(
            replace(a, name=new_name(a.name), members=tuple((new_name(n), inner) for n, inner in a.members))
            for a in problem.aliases
        ),
        overlaps=tuple(replace(o, first=new_name(o.first), second=new_name(o.second)) for o in problem.overlaps),
        points=(f"{network}: inputs are written", *labels, f"{network}: outputs are read"),
        accesses=tuple(shift_history(known) for known in problem.accesses),
        branches=tuple(replace(b, first=b.first + start, middle=b.middle + start, last=b.last + start)
                       for b in problem.branches),
    )  # fmt: skip


def _conflict_pairs(
    networks: Mapping[str, Problem], together: Collection[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    for one, other in together:
        for a in networks[one].buffers:
            for b in networks[other].buffers:
                yield joint_name(one, a.name), joint_name(other, b.name)


def _align_offset(offset: int, pool: Pool) -> int:
    grain = max(pool.alignment, 64)
    return offset + -offset % grain


class Ends(NamedTuple):
    """The ends of a network that another one may be connected with: names of tensors -> buffers."""

    problem: Problem
    outputs: Mapping[str, str]
    inputs: Mapping[str, str]


def ends_of(network: Planned | Artifact) -> Ends:
    """The inputs and outputs that are whole buffers."""
    if isinstance(network, Artifact):
        outputs, inputs = (tensor_buffers(network, kind) for kind in (BufferKind.OUTPUT, BufferKind.INPUT))
        return Ends(network.problem, outputs, inputs)
    main, program = network.extracted.loaded.module["main"], network.extracted.program
    named_outputs = zip(quantised_tensors(main, "output"), (view.tensor.name for view in program.results), strict=True)
    named_inputs = zip(quantised_tensors(main, "input"), (tensor.name for tensor in program.inputs), strict=False)
    return Ends(
        network.extracted.problem,
        {tensor.name: buffer for tensor, buffer in named_outputs},
        {tensor.name: buffer for tensor, buffer in named_inputs},
    )


def connect_networks(
    wanted: Collection[tuple[str, str]], networks: Mapping[str, Ends], together: Collection[tuple[str, str]]
) -> tuple[Connection, ...]:
    """The buffers of pairs (NETWORK:OUTPUT, NETWORK:INPUT); `ApplicationError` where one cannot be the other."""
    found: list[Connection] = []
    for output, given in wanted:
        made = _find_buffer(output, networks, BufferKind.OUTPUT)
        reads = _find_buffer(given, networks, BufferKind.INPUT)
        (one, first), (other, second) = made, reads
        text = f"--connect {output}={given}"
        if one == other:
            raise ApplicationError(f"{text} is within one network; name two")
        if any({one, other} == set(pair) for pair in together):
            raise ApplicationError(
                f"{text}: the networks may run together, so one would be read while it is written; leave --together "
                f"{one},{other} out, or copy the output"
            )
        if first.size_bytes != second.size_bytes:
            raise ApplicationError(
                f"{text}: the output has {first.size_bytes:,} bytes, the input {second.size_bytes:,}; both must be one"
            )
        for network, buffer in (made, reads):
            if any(buffer.name == member for group in networks[network].problem.aliases for member, _ in group.members):
                raise ApplicationError(
                    f"{text}: {buffer.name} has its bytes in common with another tensor of {network}; copy the output"
                )
        if any(joint_name(other, second.name) == known for _, known in found):
            raise ApplicationError(f"{text}: the input is given two outputs; name one")
        found.append((joint_name(one, first.name), joint_name(other, second.name)))
    return tuple(found)


def _find_buffer(text: str, networks: Mapping[str, Ends], kind: BufferKind) -> tuple[str, Buffer]:
    network, _, tensor = text.partition(":")
    if network not in networks:
        raise ApplicationError(f"{text!r} names none of the networks, which are: {', '.join(networks)}")
    ends = networks[network]
    known = ends.inputs if kind is BufferKind.INPUT else ends.outputs
    planned = {b.name: b for b in ends.problem.buffers if b.kind is kind}
    if known.get(tensor) not in planned:
        names = ", ".join(name for name, buffer in known.items() if buffer in planned) or "none that is a whole buffer"
        raise ApplicationError(f"{network} has no {kind.value} {tensor!r} to connect; it has: {names}")
    return network, planned[known[tensor]]
