"""tflite-micro's signal library (`Signal*`): audio front ends in integers, Fourier transforms, and CIRCULAR_BUFFER.

Invariant: each operator gives the numbers of tflite-micro's `signal/src`. What it keeps between inferences is a state
of the plan: a queue, oldest first, and how much of it is filled where that varies, which behaves as the reference's
ring buffer does. Elements that the reference leaves as they were (energies outside of the range, frames that are not
complete yet) are zeros. Factors, twiddles and the order of all operations are KISS FFT's (Borgerding, kiss_fft.c and
kiss_fftr.c), which tflite-micro's signal library uses: radix 4 as often as it divides, then 2, 3, 5; twiddles in
double precision, rounded once. The work area is planned scratch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ...models.tensor import Tensor
from .common import ends
from .operator import Lowering, OwnState, lowering, require_supported

_SEGMENTS = np.arange(129) / 128
# How far log2(1 + x) lies above x, in 1/65536; the last number stands twice, for interpolation.
_LOG2_CURVE = np.append(np.round(65536 * (np.log2(1 + _SEGMENTS) - _SEGMENTS)), 0).astype(np.uint16)


def _require_tensor(tensor: Tensor, kind: str, rank: int | None = None, elements: int | None = None) -> None:
    """Refuse other types, other ranks and other sizes (None: any)."""
    shape, what = list(tensor.shape), f"tensor {tensor.name!r}"
    wanted = kind if rank is None else f"{kind} of {rank} dimensions"
    require_supported(
        tensor.dtype == kind and rank in (None, len(shape)), f"{what} is {tensor.dtype}{shape}, not {wanted}"
    )
    require_supported(elements in (None, math.prod(shape)), f"{what} has shape {shape}, not {elements} elements")


def _check_limit(name: str, value: int, high: int) -> int:
    require_supported(0 <= value <= high, f"its {name} is {value}; it must be in 0..{high}")
    return value


@lowering("SignalWindow")
def lower_window(work: Lowering) -> None:
    """Frames times a window."""
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    (shift,) = work.custom_options("shift")
    _require_tensor(weights, "int16", 1)
    size = weights.shape[0]
    frames = math.prod(data.shape) // max(size, 1)
    for tensor in (data, output):
        _require_tensor(tensor, "int16", elements=frames * size)
    buffers = work.read(0, "input"), work.read(1, "window"), work.write()
    work.run_c("signal_window", *buffers, frames, size, _check_limit("shift", shift, 31))


@lowering("SignalFftAutoScale")
def auto_scale(work: Lowering) -> None:
    """Shift the values to the left by as many bits as there is room for, and say how many."""
    data = work.tensor(0)
    _require_tensor(data, "int16", 1)
    _require_tensor(work.output(), "int16", 1, data.shape[0])
    _require_tensor(work.output(1), "int32", elements=1)
    work.run_c("signal_auto_scale", work.read(0, "input"), work.write(), work.write(1, "bits"), data.shape[0])


@lowering("SignalEnergy")
def lower_energy(work: Lowering) -> None:
    """Complex numbers to squared magnitudes."""
    end, start = work.custom_options("end_index", "start_index")
    size = math.prod(work.output().shape)
    _require_tensor(work.tensor(0), "int16", elements=2 * size)
    _require_tensor(work.output(), "uint32")
    ends = _check_limit("start_index", start, size), _check_limit("end_index", end, size)
    work.run_c("signal_energy", work.read(0, "input"), work.write(), size, *ends)


@lowering("SignalFilterBank")
def filter_bank(work: Lowering) -> None:
    """A spectrum to channels, by weights whose places are constants."""
    data, weights, unweights = work.tensor(0), work.tensor(1), work.tensor(2)
    (channels,) = work.custom_options("num_channels")
    _require_tensor(data, "uint32", 1)
    _require_tensor(work.output(), "uint64", 1, channels)
    names = ("starts", "weight_starts", "widths")
    starts, places, widths = (work.constant(3 + i, name).astype(np.int64) for i, name in enumerate(names))
    for i in range(1, 6):
        _require_tensor(work.tensor(i), "int16", 1, None if i < 3 else channels + 1)
    room, used = min(weights.shape[0], unweights.shape[0]), widths > 0
    last, last_weight = ((first + widths)[used].max(initial=0) for first in (starts, places))
    inside = last <= data.shape[0] and last_weight <= room and not (np.stack([starts, places]) < 0).any()
    require_supported(inside, f"its ranges leave the {data.shape[0]} frequencies or the {room} weights")
    tables = [work.read(i, name) for i, name in enumerate(("input", "weights", "unweights", *names))]
    work.run_c("signal_filter_bank", *tables, work.write(), channels)


@lowering("SignalFilterBankSquareRoot")
def square_root(work: Lowering) -> None:
    """Square roots, shifted right by the bits that scaled the signal up."""
    data = work.tensor(0)
    _require_tensor(data, "uint64", 1)
    _require_tensor(work.tensor(1), "int32", elements=1)
    _require_tensor(work.output(), "uint32", 1, data.shape[0])
    work.run_c("signal_square_root", work.read(0, "input"), work.read(1, "bits"), work.write(), data.shape[0])


_SUBTRACTION = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
_BITS = ("smoothing_bits", "spectral_subtraction_bits")


def _noise_states(work: Lowering) -> list[OwnState]:
    return [OwnState("noise", work.tensor(0).shape, "uint32")]


@lowering("SignalFilterBankSpectralSubtraction", keeps=_noise_states)
def spectral_subtraction(work: Lowering) -> None:
    """Channels less an estimate of their noise, and the estimate."""
    numbers = [int(value) for value in work.custom_options(*_SUBTRACTION)]
    numbers += [_check_limit(name, work.custom_options(name)[0], 31) for name in _BITS]
    channels, least, clamping = work.custom_options("num_channels", "min_signal_remaining", "clamping")
    for tensor in (work.tensor(0), work.output(), work.output(1)):
        _require_tensor(tensor, "uint32", 1, channels)
    buffers = work.read(0, "input"), work.own_state(0, "estimate"), work.write(), work.write(1, "noise")
    work.run_c("signal_spectral_subtraction", *buffers, channels, *numbers, int(least), int(clamping))


@lowering("SignalPCAN")
def lower_pcan(work: Lowering) -> None:
    """Channels by a gain that their noise gives."""
    data, table = work.tensor(0), work.tensor(2)
    (shift,) = work.custom_options("snr_shift")
    _require_tensor(data, "uint32", 1)
    channels = data.shape[0]
    for tensor in (work.tensor(1), work.output()):
        _require_tensor(tensor, "uint32", 1, channels)
    _require_tensor(table, "int16", 1)
    message = f"its table has {table.shape[0]} numbers; intervals up to 32 bits need 125"
    require_supported(table.shape[0] >= 125, message)
    buffers = [work.read(i, name) for i, name in enumerate(("input", "noise", "gains"))]
    work.run_c("signal_pcan", *buffers, work.write(), channels, _check_limit("snr_shift", shift, 63))


@lowering("SignalFilterBankLog")
def lower_logarithm(work: Lowering) -> None:
    """Logarithms of channels."""
    data = work.tensor(0)
    shift, scale = work.custom_options("input_correction_bits", "output_scale")
    _require_tensor(data, "uint32", 1)
    _require_tensor(work.output(), "int16", 1, data.shape[0])
    buffers = work.read(0, "input"), work.table("curve", _LOG2_CURVE), work.write()
    shift = _check_limit("input_correction_bits", shift, 31)
    work.run_c("signal_log", *buffers, data.shape[0], int(scale), shift)


def _flag(tensor: Tensor) -> None:
    is_one = tensor.dtype == "bool" and math.prod(tensor.shape) == 1
    require_supported(is_one, f"output {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}, not one bool")


def _rows(data: Tensor) -> int:
    return math.prod(data.shape[:-1])


def _frame_sizes(work: Lowering) -> tuple[int, int, int]:
    """Frame, step and queue, in samples."""
    size, step = (int(v) for v in work.custom_options("frame_size", "frame_step"))
    return size, step, -(-size // step) * step


def _framer_keeps(work: Lowering) -> list[OwnState]:
    size, step, room = _frame_sizes(work)
    waiting = np.array([max(size - step, 0) if work.custom_options("prefill")[0] else 0])
    return [OwnState("queue", (_rows(work.tensor(0)), room), "int16"), OwnState("waiting", (1,), "int32", waiting)]


@lowering("SignalFramer", keeps=_framer_keeps)
def lower_framer(work: Lowering) -> None:
    """A stream to frames that overlap, and whether all of them are complete."""
    (data, output), (size, step, room) = ends(work, ("int16",), scaled=False), _frame_sizes(work)
    rows, frames = _rows(data), data.shape[-1] // step
    _flag(work.output(1))
    fits = data.shape[-1] % step == 0 and math.prod(output.shape) == rows * frames * size
    require_supported(fits, f"{list(data.shape)} in steps of {step} is not {list(output.shape)}")
    source, states = work.read(0, "input"), (work.own_state(0, "queue"), work.own_state(1, "waiting"))
    buffers = source, *states, work.write(), work.write(1, "valid")
    work.run_c("signal_framer", *buffers, rows, frames, size, step, room)


def _stack(work: Lowering) -> tuple[int, int, int, int]:
    """Channels, left context, and samples of an output and of a step."""
    names = ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step")
    channels, left, right, step = (int(v) for v in work.custom_options(*names))
    return channels, left, channels * (left + right + 1), channels * step


def _stacker_keeps(work: Lowering) -> list[OwnState]:
    return [OwnState("queue", (_stack(work)[2],), "int16"), OwnState("progress", (2,), "int32")]


@lowering("SignalStacker", keeps=_stacker_keeps)
def lower_stacker(work: Lowering) -> None:
    """A frame with its neighbours, and whether they are all there."""
    (data, output), (channels, left, size, step) = ends(work, ("int16",), scaled=False), _stack(work)
    _flag(work.output(1))
    require_supported(channels <= step <= size and left >= 0, f"steps of {step} samples do not fit stacks of {size}")
    fits = (math.prod(data.shape), math.prod(output.shape)) == (channels, size)
    require_supported(fits, f"{list(data.shape)} is no frame of a stack {list(output.shape)}")
    source, states = work.read(0, "input"), (work.own_state(0, "queue"), work.own_state(1, "progress"))
    buffers = source, *states, work.write(), work.write(1, "valid")
    work.run_c("signal_stacker", *buffers, channels, left, size, step)


def _delay_keeps(work: Lowering) -> list[OwnState]:
    return [OwnState("queue", (_rows(work.tensor(0)), int(work.custom_options("delay_length")[0])), "int16")]


@lowering("SignalDelay", keeps=_delay_keeps)
def lower_delay(work: Lowering) -> None:
    """The same rows, later."""
    data, output = ends(work, ("int16",), scaled=False)
    length = int(work.custom_options("delay_length")[0])
    fits = length >= 1 and data.shape == output.shape
    require_supported(fits, f"{list(data.shape)} delayed by {length} is not {list(output.shape)}")
    buffers = work.read(0, "input"), work.own_state(0, "queue"), work.write()
    work.run_c("signal_delay", *buffers, _rows(data), data.shape[-1], length)


_SUMS = {
    "int16": {
        "SCALAR": "int16_t",
        "ADDED(a, b)": "(int16_t)((a) + (b) < -32768 ? -32768 : (a) + (b) > 32767 ? 32767 : (a) + (b))",
    },
    "float32": {"SCALAR": "float", "ADDED(a, b)": "((a) + (b))"},
}


def _sum_states(work: Lowering) -> list[OwnState]:
    data = work.tensor(0)
    return [OwnState("sums", (math.prod(data.shape[:-2]), data.shape[-1]), data.dtype)]


@lowering("SignalOverlapAdd", keeps=_sum_states)
def overlap_add(work: Lowering) -> None:
    """Overlapping frames to the stream that they are cut from."""
    step = int(work.custom_options("frame_step")[0])
    data, output = ends(work, tuple(_SUMS), scaled=False)
    rows, frames, size = math.prod(data.shape[:-2]), data.shape[-2], data.shape[-1]
    fits = 0 < step <= size and math.prod(output.shape) == rows * frames * step
    require_supported(fits, f"{list(data.shape)} in steps of {step} is not {list(output.shape)}")
    arguments = [work.read(0, "input"), work.own_state(0, "sums"), work.write(), rows, frames, size, step]
    work.run_c("signal_overlap_add", *arguments, suffix=data.dtype, macros=_SUMS[data.dtype])


def _slots(work: Lowering) -> list[OwnState]:
    """Its output is its memory in the reference: a variable tensor, or bytes of the arena, which begin as zeros."""
    output = work.output()
    start = output.zero_point if output.is_variable else 0
    return [OwnState("slots", output.shape, "int8", np.full(output.shape, start))]


@lowering("CIRCULAR_BUFFER", keeps=_slots)
def circular_buffer(work: Lowering) -> None:
    """A queue of slots: a new one replaces the oldest."""
    cycles = _cycles(work)
    data, output = ends(work, ("int8",), scaled=False)
    runs = f"it runs what follows it every {cycles} inferences"
    require_supported(cycles == 1, f"{runs}, and the reference does not say what the outputs of the others are")
    slot, total = math.prod(data.shape), math.prod(output.shape)
    require_supported(slot and total % slot == 0, f"{list(data.shape)} is no slot of {list(output.shape)}")
    work.run_c("circular_buffer", work.read(0, "input"), work.own_state(0, "slots"), work.write(), total, slot)


def _cycles(work: Lowering) -> int:
    """Inferences from one run of the rest to the next; without a number, tflite-micro goes by the shape."""
    cycles_max = work.operator.custom_options().get("cycles_max", 0)
    if cycles_max > 0:
        return int(cycles_max)
    slots = work.output().shape[1] if len(work.output().shape) > 1 else 0
    return 1 if slots in (5, 13, 25) else 2


_PI = 3.14159265358979323846264338327
_TENSOR_TYPES = {7: "int16", 2: "int32", 0: "float32"}  # of TFLite's schema, the option T
_LARGEST_RADIX = 5

_SUMS_FOURIER = {"PLUS(a, b)": "((a) + (b))", "MINUS(a, b)": "((a) - (b))", "NEGATED(x)": "(-(x))"}
_WRAPPING_SUMS = {  # as the reference's do on every machine, though C leaves it undefined
    "PLUS(a, b)": "((int32_t)((uint32_t)(a) + (uint32_t)(b)))",
    "MINUS(a, b)": "((int32_t)((uint32_t)(a) - (uint32_t)(b)))",
    "NEGATED(x)": "((int32_t)(0u - (uint32_t)(x)))",
}
_FIXED = {"COMPLEX": "npu_memplan_complex_SUFFIX", "HALF(x)": "((x) >> 1)", "FINISHED(values, count)": "(void)(values)"}
_MACROS = {
    "int16": {
        "SCALAR": "int16_t",
        "WIDE(x)": "((int32_t)(x))",
        "ROUNDED(x)": "((int16_t)(((x) + (1 << 14)) >> 15))",
        "DIVIDED(x, k)": "ROUNDED(WIDE(x) * (32767 / (k)))",
        **_FIXED,
        **_SUMS_FOURIER,
    },
    "int32": {
        "SCALAR": "int32_t",
        "WIDE(x)": "((int64_t)(x))",
        "ROUNDED(x)": "((int32_t)(((x) + (1 << 30)) >> 31))",
        "DIVIDED(x, k)": "ROUNDED(WIDE(x) * (2147483647 / (k)))",
        **_FIXED,
        **_WRAPPING_SUMS,
    },
    "float32": {
        "SCALAR": "float",
        "WIDE(x)": "(x)",
        "ROUNDED(x)": "(x)",
        "DIVIDED(x, k)": "((void)(k), (x))",
        **_FIXED,
        **_SUMS_FOURIER,
        "HALF(x)": "((x) * 0.5f)",
        "FINISHED(values, count)": "for (int32_t at = 0; at < (count); at++) (values)[at] /= (float)(count)",
    },
}
_LARGEST = {"int16": 32767, "int32": 2147483647}


@lowering("SignalRfft", "SignalIrfft")
def lower_transform(work: Lowering) -> None:
    """Rows of reals, filled up to `fft_length`, to rows of complex numbers; or these to `fft_length` reals."""
    number, length = (int(value) for value in work.custom_options("T", "fft_length"))
    message = f"its type T is {number}; the reference has int16, int32 and float32"
    require_supported(number in _TENSOR_TYPES, message)
    kind, inverse = _TENSOR_TYPES[number], work.operator.name == "SignalIrfft"
    data, output = ends(work, (kind,), scaled=False)
    require_supported(length >= 4 and length % 2 == 0, f"its length {length} is odd or below 4")
    rows, given, made, size = math.prod(data.shape[:-1]), data.shape[-1], output.shape[-1], length // 2
    if inverse:
        given = given // 2 * 2
        fits = given >= length + 2 and made == length
    else:
        fits = 0 < given <= length and made >= length + 2
    fits = fits and math.prod(output.shape) == rows * made
    require_supported(fits, f"{list(data.shape)} to {list(output.shape)} is no transform of {length}")
    tables, stages = _tables(work, kind, size, inverse=inverse)
    buffers = work.read(0, "input"), *tables, work.function.scratch("work", (length,), kind), work.write()
    numbers = (rows, given, size, stages) if inverse else (rows, given, size, stages, made)
    name = "signal_irfft" if inverse else "signal_rfft"
    work.run_c(f"signal_fft {name}", *buffers, *numbers, suffix=kind, macros=_MACROS[kind])


def _radix_factors(size: int) -> list[tuple[int, int]]:
    """(radix, elements of a part) from the whole transform down, as KISS FFT factors it."""
    found, rest, radix, most = [], size, 4, math.isqrt(size)
    while rest > 1:
        while rest % radix:
            radix = {4: 2, 2: 3}.get(radix, radix + 2)
            if radix > most:
                radix = rest
        rest //= radix
        found.append((radix, rest))
    largest = max(radix for radix, _ in found)
    require_supported(largest <= _LARGEST_RADIX, f"its length {2 * size} has a factor above {_LARGEST_RADIX}")
    return found


def _order(factors: list[tuple[int, int]]) -> list[int]:
    """The input element that each place of the work area begins with."""
    order, step = [0], 1
    for radix, _ in factors:
        order = [start + q * step for start in order for q in range(radix)]
        step *= radix
    return order


def _tables(work: Lowering, kind: str, size: int, *, inverse: bool) -> tuple[list[Any], int]:
    """Buffers of the tables - twiddles, splits, order, stages - and the number of stages."""
    factors = _radix_factors(size)
    sign = 1.0 if inverse else -1.0
    twiddles = [sign * 2 * _PI * i / size for i in range(size)]
    splits = [sign * _PI * ((i + 1) / size + 0.5) for i in range(size // 2)]
    stages, stride = [], 1
    for radix, part in factors:
        stages.append((radix, part, stride))
        stride *= radix
    buffers = [
        work.table("twiddles", _twiddles_of(twiddles, kind)),
        work.table("splits", _twiddles_of(splits, kind)),
        work.table("order", np.array(_order(factors), np.int32)),
        work.table("stages", np.array(stages[::-1], np.int32)),
    ]
    return buffers, len(stages)


def _twiddles_of(phases: list[float], kind: str) -> npt.NDArray[Any]:
    pairs = np.array([(math.cos(phase), math.sin(phase)) for phase in phases])
    return pairs.astype(np.float32) if kind == "float32" else np.floor(0.5 + _LARGEST[kind] * pairs).astype(kind)
