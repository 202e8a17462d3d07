"""Groups of nodes of a graph: one function of the NPU for all that need each other without a detour over the host.

Invariant: no group needs itself by way of another one, and groups come in an order in which each is behind all that it
reads. The groups are those that TVM's pass `MergeCompositeFunctions` makes; the work grows with the nodes, that of the
pass with their square.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Content = TypeVar("Content")


@dataclass(frozen=True, eq=False, slots=True)
class Node(Generic[Content]):
    """What the NPU or the host computes at once: the values that it makes and those that it has to come behind."""

    content: Content
    on_npu: bool
    makes: Sequence[Hashable]
    reads: Sequence[Hashable]  # values that no node makes are there from the start


@dataclass(eq=False, slots=True)
class NodeGroup(Generic[Content]):
    """Nodes that become one function of the NPU, or one node of the host."""

    bits: int  # of the NPU: its own and those of the groups that joined it
    needs: int  # bits of all that it needs
    nodes: list[Node[Content]]
    joined: NodeGroup[Content] | None = field(default=None, repr=False)  # the group that it is in now

    @property
    def on_npu(self) -> bool:
        """Whether it is a function of the NPU."""
        return bool(self.bits)

    @property
    def last(self) -> NodeGroup[Content]:
        """The group that it is in now, or itself."""
        group = self
        while group.joined is not None:
            group = group.joined
        return group


def group_nodes(nodes: Sequence[Node[Content]]) -> list[NodeGroup[Content]]:
    """The groups of `nodes`, which stand behind what they read, as early as their first nodes came."""
    groups: list[NodeGroup[Content]] = []
    producers: dict[Hashable, NodeGroup[Content]] = {}
    bit = 1
    for node in nodes:
        parents = list(dict.fromkeys(producers[v].last for v in node.reads if v in producers))
        behind = _union(parent.needs for parent in parents)
        needs = behind | _union(parent.bits for parent in parents)
        fitting = [parent for parent in parents if parent.bits and not parent.bits & behind] if node.on_npu else []
        if fitting:
            group, *others = fitting
            _join(groups, group, others, needs, node)
        else:
            group = NodeGroup(bit if node.on_npu else 0, needs, [node])
            bit <<= node.on_npu
            groups.append(group)
        producers |= dict.fromkeys(node.makes, group)
    order = {id(node): index for index, node in enumerate(nodes)}
    for group in groups:
        group.nodes.sort(key=lambda node: order[id(node)])
    producers = {value: group.last for value, group in producers.items()}
    return list(_in_order([group for group in groups if group.joined is None], producers))


def _join(
    groups: Sequence[NodeGroup[Content]],
    first: NodeGroup[Content],
    others: Sequence[NodeGroup[Content]],
    needs: int,
    node: Node[Content],
) -> None:
    """Put `node`, which needs the groups of the bits `needs`, and all of the `others` into the group `first`; every
    group that needs `first` then needs what `first` needs.
    """
    for other in others:
        first.bits |= other.bits
        first.needs |= other.needs
        first.nodes += other.nodes
        other.joined, other.nodes = first, []
    first.nodes.append(node)
    more = needs & ~first.bits & ~first.needs
    first.needs = (first.needs | needs) & ~first.bits
    for group in groups if more or others else ():
        if group is not first and group.needs & first.bits:
            group.needs |= first.needs | first.bits


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _in_order(
    groups: Sequence[NodeGroup[Content]], producers: Mapping[Hashable, NodeGroup[Content]]
) -> Iterator[NodeGroup[Content]]:
    """The groups, each behind all that it reads, as early as its first node came."""
    seen: set[int] = set()
    for group in groups:
        under_way = [(group, iter(_groups_read(group, producers)))] if id(group) not in seen else []
        seen.add(id(group))
        while under_way:
            _, rest = under_way[-1]
            following = next((one for one in rest if id(one) not in seen), None)
            if following is None:
                yield under_way.pop()[0]
            else:
                seen.add(id(following))
                under_way.append((following, iter(_groups_read(following, producers))))


def _groups_read(
    group: NodeGroup[Content], producers: Mapping[Hashable, NodeGroup[Content]]
) -> list[NodeGroup[Content]]:
    read = (producers[v] for node in group.nodes for v in node.reads if v in producers)
    return [one for one in dict.fromkeys(read) if one is not group]
