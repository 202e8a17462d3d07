"""No operator of a TFLite model computes in floating point, the conversions at the border aside.

Invariant: a model that passes is quantised wherever the NPU or an exact host operator could run it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import NpuMemplanError
from ...models.network import Network
from ...models.tensor import FLOATS
from .on_host import described, host_reason, tensors_of


class FloatModelError(NpuMemplanError):
    """A model computes in floating point."""


def check_not_float(network: Network) -> None:
    """Refuse models whose operators compute on float tensors (quantise/dequantise at the border aside)."""
    found = []
    for operator in network.cpu_operators:
        tensors = [t for t in tensors_of(network, operator) if t.dtype in FLOATS]
        if tensors and host_reason(network, operator) is not None:
            found.append(f"  operator {operator.index} {operator.name}: {described(tensors[0])}")
    if found:
        raise FloatModelError(
            f"{network.name} is a float model: {len(found)} of its {len(network.cpu_operators)} operators compute on "
            "floating-point tensors, which neither the NPU nor the host operators do:\n"
            + "\n".join(_shortened(found))
            + "\nquantise it to full integer (int8) and convert it again"
        )


def _shortened(lines: Sequence[str], most: int = 12) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], f"  ... and {len(lines) - most} more"]
