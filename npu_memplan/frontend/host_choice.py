"""`--host-ops`: the operators that a user keeps on the CPU, found in the model.

Invariant: a name that the model has no operator of is an error that lists those it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import RefusalError
from ..models.network import Network

if TYPE_CHECKING:
    from .graph import SourceNode


class HostOpsError(RefusalError):
    """`--host-ops` names an operator that does not exist or that the model does not have."""


def forced_operators(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """`names` as Vela wants them, each once; `HostOpsError` for names the model has no operator of."""
    wanted = tuple(dict.fromkeys(name.strip().upper() for name in names if name.strip()))
    check_known(
        "--host-ops", wanted, {o.name: o.name for o in network.cpu_operators}, f"{network.name} has no such operator"
    )
    return wanted


def check_known(option: str, wanted: Iterable[str], present: Mapping[str, str], otherwise: str) -> None:
    """`HostOpsError` for the first of the `wanted` names that is no key of `present`, which tells the names to list."""
    for name in wanted:
        if name not in present:
            raise HostOpsError(
                f"{option} names {name!r}, but {otherwise}; it has: {', '.join(sorted(set(present.values())))}"
            )


def forced_nodes(nodes: Sequence[SourceNode], host_ops: Sequence[str], name: str) -> frozenset[int]:
    """Positions of the operators in `host_ops` (upper case); `HostOpsError` for operators that are not there."""
    kinds = {node.kind.upper(): node.kind for node in nodes if not node.conversion}
    check_known("--host-ops", host_ops, kinds, f"{name} has no such operator that the NPU could run")
    return frozenset(i for i, node in enumerate(nodes) if node.kind.upper() in host_ops and not node.conversion)
