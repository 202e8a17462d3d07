"""Which operators of a network become one NPU operator, and the order of the steps.

Invariant: no group needs the result of an operator outside that itself needs a result of the group, and the operators
of a group hang together by tensors that they make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..models.network import CpuOperator, Network
from ..vocabulary import TFLITE_RESHAPING

NO_WORK = frozenset((*TFLITE_RESHAPING, "SHAPE"))  # alone they are nothing that an NPU could do


def in_order(network: Network, on_npu: Sequence[bool]) -> Iterator[tuple[CpuOperator, ...]]:
    """Steps: the operators of a group for the NPU, or one operator for the CPU, by `on_npu`.

    As much as can runs on the NPU before the CPU has its turn, so that there are few NPU operators.
    """
    makers = _makers(network)
    waiting = {operator.index: operator for operator in network.cpu_operators}
    npu = {o.index for o in network.cpu_operators if on_npu[o.index] and o.name != "SHAPE"}

    def ready(index: int) -> bool:
        return all(maker not in waiting for maker in makers[index])

    while waiting:
        batch: list[CpuOperator] = []
        for index in [i for i in waiting if i in npu]:  # in the file's order, which is one of execution
            if all(maker not in waiting or maker in {o.index for o in batch} for maker in makers[index]):
                batch.append(waiting[index])
        for group in _components(batch, makers):
            for operator in group:
                del waiting[operator.index]
            if all(operator.name in NO_WORK for operator in group):
                yield from ((operator,) for operator in group)
            else:
                yield group
        for index in [i for i in waiting if i not in npu]:
            if ready(index):
                yield (waiting.pop(index),)


def _components(batch: Sequence[CpuOperator], makers: dict[int, list[int]]) -> list[tuple[CpuOperator, ...]]:
    """The operators of `batch` that reach each other by what one makes for the other."""
    component = {operator.index: operator.index for operator in batch}
    for operator in batch:
        for maker in (m for m in makers[operator.index] if m in component):
            old, new = component[operator.index], component[maker]
            component = {index: new if found == old else found for index, found in component.items()}
    found: dict[int, list[CpuOperator]] = {}
    for operator in batch:
        found.setdefault(component[operator.index], []).append(operator)
    return [tuple(group) for group in found.values()]


def _makers(network: Network) -> dict[int, list[int]]:
    """By operator: those that make what it reads."""
    maker = {tensor: operator.index for operator in network.cpu_operators for tensor in operator.outputs}
    return {
        operator.index: [maker[t] for t in operator.inputs if t in maker and maker[t] != operator.index]
        for operator in network.cpu_operators
    }
