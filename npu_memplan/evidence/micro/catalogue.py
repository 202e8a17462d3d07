"""The micro-streams: for each mechanism that no published measurement decides, streams that differ in it alone.

Invariant: a stream repeats its mechanism often enough that what it decides outweighs a counter's steps of 1,000 cycles
where the mechanism is worth tens of cycles a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...errors import NpuMemplanError
from ...ethosu.arch import Architecture
from ...ethosu.time import MemoryMap
from .stream import SHIFT, MicroStream, StreamWriter


class MicroStreamError(NpuMemplanError):
    """No micro-stream has this name."""


@dataclass(frozen=True, slots=True)
class Described:
    """A micro-stream's mechanism and how to write it."""

    decides: str
    write: Callable[[str, Architecture, MemoryMap], MicroStream]


def build_micro(name: str, accelerator: Architecture, memory_map: MemoryMap) -> MicroStream:
    """The stream called `name` for an accelerator and its memories."""
    if name not in MICRO_STREAMS:
        raise MicroStreamError(f"no micro-stream is called {name!r}; there are: {', '.join(MICRO_STREAMS)}")
    return MICRO_STREAMS[name].write(name, accelerator, memory_map)


_FIRST = 1 << 20  # kernels before which a copy starts: all of them


def _shared_flash(name: str, npu: Architecture, memory_map: MemoryMap, copy_bytes: int) -> MicroStream:
    """Eight times two kernels with their weights in place, and one whose weights come meanwhile, or came first."""
    writer = StreamWriter(name, npu, memory_map, (10, 10, 64))
    wide, narrow, near = writer.weights(128, 1, 1, 64), writer.weights(64, 1, 1, 128), writer.weights(64, 1, 1, 64)
    at, early = "given", 2 if copy_bytes else _FIRST
    for turn in range(8):
        at = writer.convolve(writer.convolve(at, 128, weights=wide), 64, weights=narrow)
        at = writer.convolve(at, 64, weights=near, early=early, copy_bytes=copy_bytes, last=turn == 7)
    return writer.finish()


def _full_sram(name: str, npu: Architecture, memory_map: MemoryMap, copy_bytes: int) -> MicroStream:
    """Eight dependent 1x1 convolutions whose weights are in SRAM first, or are copied during each."""
    writer = StreamWriter(name, npu, memory_map, (25, 5, 144))
    at, near, early = "given", writer.weights(144, 1, 1, 144), 1 if copy_bytes else _FIRST
    for turn in range(8):
        at = writer.convolve(at, 144, weights=near, early=early, copy_bytes=copy_bytes, last=turn == 7)
    return writer.finish()


def _few_blocks(
    name: str, npu: Architecture, memory_map: MemoryMap, height: int, width: int, slices: int
) -> MicroStream:
    """Sixteen dependent 1x1 convolutions of 64 channels, each in `slices` by output channels."""
    writer = StreamWriter(name, npu, memory_map, (height, width, 64))
    at, near = "given", writer.weights(64, 1, 1, 64)
    for turn in range(16):
        at = writer.convolve(at, 64, weights=near, early=_FIRST, slices=slices, last=turn == 15)
    return writer.finish()


def _copies(name: str, npu: Architecture, memory_map: MemoryMap, size: int, early: int, times: int) -> MicroStream:
    """So many copies: each awaited by the kernel that reads it, or all before the kernels."""
    writer = StreamWriter(name, npu, memory_map, (1, 1, 16))
    at, weights = "given", writer.weights(16, 1, 1, 16)
    for turn in range(times):
        at = writer.convolve(at, 16, weights=weights, early=early, copy_bytes=size, last=turn == times - 1)
    return writer.finish()


def _starts(name: str, npu: Architecture, memory_map: MemoryMap, dependent: bool) -> MicroStream:
    """256 sums of 16 elements: each of the one before, or all of the input."""
    writer = StreamWriter(name, npu, memory_map, (1, 1, 16))
    at = "given"
    for turn in range(256):
        at = writer.add(at if dependent else "given", "given", last=turn == 255)
    return writer.finish()


