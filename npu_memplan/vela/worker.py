"""Vela's compiled core in a process of its own, which may begin before anything heavy is imported here.

Invariant: nothing of Vela reaches the caller's stdout, and no input can end the caller's process: the core prints from
C++ and leaves by `exit()` on a damaged file. This module imports neither numpy nor TVM.
"""

from __future__ import annotations

import atexit
import configparser
import contextlib
import io
import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from ..errors import NpuMemplanError, RefusalError
from ..ethosu.arch import Architecture, accelerator
from ..files.folders import scratch_folder
from ..files.paths import read_text
from ..models.flatbuffer import FlatTable, target_at
from ..names import printable_text
from ..process.ending import raise_lack_of_memory
from ..process.programs import end_program, python_child, start_program, wait_for_end

_LEAST_S, _MIB_S = 40.0, 60.0  # of CPU time: a small network takes less than 2 s, the largest public ones a minute
BUSY = 20  # times as long may the clock take, on a machine that does other things too


class VelaError(RefusalError):
    """Vela refused the model or the options."""


@dataclass(frozen=True, slots=True)
class VelaOptions:
    """Vela's options; names and meanings are its command line's."""

    accelerator: str = "ethos-u55-256"
    system_config: str | None = None  # a System_Config of vela.ini; None: the accelerator's default
    memory_mode: str | None = None  # a Memory_Mode of vela.ini; None: the accelerator's default
    optimise: str = "Performance"  # or "Size"
    arena_cache_size: int | None = None  # bytes; None: the memory mode's, else the address space
    core: str = "regor"  # or "legacy"
    ignore_operators: tuple[str, ...] = ()  # TFLite operator names that stay on the CPU
    ini: str = ""  # a vela.ini of the user's own; what it lacks is taken from Vela's
    sections: str = ""  # text of a vela.ini that precedes both, such as a board's


def _ini_path() -> Path:
    import importlib.util

    found = importlib.util.find_spec("ethosu")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "config_files" / "Arm" / "vela.ini"
        if path.is_file():
            return path
    raise VelaError("Vela is not installed (no ethosu/config_files/Arm/vela.ini); pip install 'ethos-u-vela>=5.2,<6'")


def _read_ini(options: VelaOptions) -> configparser.ConfigParser:
    """The configuration, to be read only: without a file of the user's the same for all with these sections."""
    return (_merge_configurations if options.ini else _merged_once)(options.ini, options.sections)


def _merge_configurations(own: str, sections: str) -> configparser.ConfigParser:
    ini = configparser.ConfigParser()
    ini.optionxform = str  # type: ignore[assignment,method-assign]  # Vela tells large letters from small
    ini.read(_ini_path(), encoding="utf-8")
    try:
        ini.read_string(read_text(own) if own else "", own)
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise VelaError(f"cannot read {own} as a vela.ini: {getattr(error, 'strerror', None) or error}") from None
    described = configparser.ConfigParser()
    described.optionxform = str  # type: ignore[assignment,method-assign]
    described.read_string(sections)
    for section in described.sections():
        ini.remove_section(section)  # whole sections: one of Vela's may inherit what this one does not say
    ini.read_dict(described)
    return ini


_merged_once = lru_cache(maxsize=16)(_merge_configurations)


def ini_text(options: VelaOptions) -> str:
    """The text of vela.ini, with a board's and the user's sections in place of Vela's."""
    if not options.ini and not options.sections:
        return _ini_path().read_text(encoding="utf-8")
    merged = io.StringIO()
    _read_ini(options).write(merged)
    return merged.getvalue()


