"""tflite-micro's signal operators against tflite-micro: several inferences each, whatever they keep included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.frontend.host_ops import complete_operators, unsupported_reason
from npu_memplan.models.tflite import read_network
from tests.support.in_steps import any_value, equals_reference
from tests.support.tflite_builder import ModelBuilder

R = np.random.default_rng(23)
TYPES = {"int16": 7, "int32": 2, "float32": 0}


class Models:
    """Operators side by side in one model: each with inputs and outputs of its own."""

    def __init__(self) -> None:
        self.graph = ModelBuilder()
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def add(self, name: str, data: Sequence, constants: Sequence[np.ndarray], outputs: Sequence, **options) -> None:
        ins = [self.graph.tensor(*spec) for spec in data]
        self.inputs += ins
        made = [self.graph.tensor(*spec) for spec in outputs]
        tables = [self.graph.constant(values) for values in constants]
        self.graph.operator(f"custom:{name}", [*ins, *tables], made, **options)
        self.outputs += made

    def finish(self) -> bytes:
        return self.graph.made(self.inputs, self.outputs).finish()


def windows() -> Models:
    models = Models()
    for shape, shift in (((480,), 12), ((1, 320), 12), ((3, 2, 17), 0), ((4, 64), 15)):
        weights = R.integers(-(1 << 15), 1 << 15, shape[-1]).astype(np.int16)
        models.add("SignalWindow", [(shape, "int16")], [weights], [(shape, "int16")], shift=shift)
    return models


def scales() -> Models:
    models = Models()
    for size in (1, 30, 480):
        models.add("SignalFftAutoScale", [((size,), "int16")], [], [((size,), "int16"), ((), "int32")])
    return models


def transforms(kind: str) -> Models:
    models = Models()
    for shape, length in (((480,), 512), ((2, 3, 8), 8), ((1, 60), 60), ((96,), 96), ((5,), 4 * 25), ((256,), 256)):
        out = (*shape[:-1], length + 2)
        models.add("SignalRfft", [(shape, kind)], [], [(out, kind)], T=TYPES[kind], fft_length=length)
    return models


def inverses(kind: str) -> Models:
    models = Models()
    for shape, length in (((514,), 512), ((2, 3, 10), 8), ((1, 62), 60), ((98,), 96), ((258,), 256)):
        out = (*shape[:-1], length)
        models.add("SignalIrfft", [(shape, kind)], [], [(out, kind)], T=TYPES[kind], fft_length=length)
    return models


def energies() -> Models:
    models = Models()
    for size in (5, 129, 257):
        models.add("SignalEnergy", [((2 * size,), "int16")], [], [((size,), "uint32")], start_index=0, end_index=size)
    return models


def banks() -> Models:
    models = Models()
    for channels, width, bins in ((3, 4, 20), (10, 7, 129), (40, 6, 257)):
        widths = R.integers(0, width, channels + 1)
        starts = R.integers(0, bins - width, channels + 1)
        places = np.concatenate([[0], np.cumsum(widths)[:-1]])
        weights = R.integers(0, 4096, int(widths.sum()) + 1)
        tables = [np.asarray(t, np.int16) for t in (weights, 4096 - weights, starts, places, widths)]
        models.add("SignalFilterBank", [((bins,), "uint32")], tables, [((channels,), "uint64")], num_channels=channels)
    return models


def roots() -> Models:
    models = Models()
    for size in (1, 12, 100):
        models.add("SignalFilterBankSquareRoot", [((size,), "uint64"), ((), "int32")], [], [((size,), "uint32")])
    return models


def subtractions() -> Models:
    models = Models()
    for size, clamping, bits in ((8, False, 10), (40, True, 10), (33, True, 0)):
        numbers = {"smoothing": 409, "one_minus_smoothing": 15975, "alternate_smoothing": 983,
                   "alternate_one_minus_smoothing": 15401, "min_signal_remaining": 819, "smoothing_bits": bits,
                   "spectral_subtraction_bits": 14, "num_channels": size, "clamping": clamping}  # fmt: skip
        shape = (size,)
        models.add("SignalFilterBankSpectralSubtraction", [(shape, "uint32")], [], [(shape, "uint32")] * 2, **numbers)
    return models


def gains() -> Models:
    models = Models()
    for size, shift in ((1, 0), (40, 6), (32, 12)):
        table = R.integers(-(1 << 15), 1 << 15, 125).astype(np.int16)
        models.add("SignalPCAN", [((size,), "uint32")] * 2, [table], [((size,), "uint32")], snr_shift=shift)
    return models


def logarithms() -> Models:
    models = Models()
    for size, shift, scale in ((1, 0, 1600), (40, 3, 64), (100, 0, 65535)):
        options = {"input_correction_bits": shift, "output_scale": scale}
        models.add("SignalFilterBankLog", [((size,), "uint32")], [], [((size,), "int16")], **options)
    return models


def frames() -> Models:
    models = Models()
    for shape, size, step in (((160,), 400, 160), ((2, 3, 20), 7, 5), ((1, 64), 32, 32)):
        out = (*shape[:-1], shape[-1] // step, size)
        options = {"frame_size": size, "frame_step": step, "prefill": True}
        models.add("SignalFramer", [(shape, "int16")], [], [(out, "int16"), ((), "bool")], **options)
    return models


def stacks() -> Models:
    models = Models()
    for channels, left, right, step in ((4, 2, 0, 1), (40, 0, 0, 1), (3, 5, 0, 1)):
        size = channels * (left + right + 1)
        options = {"num_channels": channels, "stacker_left_context": left, "stacker_right_context": right,
                   "stacker_step": step}  # fmt: skip
        out = [((size,), "int16"), ((), "bool")]
        models.add("SignalStacker", [((channels,), "int16")], [], out, **options)
    return models


def delays() -> Models:
    models = Models()
    for shape, length in (((20,), 3), ((2, 8), 8), ((1, 5), 13)):
        models.add("SignalDelay", [(shape, "int16")], [], [(shape, "int16")], delay_length=length)
    return models


def overlaps(kind: str) -> Models:
    models = Models()
    for shape, step in (((4, 16), 8), ((1, 3, 9), 5), ((2, 2, 2, 7), 7)):
        out = (*shape[:-2], shape[-2] * step)
        models.add("SignalOverlapAdd", [(shape, kind)], [], [(out, kind)], T=TYPES[kind], frame_step=step)
    return models


def circles() -> Models:
    models = Models()
    for slots, depth in ((5, 8), (13, 3), (4, 96)):
        ends = ((1, 1, 1, depth), "int8", 0.1, -4), ((1, slots, 1, depth), "int8", 0.1, -4)
        models.add("CIRCULAR_BUFFER", [ends[0]], [], [ends[1]], cycles_max=1)
        made = models.graph.tensors[models.outputs[-1]]  # bytes that are the reference's memory, too
        models.graph.tensors[models.outputs[-1]] = replace(made, is_variable=True)
    return models


CASES = {
    "window": windows, "auto_scale": scales, "energy": energies, "filter_bank": banks, "square_root": roots,
    "spectral_subtraction": subtractions, "pcan": gains, "log": logarithms, "framer": frames, "stacker": stacks,
    "delay": delays, "circular_buffer": circles,
    **{f"rfft_{kind}": (lambda kind=kind: transforms(kind)) for kind in TYPES},
    **{f"irfft_{kind}": (lambda kind=kind: inverses(kind)) for kind in TYPES},
    **{f"overlap_add_{kind}": (lambda kind=kind: overlaps(kind)) for kind in ("int16", "float32")},
}  # fmt: skip


def _draw(generator, slot):
    """All magnitudes; what is a number of bits is one."""
    if slot.dtype == "int32" and slot.shape in ((), (1,)):
        return generator.integers(0, 20, slot.shape).astype(np.int32)
    values = any_value(generator, slot)
    if values.dtype.kind not in "iu":
        return values
    return values >> generator.integers(0, 8 * values.dtype.itemsize, values.shape).astype(values.dtype)


@pytest.mark.parametrize("case", CASES)
def test_signal_operators_are_tflite_micros(case, tmp_path):
    artifact = equals_reference(CASES[case]().finish(), tmp_path, 6, draw=_draw)
    assert {operator.claim.exactness.value for operator in artifact.operators} == {"exact"}


def _one(name: str, data, constants, outputs, **options) -> str | None:
    models = Models()
    models.add(name, data, constants, outputs, **options)
    network = complete_operators(read_network(models.finish()))
    return unsupported_reason(network, network.cpu_operators[0])


SAMPLES = ((8,), "int16")
REFUSED = [
    ("SignalWindow", [SAMPLES], [np.zeros(8, np.int16)], [SAMPLES], {}, "the file does not say its shift"),
    ("SignalRfft", [SAMPLES], [], [((16,), "int16")], {"T": 7, "fft_length": 14}, "has a factor above 5"),
    ("SignalRfft", [SAMPLES], [], [((8,), "int16")], {"T": 7, "fft_length": 8}, "is no transform of 8"),
    ("SignalRfft", [SAMPLES], [], [((10,), "int16")], {"T": 9, "fft_length": 8}, "its type T is 9"),
    ("SignalDelay", [SAMPLES], [], [((9,), "int16")], {"delay_length": 2}, "delayed by 2 is not [9]"),
    ("SignalFramer", [SAMPLES], [], [((3, 4), "int16"), ((), "bool")],
     {"frame_size": 4, "frame_step": 3, "prefill": True}, "in steps of 3 is not [3, 4]"),
    ("SignalPCAN", [((4,), "uint32")] * 2, [np.zeros(9, np.int16)], [((4,), "uint32")], {"snr_shift": 1},
     "its table has 9 numbers"),
    ("CIRCULAR_BUFFER", [((1, 1, 1, 4), "int8")], [], [((1, 3, 1, 4), "int8")], {"cycles_max": 2},
     "it runs what follows it every 2 inferences"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "constants", "outputs", "options", "reason"), REFUSED)
def test_what_does_not_fit_is_refused(name, data, constants, outputs, options, reason):
    assert reason in (_one(name, data, constants, outputs, **options) or "")


def test_incomplete_frames_are_reported(tmp_path):
    """Without a prefill, the flag is the reference's from the first inference on."""
    models = Models()
    options = {"frame_size": 400, "frame_step": 160, "prefill": False}
    models.add("SignalFramer", [((160,), "int16")], [], [((1, 400), "int16"), ((), "bool")], **options)
    equals_reference(models.graph.made(models.inputs, models.outputs[1:]).finish(), tmp_path, 6)


def test_scratch_and_states_are_planned(tmp_path):
    models = Models()
    models.add("SignalRfft", [((480,), "int16")], [], [((514,), "int16")], T=7, fft_length=512)
    models.add("SignalDelay", [((20,), "int16")], [], [((20,), "int16")], delay_length=3)
    problem = equals_reference(models.finish(), tmp_path, 2).problem
    sizes = {buffer.kind.value: buffer.size_bytes for buffer in problem.buffers}
    assert (sizes["host_scratch"], sizes["state"]) == (1024, 6)
