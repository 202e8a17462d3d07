"""`--host-ops`: the operators that a user keeps on the CPU, found in the model.

Invariant: a name that the model has no operator of is an error that lists those it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import NpuMemplanError
from ..models.network import Network

if TYPE_CHECKING:
    from .graph.nodes import SourceNode


class HostOpsError(NpuMemplanError):
    """`--host-ops` names an operator that does not exist or that the model does not have."""


def forced_operators(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """`names` as Vela wants them, each once; `HostOpsError` for names the model has no operator of."""
    wanted = tuple(dict.fromkeys(name.strip().upper() for name in names if name.strip()))
    present = sorted({o.name for o in network.cpu_operators})
    for name in wanted:
        if name not in present:
            raise HostOpsError(
                f"--host-ops names {name!r}, but {network.name} has no such operator; it has: {', '.join(present)}"
            )
    return wanted


def forced_nodes(nodes: Sequence[SourceNode], host_ops: Sequence[str], name: str) -> frozenset[int]:
    """Positions of the operators in `host_ops` (upper case); `HostOpsError` for operators that are not there."""
    kinds = {node.kind.upper(): node.kind for node in nodes if not node.conversion}
    for wanted in host_ops:
        if wanted not in kinds:
            raise HostOpsError(
                f"--host-ops names {wanted!r}, but {name} has no such operator that the NPU could run; "
                f"it has: {', '.join(sorted(kinds.values()))}"
            )
    return frozenset(i for i, node in enumerate(nodes) if node.kind.upper() in host_ops and not node.conversion)
