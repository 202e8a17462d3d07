"""Which NPU of a board runs which network.

Invariant: all NPUs of a board have the same pools at the same addresses, so that networks of different NPUs can be
planned in one memory. Networks of different NPUs run at the same time only where `--together` says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..artifact.application import ApplicationError
from ..options import CompileOptions
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
    for board in own.others():
        _check_places(own, board, options.resolved().memory_mode)
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
    """For each network one of the NPUs that `times` has for it, so that all runs end first.

    Networks that may run together, directly or by others, are a group, which takes as long as its busiest NPU; groups
    run one after the other.
    """
    chosen: dict[str, str] = {}
    for group in _groups(list(times), together):
        if len(group) == 1:
            chosen[group[0]] = min(times[group[0]], key=times[group[0]].__getitem__)
        else:
            chosen |= _balanced(group, times)
    return chosen


def _balanced(group: Sequence[str], times: Times) -> dict[str, str]:
    """The busiest NPU of the group has least to do, then all NPUs together."""

    def cost(npus: Iterable[str]) -> tuple[float, float]:
        loads: dict[str, float] = {}
        for network, npu in zip(group, npus, strict=False):
            loads[npu] = loads.get(npu, 0.0) + times[network][npu]
        return max(loads.values()), sum(loads.values())

    if math.prod(len(times[network]) for network in group) <= _MOST_TRIED:
        return dict(zip(group, min(itertools.product(*(times[n] for n in group)), key=cost), strict=True))
    group = sorted(group, key=lambda n: -min(times[n].values()))
    npus: list[str] = []
    for network in group:
        npus.append(min(times[network], key=lambda npu: cost([*npus, npu])))
    return dict(zip(group, npus, strict=True))


def _groups(names: Sequence[str], together: Collection[tuple[str, str]]) -> Iterator[list[str]]:
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

    def places(board: Board) -> dict[str, list[tuple[int, int]]]:
        found = board.placement(memory_mode).pools
        return {p: [(board.memory(m).base, board.memory(m).size_bytes) for m in names] for p, names in found.items()}

    if places(own) != places(other):
        raise ApplicationError(
            f"boards {own.name} and {other.name} place the pools of {memory_mode} in different memories, and networks "
            f"of both NPUs share them; give both files one [placement.{memory_mode}]"
        )
