"""What a readable network can still say wrong: shapes, element counts, quantisation, the writers of tensors.

Invariant: a network that passes has tensors of a possible size with all their constant bytes, scales that are finite,
zero points of their type, and operators whose tensors exist. So callers of the reader do not check them again;
what concerns one kind of operator (that its shapes fit each other) is its lowering's to refuse.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import NpuMemplanError
from .network import CpuOperator, Network
from .tensor import Tensor

if TYPE_CHECKING:
    from .network import CpuOperator, Network
    from .tensor import Tensor


LARGEST_TENSOR_BYTES = 1 << 31
_ZERO_POINTS = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
}
_LARGEST_SCALE = 2.0**127 / (1 << 16)  # with which differences of 16 bits are numbers of float32
_OTHERS = (-(1 << 31), (1 << 31) - 1)


class DamagedError(NpuMemplanError):
    """A network contradicts itself; `read_network` says of which file."""


def check_tensor(tensor: Tensor) -> None:
    """`DamagedError` at a size that cannot be, constant bytes that are missing, a quantisation that means nothing."""
    what, size = f"tensor {tensor.index} {tensor.name!r}", tensor.size_bytes
    form = f"{tensor.dtype}{list(tensor.shape)}"
    if min(tensor.shape, default=0) < 0:
        raise DamagedError(f"{what} has shape {list(tensor.shape)}; extents are not negative")
    if size > LARGEST_TENSOR_BYTES:
        raise DamagedError(f"{what} is {form}, {size} bytes; at most {LARGEST_TENSOR_BYTES} are possible")
    if tensor.data is not None and tensor.data.nbytes < size:
        raise DamagedError(f"{what} has {tensor.data.nbytes} constant bytes; {form} needs {size}")
    empty = tensor.data is not None and not tensor.data.any()  # some converters write 0.0 where all elements are zero
    for scale in tensor.scales:
        if not 0 <= scale < math.inf or (scale == 0 and not empty):
            raise DamagedError(f"{what} has scale {scale}; scales are finite and positive")
        if tensor.dtype in _ZERO_POINTS and scale > _LARGEST_SCALE:
            raise DamagedError(f"{what} has scale {scale}: the numbers that it stands for are none of float32")
    if tensor.scales and len(tensor.zero_points) not in (1, len(tensor.scales)):  # without any, TFLite takes no scale
        raise DamagedError(f"{what} has {len(tensor.scales)} scales and {len(tensor.zero_points)} zero points")
    low, high = _ZERO_POINTS.get(tensor.dtype, _OTHERS)
    for zero in tensor.zero_points:
        if not low <= zero <= high:
            raise DamagedError(f"{what} of type {tensor.dtype} has zero point {zero}; it must be in {low}..{high}")
    if len(tensor.scales) > 1:
        axis = tensor.quantised_dimension
        # Old converters wrote the weights' dimension on the biases, which have one.
        extent = tensor.shape[axis if 0 <= axis < len(tensor.shape) else 0] if tensor.shape else 1
        if extent != len(tensor.scales):
            raise DamagedError(f"{what} has {len(tensor.scales)} scales for dimension {axis} of {list(tensor.shape)}")


def check_network(network: Network) -> None:
    """`DamagedError` at operators and at inputs and outputs of the network that cannot be."""
    if not network.outputs or -1 in (*network.inputs, *network.outputs):
        raise DamagedError(f"its inputs are {list(network.inputs)} and its outputs {list(network.outputs)}")
    if len(set(network.inputs)) != len(network.inputs):
        raise DamagedError(f"its inputs are {list(network.inputs)}: one stands there twice")
    made: set[int] = set(network.inputs)
    for operator in network.cpu_operators:
        _check_operator(network, operator, made)


def _check_operator(network: Network, operator: CpuOperator, made: set[int]) -> None:
    what = f"operator {operator.index} {operator.name}"
    if -1 in operator.outputs:
        raise DamagedError(f"{what} has outputs {list(operator.outputs)}; none can be left out")
    for index in operator.outputs:
        if index in made or network.tensors[index].data is not None:
            raise DamagedError(f"{what} writes tensor {index}, which is a constant, an input or made already")
        if not network.tensors[index].is_variable:
            made.add(index)
    for index in operator.intermediates:
        if not -1 <= index < len(network.tensors):
            raise DamagedError(f"{what} names tensor {index}; there are {len(network.tensors)}")
