"""Ethos-U55 and U65: registers are as lowering describes them; each core has the weights of every n-th channel.

Invariant: as in the folder.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ... import weight_codec
from ...arch import Architecture
from ...program.access import Kernel
from ...program.program import NpuOperation
from ...stream.decode import Operation
from ...stream.fields import InputPrecision
from ...stream.isa import ActivationFunction, Op
from ...stream.isa import Register as R
from ..scaling import Scale
from .form import Streams


def kernel(operation: NpuOperation, wide: bool, sparse: bool) -> NpuOperation:
    return operation


def fitted(
    weights: NDArray[np.int16], bias: NDArray[np.int64], scales: Sequence[Scale], ifm_bits: int
) -> tuple[NDArray[np.int16], Sequence[Scale], bool]:
    return weights, scales, ifm_bits == 16


def function_table(function: ActivationFunction) -> NDArray[np.int64] | None:
    return None


def never_sparse(weights: NDArray[np.int16]) -> bool:
    return False


def encode(
    operation: Operation,
    accelerator: Architecture,
    weights: NDArray[np.int16],
    bias: NDArray[np.int64],
    scales: Sequence[Scale],
) -> Streams:
    cores, window = accelerator.cores, Kernel.of(operation)
    streams, tables = [], []
    for core in range(cores):
        channels = range(core, len(bias), cores)
        if not channels:
            streams.append(b"")
            tables.append(b"")
            continue
        streams.append(
            weight_codec.encode_weights(
                weights[core::cores],
                accelerator,
                block_depth=-(-(operation[R.OFM_BLK_DEPTH_M1] + 1 - core) // cores),
                ifm_bits=8 << InputPrecision.SIZE.of(operation[R.IFM_PRECISION]),
                depthwise=operation.op is Op.DEPTHWISE,
                part_kernel_first=window.part_kernel_first,
                dilation_xy=(window.dilation_x, window.dilation_y),
            )
        )
        used = [scales[c if len(scales) > 1 else 0] for c in channels]
        biases = [int(bias[c]) for c in channels]
        tables.append(weight_codec.encode_scales(biases, [s.multiplier for s in used], [s.shift for s in used]))
    return Streams(tuple(streams), tuple(tables))
