"""A network with what its custom operators leave unsaid in the file: what they keep, and the shapes of their outputs.

Invariant: a network without such operators stays as it is, and TVM is not imported for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...models.network import CpuOperator, Network
from ..host_choice import HostOpsError

NONE: Mapping[str, int | None] = MappingProxyType({})


def completed(network: Network, external: Mapping[str, int | None] = NONE) -> Network:
    """`network` with own states of operators as tensors, and shapes that operators imply (see `host_ops.completed`).

    Operators named in `external` are somebody else's C functions, with that many bytes of scratch.
    """
    if external:
        network = _marked(network, {name.casefold(): size or 0 for name, size in external.items()})
    if not any(operator.is_custom for operator in network.cpu_operators):
        return network
    from ..host_ops import completed

    return completed(network)


def _marked(network: Network, external: Mapping[str, int]) -> Network:
    operators = tuple(
        replace(operator, external_scratch_bytes=external[operator.name.casefold()])
        if isinstance(operator, CpuOperator) and operator.name.casefold() in external
        else operator
        for operator in network.operators
    )
    return replace(network, operators=operators)


def external_builtins(network: Network, external: Mapping[str, int | None]) -> tuple[str, ...]:
    """The operators of TFLite's own that `external` names, and that the NPU therefore leaves alone.

    `HostOpsError` for names the network has no operator of.
    """
    present = {operator.name.casefold(): operator for operator in network.cpu_operators}
    for name in external:
        if name.casefold() not in present:
            raise HostOpsError(
                f"--external names {name!r}, but {network.name} has no such operator; it has: "
                f"{', '.join(sorted({operator.name for operator in network.cpu_operators}))}"
            )
    named = [present[name.casefold()] for name in external]
    return tuple(operator.name for operator in named if not operator.is_custom)
