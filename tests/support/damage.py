"""Damaged command streams: real ones with random bytes changed.

Invariant: only words of the stream are changed, never its memory, and always at least one bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.vela import VelaOptions, compile_tflite
from npu_memplan.models.tflite import read_network
from tests.support.single_operators import all_cases

_CASES = (
    "conv_k5x5",
    "conv_d2x2",
    "conv_int16_k3",
    "depthwise_s2x2",
    "dense_1000_40",
    "pool_average_k3x3_s1x1_0",
    "pool_max_k3x3_s2x2_1",
    "add_channel",
    "mul_int16",
    "softmax_int8",
    "tanh_int16",
    "transpose_conv_k3_s2",
    "bilinear_x2",
)


@dataclass(frozen=True)
class Target:
    """A stream to damage, with its memory."""

    name: str
    accelerator: Architecture
    words: tuple[int, ...]
    constants: np.ndarray
    arena_bytes: int

    def memory(self) -> list[np.ndarray]:
        """Regions 0 to 2; what the arena holds is the same each time."""
        arena = np.random.default_rng(0).integers(0, 256, self.arena_bytes, np.uint8)
        return [self.constants, arena, arena]

    def difference(self, words: Sequence[int]) -> str:
        """Where and how `words` differ from the real stream."""
        return ", ".join(
            f"word {i}: {a:#010x} -> {b:#010x}"
            for i, (a, b) in enumerate(zip(self.words, words, strict=False))
            if a != b
        )


def targets(
    models: Sequence[str] = (), accelerators: Sequence[str] = ("ethos-u55-256", "ethos-u65-512")
) -> list[Target]:
    """Streams of the models in files, or of some single-operator models when there are none."""
    files = {Path(m).stem: Path(m).read_bytes() for m in models}
    if not files:
        files = {case.name: case.build() for case in all_cases() if case.name in _CASES}
    found = []
    for name, model in files.items():
        for accelerator in accelerators:
            network = read_network(compile_tflite(model, VelaOptions(accelerator)).network)
            for call in network.npu_calls:
                size = max(call.scratch_bytes, call.scratch_fast_bytes)
                found.append(Target(f"{name} {accelerator}", call.accelerator, call.words, call.read_only, size))
    return found


def damaged_streams(
    found: Sequence[Target], count: int, chance: random.Random
) -> Iterator[tuple[Target, tuple[int, ...]]]:
    """`count` damaged streams: some bytes changed at random, now and then cut off."""
    for _ in range(count):
        target = chance.choice(found)
        raw = bytearray(np.array(target.words, "<u4").tobytes())
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            position = chance.randrange(len(raw))
            raw[position] ^= 1 << chance.randrange(8) if chance.random() < 0.5 else chance.randrange(1, 256)
        words = tuple(int(w) for w in np.frombuffer(bytes(raw), "<u4"))
        yield target, words[: chance.randrange(len(words))] if chance.random() < 0.02 else words
