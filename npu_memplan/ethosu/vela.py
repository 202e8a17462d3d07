"""The one place that calls Vela: compile a TFLite model, encode and decode weights.

Invariant: nothing of Vela reaches the caller's stdout, and no input can end the caller's process.
Vela's compiled core prints from C++ and leaves by `exit()` on a damaged file, so it runs in a
small worker process (about 20 ms) that imports nothing but that core.
"""

from __future__ import annotations

import atexit
import configparser
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NpuMemplanError
from .accelerator import Accelerator, accelerator
from .network import VelaNetwork, read_network


class VelaError(NpuMemplanError):
    """Vela refused the model or the options."""


@dataclass(frozen=True, slots=True)
class VelaOptions:
    """What Vela is asked for; names and meanings are its command line's."""

    accelerator: str = "ethos-u55-256"
    system_config: str | None = None  # a System_Config of vela.ini; None: the accelerator's default
    memory_mode: str | None = None  # a Memory_Mode of vela.ini; None: the accelerator's default
    optimise: str = "Performance"  # or "Size"
    arena_cache_size: int | None = None  # bytes; None: the memory mode's, else the address space
    core: str = "regor"  # or "legacy"
    ignore_operators: tuple[str, ...] = ()  # TFLite operator names that stay on the CPU


@dataclass(frozen=True, slots=True)
class VelaResult:
    """A compiled network and what Vela itself would use for it."""

    network: bytes = field(repr=False)  # .tflite
    parsed: VelaNetwork = field(repr=False)  # the same, read
    core: str  # the one that compiled it: "regor" or "legacy"
    accelerator: Accelerator
    system_config: str
    memory_mode: str
    arena_bytes: Mapping[str, int]  # pool name ("sram", "dram") -> bytes of Vela's own placement
    npu_operations: int  # of Vela's own counting; 0 when the core does not say
    cpu_operations: int
    messages: tuple[str, ...] = ()  # what Vela printed, and why a core was not the one asked for


def compile_tflite(model: bytes, options: VelaOptions | None = None, name: str = "model") -> VelaResult:
    """Compile `model` (TFLite flatbuffer) for an NPU.

    When the compiled core refuses a sound model, the legacy core is tried and `messages` says so.
    Raises `NetworkError` for files that are no TFLite, `VelaError` for bad options and refusals.
    """
    options = options or VelaOptions()
    target = accelerator(options.accelerator)
    system_config, memory_mode, cache_bytes = _configuration(target, options)
    if options.optimise not in ("Performance", "Size"):
        raise VelaError(f"--optimise {options.optimise!r} is unknown; choose Performance or Size")
    if options.core not in ("regor", "legacy"):
        raise VelaError(f"unknown Vela core {options.core!r}; choose regor or legacy")
    if options.core == "legacy" and options.ignore_operators:
        raise VelaError("only Vela's compiled core (regor) can be told to leave operators on the CPU")
    from ..target_data import load_memory_mode

    read_network(model, name)  # typed errors for what is no TFLite (read once, see there), before any compiler sees it
    messages: tuple[str, ...] = ()
    core = options.core
    summary: dict[str, Any] = {}
    network = b""
    if core == "regor":
        try:
            network, summary, messages = _run_regor(model, target, options, system_config, memory_mode, cache_bytes)
        except VelaError as refusal:
            if options.ignore_operators:
                raise
            core = "legacy"
            messages = (f"Vela's compiled core refused {name}, the legacy core compiled it instead: {refusal}",)
    if core == "legacy":
        network, printed = _run_legacy(model, target, options, system_config, memory_mode)
        messages += printed
    compiled = read_network(network, f"{name} compiled by Vela")
    return VelaResult(
        network=network,
        parsed=replace(compiled, name=name),
        core=core,
        accelerator=target,
        system_config=system_config,
        memory_mode=memory_mode,
        arena_bytes=arena_bytes(compiled, load_memory_mode(memory_mode).pools),
        npu_operations=summary.get("npu_operations", 0),
        cpu_operations=summary.get("cpu_operations", len(compiled.cpu_operators)),
        messages=messages,
    )


def arena_bytes(network: VelaNetwork, pools: Sequence[str]) -> dict[str, int]:
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


def _ini_path() -> Path:
    import importlib.util

    found = importlib.util.find_spec("ethosu")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "config_files" / "Arm" / "vela.ini"
        if path.is_file():
            return path
    raise VelaError("Vela is not installed (no ethosu/config_files/Arm/vela.ini); pip install 'ethos-u-vela>=5.2,<6'")