def resolve_configuration(target: Architecture, options: VelaOptions) -> tuple[str, str, int]:
    """System configuration, memory mode and cache size in effect, checked against vela.ini."""
    from ..target_data import accelerator_system

    default = accelerator_system(target.name)
    system = options.system_config or default.system_config
    mode = options.memory_mode or default.memory_mode
    ini = _read_ini(options)
    for kind, prefix, value in (("--system-config", "System_Config.", system), ("--memory-mode", "Memory_Mode.", mode)):
        if not ini.has_section(prefix + value):
            known = ", ".join(s[len(prefix) :] for s in ini.sections() if s.startswith(prefix))
            raise VelaError(f"{kind} {value!r} is not in vela.ini; choose one of: {known}")
    section = f"Memory_Mode.{mode}"
    settings, seen = dict(ini[section]), {section}
    while "inherit" in settings:
        base = settings.pop("inherit")
        if base in seen or not ini.has_section(base):
            fault = "which inherits it" if base in seen else "which the file does not have"
            raise VelaError(f"{options.ini or 'vela.ini'}: [{section}] inherits {base!r}, {fault}; correct the file")
        seen.add(base)
        settings = {**dict(ini[base]), **settings}
    port = settings["arena_mem_area"].lower()
    memory = ini[f"System_Config.{system}"][f"{port}_port"]
    if memory not in ("Sram", "Dram"):
        family = target.product.name
        writable = [
            s[len("System_Config.") :]
            for s in ini.sections()
            if s.startswith("System_Config.") and family in s and ini[s].get(f"{port}_port") in ("Sram", "Dram")
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
    """A running compile; its files hold its options, what it printed and what it made."""

    process: subprocess.Popen[bytes]
    printed: IO[bytes]
    result: IO[bytes]
    closing: contextlib.ExitStack


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
        _STARTED[model, options] = _start_regor(model, options)


@atexit.register
def _end_started() -> None:
    """End what was not collected (an error elsewhere ended the program first)."""
    for worker in _STARTED.values():
        worker.closing.close()
    _STARTED.clear()


def cpu_limit_s(model: bytes) -> float:
    """Seconds of CPU time that Vela may take for `model`."""
    return _LEAST_S + _MIB_S * len(model) / (1 << 20)


def _start_regor(model: bytes, options: VelaOptions) -> _Worker:
    target = accelerator(options.accelerator)
    system, mode, cache_bytes = resolve_configuration(target, options)
    macs = target.macs if target.micro_blocks else target.macs // target.cores
    form, output = ("TOSA", "Raw") if model[4:8] == b"TOSA" else ("TFLITE", "TFLite")
    request = {
        "format": form,
        "architecture": f"Ethos{target.product.name}",
        "system": f"[architecture]\nmacs={macs}\ncores={target.cores}\n"
        f"[vela]\nsystem_config_name={system}\nmemory_mode_name={mode}\n",
        "ini": ini_text(options),
        "options": f"[compiler]\noutput_format={output}\ncop_format=COP1\nenable_db=true\n"
        f"[scheduler]\noptimize={options.optimise}\narena_size_limit={cache_bytes}\ncpu_tensor_alignment=16\n"
        "tensor_allocator=HillClimb\n[graph]\nsoftmax_int16_neg_exp_range=10.0\n",
    }
    if options.ignore_operators:
        names = ",".join(options.ignore_operators).replace("ARG_MAX", "ARGMAX")
        request["options"] += f"ignore_ops={names}\n"
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("vela"))
        printed, result = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        with tempfile.TemporaryFile() as requested:
            requested.write(json.dumps(request).encode() + b"\0")
            requested.write(with_stated_shapes(model) if form == "TFLITE" else model)
            requested.seek(0)
            process = start_program(
                python_child(_WORKER, str(result.fileno()), flags=("-S",)),
                folder,
                cpu_s=cpu_limit_s(model),
                stdin=requested,
                stdout=printed,
                stderr=subprocess.STDOUT,
                pass_fds=(result.fileno(),),
            )
        stack.callback(end_program, process)
        return _Worker(process, printed, result, stack.pop_all())


# Fields of TFLite's tables Model, SubGraph and Tensor.
_SUBGRAPHS, _TENSORS, _SHAPE, _SIGNATURE = 2, 0, 0, 7


def with_stated_shapes(model: bytes) -> bytes:
    """The TFLite file `model` with empty shape signatures: Vela takes -1 in one for an extent of 1."""
    graphs = FlatTable(model, target_at(model, 0)).tables(_SUBGRAPHS)
    tensors = [tensor for graph in graphs for tensor in graph.tables(_TENSORS)]
    shapes = {tensor.elements(_SHAPE, 4).start for tensor in tensors}
    signatures = {found.start for tensor in tensors if (found := tensor.elements(_SIGNATURE, 4))}
    if not signatures - shapes:  # a vector that is a shape as well says the same
        return model
    data = bytearray(model)
    for start in signatures - shapes:
        data[start - 4 : start] = bytes(4)  # its length
    return bytes(data)


