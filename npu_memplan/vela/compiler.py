"""Compile TFLite and TOSA models with Vela.

Invariant: Vela's compiler runs in processes of its own (see `worker`).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..ethosu.arch import Architecture, Language, accelerator
from ..files.folders import scratch_folder
from ..models.flatbuffer import NetworkError
from ..models.network import Network
from ..models.tflite import read_network
from ..models.tosa import named_as, read_tosa
from ..process.incidents import Fallback, fall_back
from ..process.programs import python_module, run_program
from .worker import BUSY, cpu_limit_s, ini_text, resolve_configuration, run_regor, vela_error, with_stated_shapes
from .worker import VelaError as VelaError
from .worker import VelaOptions as VelaOptions
from .worker import start_compile as start_compile


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
    messages: tuple[str, ...] = ()  # what Vela printed


def compile_tflite(model: bytes, options: VelaOptions | None = None, name: str = "model") -> VelaResult:
    """Compile `model` (TFLite flatbuffer) for an NPU.

    When the compiled core refuses a sound model, the legacy core is tried, which is reported (`process.incidents`).
    Raises `NetworkError` for files that are no TFLite, `VelaError` for bad options and for what Vela rejects.
    """
    options = options or VelaOptions()
    target, *_ = _requested_target(options)
    read_network(model, name)  # typed errors for what is no TFLite (read once, see there), before any compiler sees it
    messages: tuple[str, ...] = ()
    core, refused = options.core, ""
    summary: dict[str, Any] = {}
    network = b""
    if core == "regor":
        try:
            network, summary, messages = run_regor(model, options)
        except VelaError as unsupported_reason:
            if options.ignore_operators or target.language is Language.U85:  # which the legacy core does not know
                raise
            core = "legacy"
            refused = str(unsupported_reason)
    if core == "legacy":
        network, messages = _run_legacy(model, options)
    if refused:
        fall_back(Fallback.CORE, f"Vela's legacy core compiled {name}, its compiled core refused it: {refused}")
    compiled = replace(_read_compiled(network, name), name=name)
    return _result(network, compiled, replace(options, core=core), summary, messages)


def compile_tosa(model: bytes, options: VelaOptions | None = None, name: str = "model") -> VelaResult:
    """Compile `model` (TOSA flatbuffer) for an NPU: one call, whose arguments are the graph's inputs and outputs.

    Raises `NetworkError` for files that are no TOSA, `VelaError` for bad options and for what Vela rejects: there is no
    host to leave operators to, so Vela compiles all of a graph or nothing.
    """
    options = options or VelaOptions()
    _requested_target(options)
    if options.core == "legacy" or options.ignore_operators:
        raise VelaError("TOSA is read by Vela's compiled core (regor) alone, and as a whole: no operator stays behind")
    source = read_tosa(model, name)
    network, summary, messages = run_regor(model, options)
    compiled = named_as(_read_compiled(network, name), source)
    return _result(network, compiled, options, summary, messages)


def _read_compiled(network: bytes, name: str) -> Network:
    """What Vela made of `name`; `VelaError` where that is no valid network, which its passes over tensors can make."""
    try:
        return read_network(network, f"{name} compiled by Vela")
    except NetworkError as error:
        raise VelaError(f"Vela's result is left out: {error}") from error


def _requested_target(options: VelaOptions) -> tuple[Architecture, str, str, int]:
    """Target, system configuration, memory mode and cache size of `options`; `VelaError` for what is not known."""
    target = accelerator(options.accelerator)
    if options.optimise not in ("Performance", "Size"):
        raise VelaError(f"--optimise {options.optimise!r} is unknown; choose Performance or Size")
    if options.core not in ("regor", "legacy"):
        raise VelaError(f"unknown Vela core {options.core!r}; choose regor or legacy")
    if options.core == "legacy" and options.ignore_operators:
        raise VelaError("only Vela's compiled core (regor) can leave operators on the CPU")
    return target, *resolve_configuration(target, options)


def _result(
    network: bytes, compiled: Network, options: VelaOptions, summary: Mapping[str, Any], messages: tuple[str, ...]
) -> VelaResult:
    from ..target_data import load_memory_mode

    target, system_config, memory_mode, _ = _requested_target(options)
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
    target, system, mode, _ = _requested_target(options)
    limit_s = cpu_limit_s(model)
    with scratch_folder("vela") as folder:
        source = folder / "model.tflite"
        source.write_bytes(with_stated_shapes(model))
        command = python_module("ethosu.vela", str(source), "--debug-force-legacy-core")
        config = folder / "vela.ini"
        config.write_text(ini_text(options), encoding="utf-8")
        command += ["--output-dir", str(folder), "--accelerator-config", target.name, "--config", str(config)]
        command += ["--system-config", system, "--memory-mode", mode, "--optimise", options.optimise]
        if options.arena_cache_size is not None:
            command += ["--arena-cache-size", str(options.arena_cache_size)]
        try:
            worker = run_program(command, folder, BUSY * limit_s, cpu_s=limit_s, stderr=subprocess.STDOUT, cwd=folder)
            code = worker.returncode
        except subprocess.TimeoutExpired:
            code = -signal.SIGXCPU
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            raise VelaError(f"Vela's legacy core did not compile the model within {limit_s:.0f} s of CPU time")
        printed = tuple(line for line in worker.stdout.splitlines() if line.strip())
        result = folder / "model_vela.tflite"
        if code or not result.is_file():
            raise vela_error("legacy core", printed, code)
        return result.read_bytes(), tuple(line for line in printed if line.startswith("Warning"))