def _in_place(name: str, npu: Architecture, memory_map: MemoryMap) -> MicroStream:
    """256 dependent kernels of 16 elements whose weights stay where they are."""
    writer = StreamWriter(name, npu, memory_map, (1, 1, 16))
    at, far = "given", writer.weights(16, 1, 1, 16)
    for turn in range(256):
        at = writer.convolve(at, 16, weights=far, last=turn == 255)
    return writer.finish()


def _weights_ahead(name: str, npu: Architecture, memory_map: MemoryMap) -> MicroStream:
    """Eight times a kernel that leaves flash idle, then one with 16 KiB of weights there."""
    writer = StreamWriter(name, npu, memory_map, (8, 8, 128))
    at, near, far = "given", writer.weights(128, 1, 1, 128), writer.weights(128, 1, 1, 128)
    for turn in range(8):
        at = writer.convolve(at, 128, weights=near, early=_FIRST)
        at = writer.convolve(at, 128, weights=far, last=turn == 7)
    return writer.finish()


def _windows(name: str, npu: Architecture, memory_map: MemoryMap, direct: bool) -> MicroStream:
    """Windows of a map with one channel: put side by side by weights of 0 and 1, or convolved as they are."""
    writer = StreamWriter(name, npu, memory_map, (49, 10, 1))
    if direct:
        near = writer.weights(64, 10, 4, 1)
        for turn in range(4):
            writer.convolve("given", 64, kernel=(10, 4), weights=near, early=_FIRST, last=turn == 3)
        return writer.finish()
    ones = np.zeros((8, 2, 4, 1), np.int16)
    for tap in range(8):
        ones[tap, tap // 4, tap % 4, 0] = 1 << SHIFT
    for turn in range(16):
        writer.convolve("given", 8, kernel=(2, 4), weights=ones, early=_FIRST, last=turn == 15)
    return writer.finish()


_SHARING = "how kernels that read the constants' memory in place share it with a copy"
_SRAM = "kernels that need all of SRAM's rate"
_BLOCKS = "the first and last of a kernel's few blocks"
_DMA = "what a copy costs before its first byte"
_KERNEL = "what a kernel costs before its first byte"
_WINDOWS = "windows of a map with one channel"
MICRO_STREAMS: Mapping[str, Described] = {
    "flash beside": Described(_SHARING, partial(_shared_flash, copy_bytes=8592)),
    "flash alone": Described(_SHARING, partial(_shared_flash, copy_bytes=0)),
    "sram kernels": Described(_SRAM, partial(_full_sram, copy_bytes=0)),
    "sram kernels beside": Described(_SRAM, partial(_full_sram, copy_bytes=32768)),
    "blocks 10x6": Described(_BLOCKS, partial(_few_blocks, height=10, width=6, slices=1)),
    "blocks 26x8": Described(_BLOCKS, partial(_few_blocks, height=26, width=8, slices=1)),
    "slices": Described(f"{_BLOCKS}, in two slices", partial(_few_blocks, height=10, width=6, slices=2)),
    "copies 512 awaited": Described(_DMA, partial(_copies, size=512, early=0, times=128)),
    "copies 4096 awaited": Described(_DMA, partial(_copies, size=4096, early=0, times=32)),
    "copies 512 in a row": Described(_DMA, partial(_copies, size=512, early=_FIRST, times=64)),
    "sums in a row": Described(_KERNEL, partial(_starts, dependent=True)),
    "sums apart": Described(_KERNEL, partial(_starts, dependent=False)),
    "kernels in place": Described(_KERNEL, _in_place),
    "weights ahead": Described("how far ahead weights are read", _weights_ahead),
    "windows gathered": Described(_WINDOWS, partial(_windows, direct=False)),
    "windows direct": Described(_WINDOWS, partial(_windows, direct=True)),
}