def reason_in(printed: Sequence[str]) -> str:
    """The text that a program printed last, without the trace of a fault: of that its last line alone."""
    traces = [number for number, line in enumerate(printed) if line.startswith("Traceback (most recent call last)")]
    lines = [*printed[: traces[0]], printed[-1]] if traces else printed
    return " / ".join(printable_text(" ".join(line.split())) for line in lines[-4:])


def vela_error(core: str, printed: Sequence[str], code: int) -> VelaError:
    """The error of a model for which Vela ended with `code`; `MemoryError` where that says nothing of the model."""
    raise_lack_of_memory(RuntimeError("\n".join(printed)))
    return VelaError(f"Vela's {core} cannot compile the model: {reason_in(printed) or f'exit code {code}'}")


def run_regor(model: bytes, options: VelaOptions) -> tuple[bytes, dict[str, Any], tuple[str, ...]]:
    worker = _STARTED.pop((model, options), None) or _start_regor(model, options)
    limit_s = cpu_limit_s(model)
    with worker.closing:
        try:
            code = wait_for_end(worker.process, BUSY * limit_s)
        except subprocess.TimeoutExpired:
            code = -signal.SIGXCPU
        worker.printed.seek(0)
        lines = worker.printed.read().decode(errors="replace").splitlines()
        worker.result.seek(0)
        header, _, network = worker.result.read().partition(b"\0")
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        raise VelaError(f"Vela's compiled core (regor) did not compile the model within {limit_s:.0f} s of CPU time")
    printed = tuple(line for line in lines if line.strip())
    if code or not network:
        raise vela_error("compiled core (regor)", printed, code)
    return network, json.loads(header), printed


# Runs with -S and the caller's import path: it finds the same Vela, and starts without site's delay.
_WORKER = """
import json, os
from ethosu import regor
text, _, model = sys.stdin.buffer.read().partition(b"\\0")
request = json.loads(text)
system = request["system"] + request["ini"]
compiled = regor.compile(request["architecture"], model, request["format"], system, options=request["options"])
report = compiled.perf_report
summary = {"npu_operations": report.npuOps}
def rows(name, *columns):
    table = compiled.opt_database.tables.get(name)
    if table is None or not set(columns) <= set(table.header):
        return []
    places = [table.header.index(column) for column in columns]
    return [[row[place] for place in places] for row in table.data]
index = {key: int(operator) for key, operator in rows("source", "id", "ext_key")}
source = {key: index.get(number, -1) for key, number, _ in rows("perf", "id", "source_id", "op_cycles")}
streams = {}
for offset, stream, operation in rows("queue", "offset", "cmdstream_id", "scheduled_id"):
    streams.setdefault(int(stream), []).append([int(offset), source.get(operation, -1)])
summary["operators"] = [streams[stream] for stream in sorted(streams)]
summary["cycles"] = sum(int(cycles) for _, _, cycles in rows("perf", "id", "source_id", "op_cycles"))
def archive(raw):  # as Vela's --output-format raw writes it
    import io, numpy
    fields = {"cmd_data": raw.command_stream, "weight_data": raw.read_only.data}
    fields |= {"scratch_size": raw.scratch.size, "scratch_fast_size": raw.scratch_fast.size}
    columns = {"shape": "shape", "elem_size": "element_size", "region": "region", "offset": "address"}
    for kind in ("input", "variable", "output"):
        for name, column in columns.items():
            fields[kind + "_" + name] = [getattr(tensor, column) for tensor in getattr(raw, kind + "s")]
    sink = io.BytesIO()
    numpy.savez(sink, **fields)
    return sink.getvalue()
with os.fdopen(int(sys.argv[1]), "wb") as result:
    result.write(json.dumps(summary).encode() + b"\\0")
    result.write(compiled.model if request["format"] == "TFLITE" else archive(compiled))
"""
