"""`npu-memplan disassemble`: the command streams of a Vela-compiled network as text or JSON.

Invariant: it prints what the stream says and changes nothing; exit codes: 0 right, 2 bad use or input.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..command_line import FILE, PLACE
from ..ethosu.program.describe import Line, describe
from ..ethosu.stream.decode import decode
from ..models.executorch.delegates import npu_calls, open_program, require_npu_calls
from ..models.executorch.program import is_program
from ..models.flatbuffer import NetworkError, read_file
from ..models.tflite import read_network
from ..models.vela import NpuCall


@click.command(help="Print the command streams of a Vela-compiled network (.tflite, raw .npz, or "
               "ExecuTorch's .pte).")  # fmt: skip
@click.argument("network", type=PLACE)
@click.option("--data", "external", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte.")
@click.option("--call", "number", type=click.IntRange(min=0), help="Only this NPU call (0 is the first).")
@click.option("--all-registers", is_flag=True, help="Every register an operation depends on, not only the changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(network: Path, external: tuple[Path, ...], number: int | None, all_registers: bool, as_json: bool) -> None:
    calls = _npu_calls(network, external)
    if number is not None:
        if number >= len(calls):
            raise NetworkError(f"{network.name} has {len(calls)} NPU calls, counted from 0; there is no {number}")
        calls = calls[number : number + 1]
    if as_json:
        click.echo(json.dumps({"network": network.name, "calls": [_document(c, all_registers) for c in calls]}))
        return
    from fvp_runner import unconfirmed_features

    for call in calls:
        words = len(call.words)
        click.echo(
            f"; NPU call at operator {call.index}: {call.accelerator.name}, {words} words, "
            f"{call.read_only.nbytes} bytes of constants, scratch {call.scratch_bytes}, "
            f"fast scratch {call.scratch_fast_bytes}"
        )
        for line in describe(call.words, call.accelerator, all_registers):
            for text in _text(line):
                click.echo(text)
        for note in unconfirmed_features(decode(call.words, call.accelerator.language)):
            click.echo(f"; note: {note}")


def _npu_calls(path: Path, external: tuple[Path, ...]) -> tuple[NpuCall, ...]:
    data = read_file(path)
    if is_program(data):
        program = open_program(path.name, data, external)
        require_npu_calls(program)
        return tuple(one.call for one in npu_calls(program))
    if external:
        raise NetworkError(f"{path.name} is no .pte file; --data is for those")
    parsed = read_network(data, path.name)
    if not parsed.npu_calls:
        raise NetworkError(parsed.why_nothing_runs_on_the_npu(str(path)))
    return parsed.npu_calls


def _text(line: Line) -> list[str]:
    lines = [f"{line.offset_bytes:#08x}  {line.operation:<18} {line.summary}".rstrip()]
    for name, value, meaning in line.registers:
        shown = f"{value:#x}" if value > 9 else str(value)
        lines.append(f"            {name:<18} {shown:<14} {meaning}".rstrip())
    return lines


def _document(call: NpuCall, everything: bool) -> dict[str, object]:
    return {
        "operator": call.index,
        "accelerator": call.accelerator.name,
        "words": len(call.words),
        "constants_bytes": call.read_only.nbytes,
        "scratch_bytes": call.scratch_bytes,
        "scratch_fast_bytes": call.scratch_fast_bytes,
        "commands": [line.to_dict() for line in describe(call.words, call.accelerator, everything)],
    }
