"""The one place that calls Vela: compile a TFLite model, encode and decode weights.

Invariant: Vela's compiler runs in processes of its own (see `vela_worker`); in this one only its codec is called.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.network import Network
from ..models.tflite import read_network
from ..models.tosa import named_as, read_tosa
from ..process.python_child import python_module
from .arch import Architecture, Language, accelerator
from .vela_worker import TIMEOUT_S, configuration, ini_text, run_regor
from .vela_worker import VelaError as VelaError
from .vela_worker import VelaOptions as VelaOptions
from .vela_worker import start_compile as start_compile

SCALE_BYTES = 10  # of one channel
_CODEC_LOSS = 1.05


@dataclass(frozen=True, slots=True)
class VelaResult:
    """A compiled network and what Vela itself would use for it."""

    network: bytes = field(repr=False)  # .tflite; of a TOSA model Vela's raw archive
    parsed: Network = field(repr=False)  # the same, read
    core: str  # the one that compiled it: "regor" or "legacy"
    accelerator: Architecture
    system_config: str
    memory_mode: str
    arena_bytes: Mapping[str, int]  # pool name ("sram", "dram") -> bytes of Vela's own placement
    npu_operations: int  # of Vela's own counting; 0 when the core does not say
    operators: tuple[Mapping[int, int], ...] = ()  # of each NPU call: offset of a kernel -> operator of the model
    cycles: int = 0  # of the NPU, by Vela's own estimate; 0 when the core does not say
    messages: tuple[str, ...] = ()  # what Vela printed, and why a core was not the one asked for


def compile_tflite(model: bytes, options: VelaOptions | None = None, name: str = "model") -> VelaResult:
    """Compile `model` (TFLite flatbuffer) for an NPU.

    When the compiled core refuses a sound model, the legacy core is tried and `messages` says so.
    Raises `NetworkError` for files that are no TFLite, `VelaError` for bad options and refusals.
    """
    options = options or VelaOptions()
    target, *_ = _requested(options)
    read_network(model, name)  # typed errors for what is no TFLite (read once, see there), before any compiler sees it
    messages: tuple[str, ...] = ()
    core = options.core
    summary: dict[str, Any] = {}
    network = b""
    if core == "regor":
        try:
            network, summary, messages = run_regor(model, options)
        except VelaError as unsupported_reason:
            if options.ignore_operators or target.language is Language.U85:  # which the legacy core does not know
                raise
            core = "legacy"
            messages = (
                f"Vela's compiled core refused {name}, the legacy core compiled it instead: {unsupported_reason}",
            )
    if core == "legacy":
        network, printed = _run_legacy(model, options)
        messages += printed
    compiled = replace(read_network(network, f"{name} compiled by Vela"), name=name)
    return _result(network, compiled, replace(options, core=core), summary, messages)


def compile_tosa(model: bytes, options: VelaOptions | None = None, name: str = "model") -> VelaResult:
    """Compile `model` (TOSA flatbuffer) for an NPU: one call, whose arguments are the graph's inputs and outputs.

    Raises `NetworkError` for files that are no TOSA, `VelaError` for bad options and refusals: there is no host to
    leave operators to, so Vela compiles all of a graph or nothing.
    """
    options = options or VelaOptions()
    _requested(options)
    if options.core == "legacy" or options.ignore_operators:
        raise VelaError("TOSA is read by Vela's compiled core (regor) alone, and as a whole: no operator stays behind")
    source = read_tosa(model, name)
    network, summary, messages = run_regor(model, options)
    compiled = named_as(read_network(network, f"{name} compiled by Vela"), source)
    return _result(network, compiled, options, summary, messages)


def _requested(options: VelaOptions) -> tuple[Architecture, str, str, int]:
    """Target, system configuration, memory mode and cache size of `options`; `VelaError` for what is not known."""
    target = accelerator(options.accelerator)
    if options.optimise not in ("Performance", "Size"):
        raise VelaError(f"--optimise {options.optimise!r} is unknown; choose Performance or Size")
    if options.core not in ("regor", "legacy"):
        raise VelaError(f"unknown Vela core {options.core!r}; choose regor or legacy")
    if options.core == "legacy" and options.ignore_operators:
        raise VelaError("only Vela's compiled core (regor) can be told to leave operators on the CPU")
    return target, *configuration(target, options)


def _result(
    network: bytes, compiled: Network, options: VelaOptions, summary: Mapping[str, Any], messages: tuple[str, ...]
) -> VelaResult:
    from ..target_data import load_memory_mode

    target, system_config, memory_mode, _ = _requested(options)
    return VelaResult(
        network=network,
        parsed=compiled,
        core=options.core,
        accelerator=target,
        system_config=system_config,
        memory_mode=memory_mode,
        arena_bytes=arena_bytes(compiled, load_memory_mode(memory_mode).pools),
        npu_operations=summary.get("npu_operations", 0),
        operators=tuple(dict(rows) for rows in summary.get("operators", ())),
        cycles=summary.get("cycles", 0),
        messages=messages,
    )


def arena_bytes(network: Network, pools: Sequence[str]) -> dict[str, int]:
    """Bytes of Vela's own placement for each pool of the memory mode, in the order of the NPU's regions.

    The arena (the first pool) holds the scratch tensor and every tensor with an offset, so that networks
    with CPU operators are counted as a run time would allocate them.
    """
    fast_tensors = {c.scratch_fast_tensor for c in network.npu_calls}
    arena = max((c.scratch_bytes for c in network.npu_calls), default=0)
    for tensor in network.tensors:
        if tensor.arena_offset >= 0 and tensor.index not in fast_tensors:
            arena = max(arena, tensor.arena_offset + tensor.size_bytes)
    fast = max((c.scratch_fast_bytes for c in network.npu_calls), default=0)
    return dict(zip(pools, (arena, fast), strict=False))


def _run_legacy(model: bytes, options: VelaOptions) -> tuple[bytes, tuple[str, ...]]:
    target, system, mode, _ = _requested(options)
    with tempfile.TemporaryDirectory(prefix="npu_memplan-vela-") as folder:
        source = Path(folder) / "model.tflite"
        source.write_bytes(model)
        command = python_module("ethosu.vela", str(source), "--debug-force-legacy-core")
        config = Path(folder) / "vela.ini"
        config.write_text(ini_text(options), encoding="utf-8")
        command += ["--output-dir", folder, "--accelerator-config", target.name, "--config", str(config)]
        command += ["--system-config", system, "--memory-mode", mode, "--optimise", options.optimise]
        if options.arena_cache_size is not None:
            command += ["--arena-cache-size", str(options.arena_cache_size)]
        try:
            worker = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise VelaError(f"Vela's legacy core did not compile the model within {TIMEOUT_S:g} s") from None
        printed = tuple(line for line in worker.stdout.decode(errors="replace").splitlines() if line.strip())
        result = Path(folder) / "model_vela.tflite"
        if worker.returncode or not result.is_file():
            reason = " / ".join(printed[-3:]) or f"exit code {worker.returncode}"
            raise VelaError(f"Vela's legacy core cannot compile the model: {reason}")
        return result.read_bytes(), tuple(line for line in printed if line.startswith("Warning"))


def decode_weights(stream: bytes | bytearray | NDArray[np.uint8]) -> NDArray[np.int16]:
    """Decompress one weight stream: signed, zero point already subtracted, padding zeros included; int16 [n]."""
    from ethosu import mlw_codec

    if not len(stream):  # the codec would end the process
        return np.empty(0, np.int16)
    return np.asarray(mlw_codec.decode(bytearray(stream)), np.int16)


def encode_stream(values: NDArray[np.int16]) -> bytes:
    """Compress values that are in the order of a stream already, as `decode_weights` gives them; whole 16 bytes."""
    from ethosu import mlw_codec

    encoded = bytes(mlw_codec.encode(values.tolist()))
    return encoded + bytes(-len(encoded) % 16)


def encode_weights(
    weights: NDArray[Any],
    target: Architecture,
    *,
    block_depth: int,
    depthwise: bool,
    part_kernel_first: bool,
    ifm_bits: int = 8,
    dilation_xy: tuple[int, int] = (1, 1),
) -> bytes:
    """Compress weights [O, H, W, I] (zero point subtracted, within +-255) for one core; a multiple of 16 bytes.

    Raises `VelaError` for values out of range, which the codec would mangle silently.
    """
    values = np.asarray(weights)
    if values.ndim != 4 or values.size == 0:
        raise VelaError(f"weights must have shape [O, H, W, I] and be non-empty, not {list(values.shape)}")
    if int(values.min()) < -255 or int(values.max()) > 255:
        raise VelaError(f"weights from {values.min()} to {values.max()} do not fit the NPU's 9 bits (-255 to 255)")
    # Depthwise weights have one order: the hardware ignores the part-kernel bit.
    part_kernel = part_kernel_first and not depthwise
    made = np.ascontiguousarray(values, np.int16)
    known = _Weights(made.shape, sha256(made.tobytes()).digest(), made)
    return _encoded(known, target.name, dilation_xy, ifm_bits, block_depth, depthwise, part_kernel)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights by value."""

    shape: tuple[int, ...]
    digest: bytes
    values: NDArray[np.int16] = field(compare=False)


