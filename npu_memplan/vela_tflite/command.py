"""`compile --emit vela-tflite`: one file for firmware that has TFLite Micro and Arm's driver already.

Invariant: the file appears whole or not at all; what is printed is what its firmware has to provide.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from ..files.whole_file import OutputError, write_whole
from ..names import model_name
from ..options import CompileOptions
from ..report.text.checked import result_lines
from .emit import EmitError, Emitted, emit
from .resident import assembly

Make = Callable[[Path, CompileOptions], Emitted]


def emit_file(model: Path, output: Path, options: CompileOptions, force: bool, as_json: bool, make: Make = emit) -> str:
    """Write the file `output` that `make` makes of `model`; what its firmware needs, in words or as JSON."""
    if output.suffix != ".tflite":
        raise EmitError(
            f"--emit vela-tflite writes one file: give --output a name that ends in .tflite, not {output.name!r}"
        )
    assembly_path = output.with_suffix(".S")
    files = (output, assembly_path) if options.resident != "none" else (output,)
    for path in files:
        _check_free(path, force)
    emitted = make(model, options)
    for path in files:
        _check_free(path, force)  # it has taken a while
    if emitted.resident:
        text = assembly(model_name(output.stem), output.name, emitted.content, emitted.resident)
        write_whole(assembly_path, text.encode())
    write_whole(output, emitted.content)
    if as_json:
        files_written = {"file": str(output), **({"assembly": str(assembly_path)} if emitted.resident else {})}
        return json.dumps({**summary(emitted), **files_written})
    return "\n".join(_lines(emitted, output))


def _check_free(path: Path, force: bool) -> None:
    """`OutputError` when there is such a file already, unless `force`."""
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; give --force to replace it, or another --output")


def summary(emitted: Emitted) -> dict[str, Any]:
    """For --json."""
    return {
        "accelerator": emitted.accelerator,
        "arena_bytes": emitted.arena_bytes,
        "available_bytes": emitted.available_bytes,
        "fast_memory_bytes": emitted.fast_bytes,
        "resident_bytes": len(emitted.resident),
        "vela_arena_bytes": emitted.vela_arena_bytes or None,  # null: unknown
        "estimated_cycles": emitted.cycles,
        "estimated_ms": 1000 * emitted.cycles / emitted.clock_hz,
        "vela_estimated_cycles": emitted.vela_cycles or None,
        "status": emitted.planned.plan.status.value,
        "planner": emitted.planned.plan.planner,
        "file_bytes": len(emitted.content),
        "payload_bytes": emitted.payload_bytes,
        "constants_bytes": emitted.constants_bytes,
        "operators": list(emitted.operators),
        "check": to_builtins(emitted.check),
        "notes": list(emitted.notes),
    }


def _time(emitted: Emitted) -> str:
    vela = f"; Vela's own stream: {emitted.vela_cycles:,}" if emitted.vela_cycles else ""
    milliseconds = 1000 * emitted.cycles / emitted.clock_hz
    return f"time       {emitted.cycles:,} cycles of the NPU, {milliseconds:.3f} ms (estimated){vela}"


def _room(emitted: Emitted) -> list[str]:
    """What the arena has at most, where a board or --pool says so; no plan is larger."""
    size, board = emitted.available_bytes, emitted.planned.extracted.loaded.request.options.board
    there = f"{board} has" if board else "--pool has"
    return [] if size is None else [f"fits       {emitted.arena_bytes:,} of {size:,} bytes that {there}"]


def _lines(emitted: Emitted, output: Path) -> list[str]:
    vela = f"; Vela's own: {emitted.vela_arena_bytes:,}" if emitted.vela_arena_bytes else ""
    lines = [
        f"{output.name}: {emitted.accelerator}, {len(emitted.content):,} bytes",
        f"arena      {emitted.arena_bytes:,} bytes planned ({emitted.planned.plan.status.value}){vela}",
        *_room(emitted),
        "           TFLite Micro adds its own structures and the scratch of its kernels",
        _time(emitted),
        f"operators  {', '.join(emitted.operators)}: the resolver has to know these",
        f"NPU        {emitted.payload_bytes:,} bytes of payloads and {emitted.constants_bytes:,} of constants",
    ]
    if emitted.fast_bytes:
        lines.append(f"driver     ethosu_init is to get at least {emitted.fast_bytes:,} bytes of fast memory")
    if emitted.resident:
        beside = output.with_suffix(".S").name
        lines.append(
            f"resident   {len(emitted.resident):,} bytes of constants are to lie in fast memory: assemble {beside}"
        )
        lines.append("           in place of the file; the time is that of a run with them there")
    lines += [f"note       {note}" for note in emitted.notes]
    for number, line in enumerate(result_lines(emitted.operators_of_model, emitted.check)):
        lines.append(line.replace("Results: ", "results    ") if not number else f"         {line}")
    return [*lines, f"written to {output}"]
