"""A network with what its custom operators leave unsaid in the file: what they keep, and the shapes of their outputs.

Invariant: a network without such operators stays as it is, and TVM is not imported for it.
"""

from __future__ import annotations

from ...models.network import Network


def completed(network: Network) -> Network:
    """`network` with own states of operators as tensors, and shapes that operators imply (see `host_ops.completed`)."""
    if not any(operator.is_custom for operator in network.cpu_operators):
        return network
    from ..host_ops import completed

    return completed(network)
