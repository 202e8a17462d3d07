"""tflite-micro's signal library (`Signal*`): audio front ends from the window to the logarithm, in integers.

Invariant: each operator gives the numbers of tflite-micro's `signal/src`; what it keeps between inferences is a state
of the plan. Elements that the reference leaves as they were (energies outside of the range, frames that are not
complete yet) are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...models.tensor import Tensor
from .c_text import c_text
from .operator import Lowering, OwnState, UnsupportedOperatorError, lowering

_INT16, _UINT32 = ("int16",), ("uint32",)
_SEGMENTS = np.arange(129) / 128
# How far log2(1 + x) lies above x, in 1/65536; the last number stands twice, for interpolation.
_LOG2_CURVE = np.append(np.round(65536 * (np.log2(1 + _SEGMENTS) - _SEGMENTS)), 0).astype(np.uint16)


def _typed(tensor: Tensor, kinds: Sequence[str], rank: int | None = None) -> None:
    if tensor.dtype not in kinds or (rank is not None and len(tensor.shape) != rank):
        wanted = f"{' or '.join(kinds)}{'' if rank is None else f' of {rank} dimensions'}"
        raise UnsupportedOperatorError(f"tensor {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}, not {wanted}")


def _sizes(work: Lowering, *pairs: tuple[Tensor, int]) -> None:
    for tensor, elements in pairs:
        if math.prod(tensor.shape) != elements:
            raise UnsupportedOperatorError(
                f"tensor {tensor.name!r} has shape {list(tensor.shape)}, not {elements} elements"
            )


def _within(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise UnsupportedOperatorError(f"its {name} is {value}; it must be in {low}..{high}")
    return value


@lowering("SignalWindow")
def window(work: Lowering) -> None:
    """Frames times a window."""
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    (shift,) = work.custom("shift")
    _typed(data, _INT16)
    _typed(weights, _INT16, 1)
    _typed(output, _INT16)
    size = weights.shape[0]
    frames = math.prod(data.shape) // max(size, 1)
    _sizes(work, (data, frames * size), (output, frames * size))
    source, table, target = work.read(0, "input"), work.read(1, "window"), work.write()
    arguments = [source, table, target, frames, size, _within("shift", shift, 0, 31)]
    work.c_function("npu_memplan_signal_window", [c_text("signal_window")], arguments, (target,))


@lowering("SignalFftAutoScale")
def auto_scale(work: Lowering) -> None:
    """As many bits to the left as there is room for, and how many."""
    data, output, bits = work.tensor(0), work.output(), work.output(1)
    _typed(data, _INT16, 1)
    _typed(output, _INT16, 1)
    _typed(bits, ("int32",))
    _sizes(work, (output, data.shape[0]), (bits, 1))
    source, target, amount = work.read(0, "input"), work.write(), work.write(1, "bits")
    arguments = [source, target, amount, data.shape[0]]
    work.c_function("npu_memplan_signal_auto_scale", [c_text("signal_auto_scale")], arguments, (target, amount))


@lowering("SignalEnergy")
def energy(work: Lowering) -> None:
    """Complex numbers to squared magnitudes."""
    data, output = work.tensor(0), work.output()
    end, start = work.custom("end_index", "start_index")
    _typed(data, _INT16)
    _typed(output, _UINT32)
    size = math.prod(output.shape)
    _sizes(work, (data, 2 * size))
    source, target = work.read(0, "input"), work.write()
    arguments = [source, target, size, _within("start_index", start, 0, size), _within("end_index", end, 0, size)]
    work.c_function("npu_memplan_signal_energy", [c_text("signal_energy")], arguments, (target,))


@lowering("SignalFilterBank")
def filter_bank(work: Lowering) -> None:
    """A spectrum to channels, by weights whose places are constants."""
    data, output = work.tensor(0), work.output()
    (channels,) = work.custom("num_channels")
    _typed(data, _UINT32, 1)
    _typed(output, ("uint64",), 1)
    _sizes(work, (output, channels))
    weights, unweights = work.tensor(1), work.tensor(2)
    names = ("starts", "weight_starts", "widths")
    starts, places, widths = (work.constant(3 + i, name).astype(np.int64) for i, name in enumerate(names))
    for i in range(1, 6):
        _typed(work.tensor(i), _INT16, 1)
    _sizes(work, *((work.tensor(i), channels + 1) for i in (3, 4, 5)))
    room = min(weights.shape[0], unweights.shape[0])
    used = widths > 0
    if (
        (np.stack([starts, places]) < 0).any()
        or (starts + widths)[used].max(initial=0) > data.shape[0]
        or ((places + widths)[used].max(initial=0) > room)
    ):
        raise UnsupportedOperatorError(f"its ranges leave the {data.shape[0]} frequencies or the {room} weights")
    tables = [work.read(i, name) for i, name in enumerate(("input", "weights", "unweights", *names))]
    target = work.write()
    arguments = [*tables, target, channels]
    work.c_function("npu_memplan_signal_filter_bank", [c_text("signal_filter_bank")], arguments, (target,))


@lowering("SignalFilterBankSquareRoot")
def square_root(work: Lowering) -> None:
    """Square roots, shifted down by what scaled the signal up."""
    data, bits, output = work.tensor(0), work.tensor(1), work.output()
    _typed(data, ("uint64",), 1)
    _typed(bits, ("int32",))
    _typed(output, _UINT32, 1)
    _sizes(work, (bits, 1), (output, data.shape[0]))
    source, amount, target = work.read(0, "input"), work.read(1, "bits"), work.write()
    arguments = [source, amount, target, data.shape[0]]
    work.c_function("npu_memplan_signal_square_root", [c_text("signal_square_root")], arguments, (target,))


_SUBTRACTION = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
_BITS = ("smoothing_bits", "spectral_subtraction_bits")


def _noise(work: Lowering) -> list[OwnState]:
    return [OwnState("noise", work.tensor(0).shape, "uint32")]


@lowering("SignalFilterBankSpectralSubtraction", keeps=_noise)
def spectral_subtraction(work: Lowering) -> None:
    """Channels less an estimate of their noise, and the estimate."""
    data, output, noise = work.tensor(0), work.output(), work.output(1)
    numbers = [int(value) for value in work.custom(*_SUBTRACTION)]
    smoothing_bits, bits = (_within(name, work.custom(name)[0], 0, 31) for name in _BITS)
    channels, least, clamping = work.custom("num_channels", "min_signal_remaining", "clamping")
    for tensor in (data, output, noise):
        _typed(tensor, _UINT32, 1)
    _sizes(work, (data, channels), (output, channels), (noise, channels))
    source, estimate = work.read(0, "input"), work.own_state(0, "estimate")
    target, told = work.write(), work.write(1, "noise")
    arguments = [source, estimate, target, told, channels, *numbers, smoothing_bits, bits, int(least), int(clamping)]
    text = c_text("signal_spectral_subtraction")
    work.c_function("npu_memplan_signal_spectral_subtraction", [text], arguments, (estimate, target, told))


@lowering("SignalPCAN")
def pcan(work: Lowering) -> None:
    """Channels by a gain that their noise gives."""
    data, noise, table, output = work.tensor(0), work.tensor(1), work.tensor(2), work.output()
    (shift,) = work.custom("snr_shift")
    for tensor in (data, noise, output):
        _typed(tensor, _UINT32, 1)
    _typed(table, _INT16, 1)
    channels = data.shape[0]
    _sizes(work, (noise, channels), (output, channels))
    if table.shape[0] < 125:
        raise UnsupportedOperatorError(f"its table has {table.shape[0]} numbers; intervals up to 32 bits need 125")
    buffers = [work.read(i, name) for i, name in enumerate(("input", "noise", "gains"))]
    target = work.write()
    arguments = [*buffers, target, channels, _within("snr_shift", shift, 0, 63)]
    work.c_function("npu_memplan_signal_pcan", [c_text("signal_pcan")], arguments, (target,))


@lowering("SignalFilterBankLog")
def logarithm(work: Lowering) -> None:
    """Logarithms of channels."""
    data, output = work.tensor(0), work.output()
    shift, scale = work.custom("input_correction_bits", "output_scale")
    _typed(data, _UINT32, 1)
    _typed(output, _INT16, 1)
    _sizes(work, (output, data.shape[0]))
    source, table, target = work.read(0, "input"), work.table("curve", _LOG2_CURVE), work.write()
    arguments = [source, table, target, data.shape[0], int(scale), _within("input_correction_bits", shift, 0, 31)]
    work.c_function("npu_memplan_signal_log", [c_text("signal_log")], arguments, (target,))
