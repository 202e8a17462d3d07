"""Which operators of a network become one NPU operator, and the order of the steps.

Invariant: no group needs the result of an operator outside that itself needs a result of the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import NpuMemplanError
from ..models.network import CpuOperator, Network


class GroupingError(NpuMemplanError):
    """Parts for the NPU wait for each other."""


def grouped(network: Network, on_npu: Sequence[bool], served: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The operators of each NPU function; `served` are those that it is known to work for.

    Operators that a lowering folded into their neighbours (reshapes, pads) belong to the group that all of their
    readers are in, or else all of their makers; without one they stay on the CPU.
    """
    group_of = {operator: number for number, members in enumerate(served) for operator in members}
    makers, readers = _neighbours(network)
    changed = True
    while changed:
        changed = False
        for operator in network.cpu_operators:
            index = operator.index
            if index in group_of or not on_npu[index]:
                continue
            for around in ([] if _is_output(network, operator) else readers[index], makers[index]):
                groups = {group_of.get(other, -1) for other in around}
                if len(groups) == 1 and groups != {-1}:
                    group_of[index] = groups.pop()
                    changed = True
                    break
    found: dict[int, list[int]] = {}
    for operator in network.cpu_operators:
        if operator.index in group_of:
            found.setdefault(group_of[operator.index], []).append(operator.index)
    return [tuple(members) for members in found.values()]


def in_order(network: Network, groups: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The groups, and every other operator on its own, so that nothing comes before what it reads."""
    makers, _ = _neighbours(network)
    inside = {index: group for group in groups for index in group}
    waiting = list(dict.fromkeys(inside.get(o.index, (o.index,)) for o in network.cpu_operators))
    done: set[int] = set()
    while waiting:
        ready = next((g for g in waiting if all(m in done or m in g for index in g for m in makers[index])), None)
        if ready is None:
            raise GroupingError(
                f"{network.name}: operators {waiting[0][0]} to {waiting[0][-1]} for the NPU wait for others that wait "
                "for them; keep one of these on the CPU with --host-ops, or take --npu-compiler vela"
            )
        waiting.remove(ready)
        done.update(ready)
        yield ready


def _neighbours(network: Network) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """By operator: those that make what it reads, and those that read what it makes."""
    maker = {tensor: operator.index for operator in network.cpu_operators for tensor in operator.outputs}
    makers: dict[int, list[int]] = {o.index: [] for o in network.cpu_operators}
    readers: dict[int, list[int]] = {o.index: [] for o in network.cpu_operators}
    for operator in network.cpu_operators:
        for tensor in operator.inputs:
            if tensor in maker and maker[tensor] != operator.index:
                makers[operator.index].append(maker[tensor])
                readers[maker[tensor]].append(operator.index)
    return makers, readers


def _is_output(network: Network, operator: CpuOperator) -> bool:
    return any(tensor in network.outputs for tensor in operator.outputs)