@lru_cache(256)  # a model is lowered more than once, with most of its blocks alike
def _encoded(
    weights: _Weights, target: str, dilation_xy: tuple[int, int], ifm_bits: int, block_depth: int, depthwise: bool,
    part_kernel: bool,
) -> bytes:  # fmt: skip
    from ethosu.vela import api

    order = api.NpuBlockTraversal.PART_KERNEL_FIRST if part_kernel else api.NpuBlockTraversal.DEPTH_FIRST
    name = target.replace("ethos-u", "Ethos_U").replace("-", "_")
    encoded = api.npu_encode_weights(
        api.NpuAccelerator[name], weights.values, dilation_xy, ifm_bits, block_depth, depthwise, order
    )
    return bytes(encoded) + bytes(-len(encoded) % 16)


def about_encoded_bytes(weights: NDArray[Any]) -> int:
    """About as many bytes as `encode_weights` makes of them: their entropy, of which the codec loses a little."""
    counts = np.bincount(np.asarray(weights, np.int64).ravel() + 255)
    counts = counts[counts > 0]
    bits = float((counts * np.log2(counts.sum() / counts)).sum())
    return round(bits / 8 * _CODEC_LOSS) + 16


def encode_scales(biases: Sequence[int], scales: Sequence[int], shifts: Sequence[int]) -> bytes:
    """Scale table of one core: 10 bytes a channel (40-bit bias, 32-bit scale, 6-bit shift), padded to 16 bytes."""
    table = bytearray()
    for bias, scale, shift in zip(biases, scales, shifts, strict=True):
        if not -(1 << 39) <= bias < 1 << 39 or not 0 <= scale < 1 << 32 or not 0 <= shift < 64:
            raise VelaError(f"bias {bias}, scale {scale}, shift {shift} do not fit 40, 32 and 6 bits")
        word = (bias & ((1 << 40) - 1)) | scale << 40 | shift << 72
        table += word.to_bytes(10, "little")
    return bytes(table) + bytes(-len(table) % 16)