def _configuration(target: Accelerator, options: VelaOptions) -> tuple[str, str, int]:
    """System configuration, memory mode and cache size in effect, checked against vela.ini."""
    from ..target_data import accelerator_system

    default = accelerator_system(target.name)
    system = options.system_config or default.system_config
    mode = options.memory_mode or default.memory_mode
    ini = configparser.ConfigParser()
    ini.read(_ini_path(), encoding="utf-8")
    for kind, prefix, value in (("--system-config", "System_Config.", system), ("--memory-mode", "Memory_Mode.", mode)):
        if not ini.has_section(prefix + value):
            known = ", ".join(s[len(prefix) :] for s in ini.sections() if s.startswith(prefix))
            raise VelaError(f"{kind} {value!r} is not in vela.ini; choose one of: {known}")
    section = f"Memory_Mode.{mode}"
    settings = dict(ini[section])
    while "inherit" in settings:
        settings = {**dict(ini[settings.pop("inherit")]), **settings}
    port = settings["arena_mem_area"].lower()
    memory = ini[f"System_Config.{system}"][f"{port}_port"]
    if memory not in ("Sram", "Dram"):
        writable = [
            s[len("System_Config.") :]
            for s in ini.sections()
            if s.startswith("System_Config.") and "U85" not in s and ini[s].get(f"{port}_port") in ("Sram", "Dram")
        ]
        raise VelaError(
            f"memory mode {mode} keeps the arena behind {port.upper()}, which is {memory} (read only) in system "
            f"configuration {system}; choose another memory mode, or one of: {', '.join(writable)}"
        )
    size = options.arena_cache_size
    limit = 1 << target.address_bits
    if size is None:
        size = int(settings.get("arena_cache_size", limit))
    if not 0 <= size <= limit:
        raise VelaError(f"--arena-cache-size {size} is out of range; it must be between 0 and {limit} bytes")
    return system, mode, size


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    """A running compile; its files hold what it was asked, what it printed and what it made."""

    process: Any
    printed: IO[bytes]
    result: IO[bytes]


# Compiles begun by `start_compile` and not picked up yet.
_STARTED: dict[tuple[bytes, VelaOptions], _Worker] = {}


def start_compile(model: bytes, options: VelaOptions) -> None:
    """Begin compiling in the background; a `compile_tflite` with equal arguments picks the result up.

    It only saves time (the caller can import TVM meanwhile): what is wrong with the arguments is left for
    `compile_tflite` to say, and the result is the same without it.
    """
    if options.core != "regor" or (model, options) in _STARTED:
        return
    with contextlib.suppress(NpuMemplanError, OSError):
        target = accelerator(options.accelerator)
        _STARTED[model, options] = _start_regor(model, target, options, *_configuration(target, options))


@atexit.register
def _end_started() -> None:
    """End what nobody picked up (an error elsewhere ended the program first)."""
    for worker in _STARTED.values():
        worker.process.kill()
        worker.process.wait()
        worker.printed.close()
        worker.result.close()
    _STARTED.clear()


def _start_regor(
    model: bytes, target: Accelerator, options: VelaOptions, system: str, mode: str, cache_bytes: int
) -> _Worker:
    request = {
        "architecture": f"Ethos{target.product.name}",
        "system": f"[architecture]\nmacs={target.macs // target.cores}\ncores={target.cores}\n"
        f"[vela]\nsystem_config_name={system}\nmemory_mode_name={mode}\n",
        "ini": str(_ini_path()),
        "options": "[compiler]\noutput_format=TFLite\ncop_format=COP1\n"
        f"[scheduler]\noptimize={options.optimise}\narena_size_limit={cache_bytes}\ncpu_tensor_alignment=16\n"
        "tensor_allocator=HillClimb\n[graph]\nsoftmax_int16_neg_exp_range=10.0\n",
    }
    if options.ignore_operators:
        names = ",".join(options.ignore_operators).replace("ARG_MAX", "ARGMAX")
        request["options"] += f"ignore_ops={names}\n"
    printed, result = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - the worker's, closed with it
    with tempfile.TemporaryFile() as asked:
        asked.write(json.dumps(request).encode() + b"\0" + model)
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _WORKER, str(result.fileno()), json.dumps(sys.path)],
            stdin=asked,
            stdout=printed,
            stderr=subprocess.STDOUT,
            pass_fds=(result.fileno(),),
        )
    return _Worker(process, printed, result)


