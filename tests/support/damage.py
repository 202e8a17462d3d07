"""Damaged command streams: real ones with random bytes changed, and everything that reads a stream.

Invariant: only words of the stream are changed, never its memory, and always at least one bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.program.describe import describe
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.time import default_memory_map, estimate
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.models.vela import NpuCall
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela.lift import lift_program
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
# What Ethos-U85 has besides: chains, RESIZE, transposes and reversals, a matrix as weights, ARGMAX, transfers of rows.
U85_CASES = (*_CASES, "hard_swish_int8", "bilinear_x8", "argmax_depth", "transpose_hw", "matmul_int8", "slice_stride2")


@dataclass(frozen=True)
class Target:
    """A stream to damage, with its memory."""

    name: str
    accelerator: Architecture
    words: tuple[int, ...]
    constants: np.ndarray
    arena_bytes: int
    network: Network
    call: NpuCall

    def readers(self, words: tuple[int, ...]) -> dict[str, Callable[[], object]]:
        """Everything that takes a stream in: what a user's command would call."""
        npu = self.accelerator
        call = replace(self.call, payload=replace(self.call.payload, words=words))

        def commands() -> list[Operation]:
            return [c for c in decode(words, npu.language) if isinstance(c, Operation)]

        return {
            "run": lambda: NpuModel(npu).run(words, self.memory()),
            "describe": lambda: list(describe(words, npu)),
            "lift": lambda: find_overlaps(lift_program(self.network, call)),
            "schedule": lambda: schedule(commands(), npu),
            "estimate": lambda: estimate(decode(words, npu.language), npu, default_memory_map(npu)),
        }

    def memory(self) -> list[np.ndarray]:
        """Regions 0 to 2; what the arena holds is the same each time."""
        arena = np.random.default_rng(0).integers(0, 256, self.arena_bytes, np.uint8)
        return [self.constants, arena, arena]

    def difference(self, words: Sequence[int]) -> str:
        """Where and how `words` differ from the real stream."""
        changed = [(i, a, b) for i, (a, b) in enumerate(zip(self.words, words, strict=False)) if a != b]
        more = f" and {len(changed) - 8} more" if len(changed) > 8 else ""
        return ", ".join(f"word {i}: {a:#010x} -> {b:#010x}" for i, a, b in changed[:8]) + more


def targets(
    models: Sequence[str] = (),
    accelerators: Sequence[str] = ("ethos-u55-256", "ethos-u65-512"),
    cases: Sequence[str] = _CASES,
) -> list[Target]:
    """Streams of the models in files, or of some single-operator models when there are none."""
    files = {Path(m).stem: Path(m).read_bytes() for m in models}
    if not files:
        files = {case.name: case.build() for case in all_cases() if case.name in cases}
    found = []
    for name, model in files.items():
        for accelerator in accelerators:
            network = read_network(compile_tflite(model, VelaOptions(accelerator)).network)
            for call in network.npu_calls:
                size = max(call.scratch_bytes, call.scratch_fast_bytes)
                label = f"{name} {accelerator}"
                found.append(Target(label, call.accelerator, call.words, call.read_only, size, network, call))
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


def wrong_registers(
    found: Sequence[Target], count: int, chance: random.Random
) -> Iterator[tuple[Target, tuple[int, ...]]]:
    """`count` streams that decode: a few registers of an operation hold other values, or operations change places."""
    for _ in range(count):
        target = chance.choice(found)
        commands = list(decode(target.words, target.accelerator.language))
        places = [i for i, c in enumerate(commands) if isinstance(c, Operation)]
        for _ in range(chance.choice((1, 1, 2, 4))):
            place = chance.choice(places)
            operation = commands[place]
            assert isinstance(operation, Operation)
            register = chance.choice(list(operation.registers))
            bits = 48 if register.has_payload else 16
            value = chance.choice((0, 1, (1 << bits) - 1, 1 << chance.randrange(bits), chance.randrange(1 << bits)))
            commands[place] = operation.with_registers({register: value})
        if chance.random() < 0.1:
            one, other = chance.choice(places), chance.choice(places)
            commands[one], commands[other] = commands[other], commands[one]
        yield target, encode(commands)
