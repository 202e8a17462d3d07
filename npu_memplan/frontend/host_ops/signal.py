"""tflite-micro's signal library (`Signal*`): audio front ends from the window to the logarithm, in integers.

Invariant: each operator gives the numbers of tflite-micro's `signal/src`; what it keeps between inferences is a state
of the plan. Elements that the reference leaves as they were (energies outside of the range, frames that are not
complete yet) are zeros.
"""

from __future__ import annotations

import math

import numpy as np

from ...models.tensor import Tensor
from .operator import Lowering, OwnState, lowering, require

_SEGMENTS = np.arange(129) / 128
# How far log2(1 + x) lies above x, in 1/65536; the last number stands twice, for interpolation.
_LOG2_CURVE = np.append(np.round(65536 * (np.log2(1 + _SEGMENTS) - _SEGMENTS)), 0).astype(np.uint16)


def _expect(tensor: Tensor, kind: str, rank: int | None = None, elements: int | None = None) -> None:
    """Refuse other types, other ranks and other sizes (None: any)."""
    shape, what = list(tensor.shape), f"tensor {tensor.name!r}"
    wanted = kind if rank is None else f"{kind} of {rank} dimensions"
    require(tensor.dtype == kind and rank in (None, len(shape)), f"{what} is {tensor.dtype}{shape}, not {wanted}")
    require(elements in (None, math.prod(shape)), f"{what} has shape {shape}, not {elements} elements")


def _within(name: str, value: int, low: int, high: int) -> int:
    require(low <= value <= high, f"its {name} is {value}; it must be in {low}..{high}")
    return value


@lowering("SignalWindow")
def window(work: Lowering) -> None:
    """Frames times a window."""
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    (shift,) = work.custom("shift")
    _expect(weights, "int16", 1)
    size = weights.shape[0]
    frames = math.prod(data.shape) // max(size, 1)
    _expect(data, "int16", elements=frames * size)
    _expect(output, "int16", elements=frames * size)
    buffers = work.read(0, "input"), work.read(1, "window"), work.write()
    work.run_c("signal_window", *buffers, frames, size, _within("shift", shift, 0, 31))


@lowering("SignalFftAutoScale")
def auto_scale(work: Lowering) -> None:
    """As many bits to the left as there is room for, and how many."""
    data = work.tensor(0)
    _expect(data, "int16", 1)
    _expect(work.output(), "int16", 1, data.shape[0])
    _expect(work.output(1), "int32", elements=1)
    work.run_c("signal_auto_scale", work.read(0, "input"), work.write(), work.write(1, "bits"), data.shape[0])


@lowering("SignalEnergy")
def energy(work: Lowering) -> None:
    """Complex numbers to squared magnitudes."""
    end, start = work.custom("end_index", "start_index")
    size = math.prod(work.output().shape)
    _expect(work.tensor(0), "int16", elements=2 * size)
    _expect(work.output(), "uint32")
    ends = _within("start_index", start, 0, size), _within("end_index", end, 0, size)
    work.run_c("signal_energy", work.read(0, "input"), work.write(), size, *ends)


@lowering("SignalFilterBank")
def filter_bank(work: Lowering) -> None:
    """A spectrum to channels, by weights whose places are constants."""
    data, weights, unweights = work.tensor(0), work.tensor(1), work.tensor(2)
    (channels,) = work.custom("num_channels")
    _expect(data, "uint32", 1)
    _expect(work.output(), "uint64", 1, channels)
    names = ("starts", "weight_starts", "widths")
    starts, places, widths = (work.constant(3 + i, name).astype(np.int64) for i, name in enumerate(names))
    for i in range(1, 6):
        _expect(work.tensor(i), "int16", 1, None if i < 3 else channels + 1)
    room, used = min(weights.shape[0], unweights.shape[0]), widths > 0
    last, last_weight = ((first + widths)[used].max(initial=0) for first in (starts, places))
    inside = last <= data.shape[0] and last_weight <= room and not (np.stack([starts, places]) < 0).any()
    require(inside, f"its ranges leave the {data.shape[0]} frequencies or the {room} weights")
    tables = [work.read(i, name) for i, name in enumerate(("input", "weights", "unweights", *names))]
    work.run_c("signal_filter_bank", *tables, work.write(), channels)


@lowering("SignalFilterBankSquareRoot")
def square_root(work: Lowering) -> None:
    """Square roots, shifted down by what scaled the signal up."""
    data = work.tensor(0)
    _expect(data, "uint64", 1)
    _expect(work.tensor(1), "int32", elements=1)
    _expect(work.output(), "uint32", 1, data.shape[0])
    work.run_c("signal_square_root", work.read(0, "input"), work.read(1, "bits"), work.write(), data.shape[0])


_SUBTRACTION = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
_BITS = ("smoothing_bits", "spectral_subtraction_bits")


def _noise(work: Lowering) -> list[OwnState]:
    return [OwnState("noise", work.tensor(0).shape, "uint32")]


@lowering("SignalFilterBankSpectralSubtraction", keeps=_noise)
def spectral_subtraction(work: Lowering) -> None:
    """Channels less an estimate of their noise, and the estimate."""
    numbers = [int(value) for value in work.custom(*_SUBTRACTION)]
    numbers += [_within(name, work.custom(name)[0], 0, 31) for name in _BITS]
    channels, least, clamping = work.custom("num_channels", "min_signal_remaining", "clamping")
    for tensor in (work.tensor(0), work.output(), work.output(1)):
        _expect(tensor, "uint32", 1, channels)
    buffers = work.read(0, "input"), work.own_state(0, "estimate"), work.write(), work.write(1, "noise")
    work.run_c("signal_spectral_subtraction", *buffers, channels, *numbers, int(least), int(clamping))


@lowering("SignalPCAN")
def pcan(work: Lowering) -> None:
    """Channels by a gain that their noise gives."""
    data, table = work.tensor(0), work.tensor(2)
    (shift,) = work.custom("snr_shift")
    _expect(data, "uint32", 1)
    channels = data.shape[0]
    for tensor in (work.tensor(1), work.output()):
        _expect(tensor, "uint32", 1, channels)
    _expect(table, "int16", 1)
    message = f"its table has {table.shape[0]} numbers; intervals up to 32 bits need 125"
    require(table.shape[0] >= 125, message)
    buffers = [work.read(i, name) for i, name in enumerate(("input", "noise", "gains"))]
    work.run_c("signal_pcan", *buffers, work.write(), channels, _within("snr_shift", shift, 0, 63))


@lowering("SignalFilterBankLog")
def logarithm(work: Lowering) -> None:
    """Logarithms of channels."""
    data = work.tensor(0)
    shift, scale = work.custom("input_correction_bits", "output_scale")
    _expect(data, "uint32", 1)
    _expect(work.output(), "int16", 1, data.shape[0])
    buffers = work.read(0, "input"), work.table("curve", _LOG2_CURVE), work.write()
    shift = _within("input_correction_bits", shift, 0, 31)
    work.run_c("signal_log", *buffers, data.shape[0], int(scale), shift)