def _run_regor(
    model: bytes, target: Accelerator, options: VelaOptions, system: str, mode: str, cache_bytes: int
) -> tuple[bytes, dict[str, Any], tuple[str, ...]]:
    worker = _STARTED.pop((model, options), None)
    if worker is None:
        worker = _start_regor(model, target, options, system, mode, cache_bytes)
    code = worker.process.wait()
    with worker.printed, worker.result:
        worker.printed.seek(0)
        lines = worker.printed.read().decode(errors="replace").splitlines()
        worker.result.seek(0)
        header, _, network = worker.result.read().partition(b"\0")
    printed = tuple(line for line in lines if line.strip())
    if code or not network:
        reason = " / ".join(printed[-4:]) or f"its worker ended with code {code}"
        raise VelaError(f"Vela's compiled core (regor) cannot compile the model: {reason}")
    return network, json.loads(header), printed


# Runs with -S -E and the caller's sys.path: it finds the same Vela, and starts without site's delay.
_WORKER = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[2])
from ethosu import regor
text, _, model = sys.stdin.buffer.read().partition(b"\\0")
request = json.loads(text)
with open(request["ini"], encoding="utf-8") as ini:
    system = request["system"] + ini.read()
compiled = regor.compile(request["architecture"], model, "TFLITE", system, options=request["options"])
report = compiled.perf_report
summary = {"npu_operations": report.npuOps, "cpu_operations": report.cpuOps}
with os.fdopen(int(sys.argv[1]), "wb") as result:
    result.write(json.dumps(summary).encode() + b"\\0" + compiled.model)
"""


def _run_legacy(
    model: bytes, target: Accelerator, options: VelaOptions, system: str, mode: str
) -> tuple[bytes, tuple[str, ...]]:
    with tempfile.TemporaryDirectory(prefix="npu_memplan-vela-") as folder:
        source = Path(folder) / "model.tflite"
        source.write_bytes(model)
        command = [sys.executable, "-m", "ethosu.vela", str(source), "--debug-force-legacy-core"]
        command += ["--output-dir", folder, "--accelerator-config", target.name, "--config", "Arm/vela.ini"]
        command += ["--system-config", system, "--memory-mode", mode, "--optimise", options.optimise]
        if options.arena_cache_size is not None:
            command += ["--arena-cache-size", str(options.arena_cache_size)]
        worker = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
        )
        printed = tuple(line for line in worker.stdout.decode(errors="replace").splitlines() if line.strip())
        result = Path(folder) / "model_vela.tflite"
        if worker.returncode or not result.is_file():
            reason = " / ".join(printed[-3:]) or f"exit code {worker.returncode}"
            raise VelaError(f"Vela's legacy core cannot compile the model: {reason}")
        return result.read_bytes(), tuple(line for line in printed if line.startswith("Warning"))


def decode_weights(stream: bytes | bytearray | NDArray[np.uint8]) -> NDArray[np.int16]:
    """Decompress one weight stream: signed, zero point already subtracted, padding zeros included; int16 [n]."""
    from ethosu import mlw_codec

    return np.asarray(mlw_codec.decode(bytearray(stream)), np.int16)


def encode_weights(
    weights: NDArray[Any],
    target: Accelerator,
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
    from ethosu.vela import api

    # Depthwise weights have one order: the hardware ignores the part-kernel bit.
    part_kernel = part_kernel_first and not depthwise
    order = api.NpuBlockTraversal.PART_KERNEL_FIRST if part_kernel else api.NpuBlockTraversal.DEPTH_FIRST
    target_name = target.name.replace("ethos-u", "Ethos_U").replace("-", "_")
    encoded = api.npu_encode_weights(
        api.NpuAccelerator[target_name],
        values.astype(np.int16),
        dilation_xy,
        ifm_bits,
        block_depth,
        depthwise,
        order,
    )
    return bytes(encoded) + bytes(-len(encoded) % 16)


def encode_scales(biases: Sequence[int], scales: Sequence[int], shifts: Sequence[int]) -> bytes:
    """Scale table of one core: 10 bytes a channel (40-bit bias, 32-bit scale, 6-bit shift), padded to 16 bytes."""
    table = bytearray()
    for bias, scale, shift in zip(biases, scales, shifts, strict=True):
        if not -(1 << 39) <= bias < 1 << 39 or not 0 <= scale < 1 << 32 or not 0 <= shift < 64:
            raise VelaError(f"bias {bias}, scale {scale}, shift {shift} do not fit 40, 32 and 6 bits")
        word = (bias & ((1 << 40) - 1)) | scale << 40 | shift << 72
        table += word.to_bytes(10, "little")
    return bytes(table) + bytes(-len(table) % 16)
