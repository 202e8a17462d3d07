"""tflite-micro's signal operators that keep samples: framer, stacker, delay, overlap-add; and CIRCULAR_BUFFER.

Invariant: what is kept is a queue in a state of the plan, oldest first, and how much of it is filled where that varies;
it behaves as the reference's ring buffer does. What the reference leaves unwritten is zeros.
"""

from __future__ import annotations

import math

import numpy as np

from ...models.tensor import Tensor
from .common import require_same_type
from .operator import Lowering, OwnState, lowering, require


def _int16(*tensors: Tensor) -> None:
    require_same_type(tensors, ("int16",), scaled=False)


def _flag(tensor: Tensor) -> None:
    is_one = tensor.dtype == "bool" and math.prod(tensor.shape) == 1
    require(is_one, f"output {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}, not one bool")


def _rows(data: Tensor) -> int:
    return math.prod(data.shape[:-1])


def _frame(work: Lowering) -> tuple[int, int, int]:
    """Frame, step and room for what waits, in samples."""
    size, step = (int(v) for v in work.custom("frame_size", "frame_step"))
    return size, step, -(-size // step) * step


def _framer_keeps(work: Lowering) -> list[OwnState]:
    size, step, room = _frame(work)
    waiting = np.array([max(size - step, 0) if work.custom("prefill")[0] else 0])
    return [OwnState("queue", (_rows(work.tensor(0)), room), "int16"), OwnState("waiting", (1,), "int32", waiting)]


@lowering("SignalFramer", keeps=_framer_keeps)
def framer(work: Lowering) -> None:
    """A stream to frames that overlap, and whether all of them are complete."""
    data, output, valid = work.tensor(0), work.output(), work.output(1)
    size, step, room = _frame(work)
    rows, frames = _rows(data), data.shape[-1] // step
    _int16(data, output)
    _flag(valid)
    fits = data.shape[-1] % step == 0 and math.prod(output.shape) == rows * frames * size
    require(fits, f"{list(data.shape)} in steps of {step} is not {list(output.shape)}")
    source, states = work.read(0, "input"), (work.own_state(0, "queue"), work.own_state(1, "waiting"))
    buffers = source, *states, work.write(), work.write(1, "valid")
    work.run_c("signal_framer", *buffers, rows, frames, size, step, room)


def _stack(work: Lowering) -> tuple[int, int, int, int]:
    """Channels, left context, and samples of an output and of a step."""
    names = ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step")
    channels, left, right, step = (int(v) for v in work.custom(*names))
    return channels, left, channels * (left + right + 1), channels * step


def _stacker_keeps(work: Lowering) -> list[OwnState]:
    return [OwnState("queue", (_stack(work)[2],), "int16"), OwnState("progress", (2,), "int32")]


@lowering("SignalStacker", keeps=_stacker_keeps)
def stacker(work: Lowering) -> None:
    """A frame with its neighbours, and whether they are all there."""
    data, output, valid = work.tensor(0), work.output(), work.output(1)
    channels, left, size, step = _stack(work)
    _int16(data, output)
    _flag(valid)
    require(channels <= step <= size and left >= 0, f"steps of {step} samples do not fit stacks of {size}")
    fits = (math.prod(data.shape), math.prod(output.shape)) == (channels, size)
    require(fits, f"{list(data.shape)} is no frame of a stack {list(output.shape)}")
    source, states = work.read(0, "input"), (work.own_state(0, "queue"), work.own_state(1, "progress"))
    buffers = source, *states, work.write(), work.write(1, "valid")
    work.run_c("signal_stacker", *buffers, channels, left, size, step)


def _delay_keeps(work: Lowering) -> list[OwnState]:
    return [OwnState("queue", (_rows(work.tensor(0)), int(work.custom("delay_length")[0])), "int16")]


@lowering("SignalDelay", keeps=_delay_keeps)
def delay(work: Lowering) -> None:
    """The same rows, later."""
    data, output = work.tensor(0), work.output()
    length = int(work.custom("delay_length")[0])
    _int16(data, output)
    fits = length >= 1 and data.shape == output.shape
    require(fits, f"{list(data.shape)} delayed by {length} is not {list(output.shape)}")
    buffers = work.read(0, "input"), work.own_state(0, "queue"), work.write()
    work.run_c("signal_delay", *buffers, _rows(data), data.shape[-1], length)


_SUMS = {
    "int16": {
        "SCALAR": "int16_t",
        "ADDED(a, b)": "(int16_t)((a) + (b) < -32768 ? -32768 : (a) + (b) > 32767 ? 32767 : (a) + (b))",
    },
    "float32": {"SCALAR": "float", "ADDED(a, b)": "((a) + (b))"},
}


def _sums(work: Lowering) -> list[OwnState]:
    data = work.tensor(0)
    return [OwnState("sums", (math.prod(data.shape[:-2]), data.shape[-1]), data.dtype)]


@lowering("SignalOverlapAdd", keeps=_sums)
def overlap_add(work: Lowering) -> None:
    """Frames that overlap to the stream that they are of."""
    data, output = work.tensor(0), work.output()
    step = int(work.custom("frame_step")[0])
    kind = require_same_type((data, output), tuple(_SUMS), scaled=False)
    rows, frames, size = math.prod(data.shape[:-2]), data.shape[-2], data.shape[-1]
    fits = 0 < step <= size and math.prod(output.shape) == rows * frames * step
    require(fits, f"{list(data.shape)} in steps of {step} is not {list(output.shape)}")
    arguments = [work.read(0, "input"), work.own_state(0, "sums"), work.write(), rows, frames, size, step]
    work.run_c("signal_overlap_add", *arguments, suffix=kind, macros=_SUMS[kind])


def _slots(work: Lowering) -> list[OwnState]:
    """Its output is its memory in the reference: a variable tensor, or bytes of the arena, which begin as zeros."""
    output = work.output()
    start = output.zero_point if output.is_variable else 0
    return [OwnState("slots", output.shape, "int8", np.full(output.shape, start))]


@lowering("CIRCULAR_BUFFER", keeps=_slots)
def circular_buffer(work: Lowering) -> None:
    """Slots of which the oldest goes when a new one comes."""
    data, output = work.tensor(0), work.output()
    cycles = _cycles(work)
    require_same_type((data, output), ("int8",), scaled=False)
    runs = f"it runs what follows it every {cycles} inferences"
    require(cycles == 1, f"{runs}, and the reference does not say what the outputs of the others are")
    slot, total = math.prod(data.shape), math.prod(output.shape)
    require(slot and total % slot == 0, f"{list(data.shape)} is no slot of {list(output.shape)}")
    work.run_c("circular_buffer", work.read(0, "input"), work.own_state(0, "slots"), work.write(), total, slot)


def _cycles(work: Lowering) -> int:
    """Inferences from one run of the rest to the next; without a number, tflite-micro goes by the shape."""
    told = work.operator.custom_options().get("cycles_max", 0)
    if told > 0:
        return int(told)
    slots = work.output().shape[1] if len(work.output().shape) > 1 else 0
    return 1 if slots in (5, 13, 25) else 2
