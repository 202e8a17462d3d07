"""`npu-memplan check`: why a Vela-compiled network will not run on a board.

Invariant: every check is made, whatever one before it found. Exit codes: 0 nothing wrong, 1 something is, 2 bad use
or a file that is no network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import command_line
from ..command_line import FILE, PLACE
from ..errors import NpuMemplanError
from ..files.arrays import check_unused, read_inputs
from ..models.executorch.program import is_program
from ..names import split_names
from ..sizes import parse_named_size, parse_size

if TYPE_CHECKING:
    from fvp_runner import FirmwarePools, Remark

    from ..ethosu.time import MemoryMap
    from ..models.network import Network
    from ..options import CompileOptions
    from ..target_data import Board


@click.command(help="Say why a .tflite or .pte of Vela's will not run on a board: accelerator, versions, alignment, "
               "operators to register, regions, arena, memory, hazards; then run it on the NPU model.")  # fmt: skip
@click.argument("network", type=PLACE)
@click.option("--board", default="", metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="The board "
              "it is for; default: all with the network's NPU.")  # fmt: skip
@click.option("--memory-mode", default="", metavar="NAME", shell_complete=command_line.memory_modes, help="How the "
              "network was compiled; default: the board's, or the NPU's.")  # fmt: skip
@click.option("--registered", default="", type=split_names, metavar="OP,OP",
              help="Operators that the firmware registers; "
              "default: all that TFLite Micro has.")  # fmt: skip
@click.option("--arena", type=parse_size, metavar="SIZE", help="Bytes of the firmware's arena; KiB, MiB.")
@click.option("--pool", "pools", multiple=True, type=parse_named_size, metavar="NAME=SIZE", help="Bytes of a pool of "
              "the firmware, for a .pte: planned (planned2 for the second buffer), temp, fast.")  # fmt: skip
@click.option("--one-arena", is_flag=True, help="Of a .pte: scratch and planned buffer 1 in one arena, as the "
              "firmware has them.")  # fmt: skip
@click.option("--data", "external", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte.")
@click.option("--reference", type=FILE, metavar="MODEL.tflite",
              help="The network before Vela: compare outputs, and name the first layer that differs.")  # fmt: skip
@click.option("--input", "inputs", multiple=True, metavar="FILE.npy|random:SEED", help="For the run; default: "
              "random:0.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    network: Path,
    board: str,
    memory_mode: str,
    registered: tuple[str, ...],
    arena: int | None,
    pools: tuple[tuple[str, int], ...],
    one_arena: bool,
    external: tuple[Path, ...],
    reference: Path | None,
    inputs: tuple[str, ...],
    as_json: bool,
) -> None:
    from fvp_runner import FirmwarePools, Level

    from ..models.flatbuffer import read_file
    from ..options import CompileOptions
    from ..target_data import load_board

    data, description = read_file(network), load_board(board) if board else None
    if is_program(data):
        check_unused(network.name, "a .pte", {"--arena": arena, "--reference": reference, "--memory-mode": memory_mode})
        if description is None:
            raise click.UsageError("a .pte is checked for one board: give --board NAME (npu-memplan boards lists them)")
        firmware = FirmwarePools(registered, dict(pools), one_arena)
        remarks = _program_remarks(network.name, data, description, firmware, external, inputs)
        work: dict[str, Any] = {}
    else:
        check_unused(network.name, "no .pte", {"--pool": pools, "--one-arena": one_arena, "--data": external})
        system = CompileOptions(board=board, memory_mode=memory_mode)
        remarks, work = _network_remarks(network, data, system, (registered, arena, reference), inputs)
    wrong = sum(remark.level is Level.WRONG for remark in remarks)
    if as_json:
        rows = [remark.to_dict() for remark in remarks]
        click.echo(
            json.dumps(
                {
                    "network": network.name,
                    "board": description.name if description else None,
                    "wrong": wrong,
                    **work,
                    "findings": rows,
                }
            )
        )
    else:
        verdict = f"{wrong} wrong" if wrong else "nothing wrong was found"
        where = f" on {description.name}" if description else ""
        click.echo("; ".join((f"{network.name}{where}: {verdict}", *_work_text(work))))
        for remark in remarks:
            click.echo(f"{remark.level.value:5}  {remark.topic:11}  {remark.text}")
    if wrong:
        raise click.exceptions.Exit(1)


def _memory_map(network: Network, system: CompileOptions) -> MemoryMap | None:
    """The memories of the NPU's streams; None where there are none, or the board has another NPU."""
    from ..frontend.load import network_memory_map
    from ..target_data import load_board

    calls = network.npu_calls
    if not calls or (system.board and not _has_npus(network, load_board(system.board))):
        return None
    return network_memory_map(network, system)


def _has_npus(network: Network, board: Board) -> bool:
    return all(call.accelerator.name in board.accelerators for call in network.npu_calls)


def _work_of(network: Network, where: MemoryMap | None) -> dict[str, Any]:
    """The operators on the NPU and on the CPU, and the NPU's estimated time in these memories."""
    from ..ethosu.time import printed_cycles
    from ..frontend.load import decoded_streams

    between: dict[str, int] = {}
    clock_hz = 0.0
    calls = network.npu_calls
    if where is not None:
        with suppress(NpuMemplanError):  # a wrong stream has a finding of its own
            between, clock_hz = printed_cycles(decoded_streams(calls), where), where.clock_hz
    on_cpu = [operator.name for operator in network.cpu_operators]
    spent = {name: 1000 * cycles / clock_hz for name, cycles in between.items()}
    work: dict[str, Any] = {"npu_operators": len(calls), "cpu_operators": on_cpu}
    return work | {"npu_ms": next(iter(spent.values()), None), "npu_ms_by_model": spent}


def _work_text(work: dict[str, Any]) -> Iterator[str]:
    """The result of `_work_of` for the first line: a file that is right may still leave most of its work to the CPU."""
    if not work:
        return
    if work["npu_ms"] is not None:
        yield _time_text(work)
    on_cpu = work["cpu_operators"]
    if on_cpu:
        kinds = ", ".join(dict.fromkeys(on_cpu))
        total = len(on_cpu) + work["npu_operators"]
        yield f"{len(on_cpu)} of {total} operators on the CPU ({kinds}), whose time is not estimated"


def _time_text(work: dict[str, Any]) -> str:
    least, most = (f"{end(work['npu_ms_by_model'].values()):.3f}" for end in (min, max))
    return f"NPU about {least if least == most else f'{least} to {most}'} ms (estimated)"


def _board_remarks(network: Network, file_bytes: int, system: CompileOptions) -> Iterator[Remark]:
    """On which of the boards with the network's NPU it fits, and its time there."""
    from fvp_runner import Level, Remark, check_memories

    from ..target_data import board_names, load_board

    boards = [board for board in map(load_board, board_names()) if _has_npus(network, board)]
    for board in boards if network.npu_calls else ():
        wrong = [r.text for r in check_memories(network, file_bytes, board) if r.level is Level.WRONG]
        try:
            work = _work_of(network, _memory_map(network, replace(system, board=board.name)))
        except NpuMemplanError as error:
            wrong.append(str(error))
        if wrong:
            yield Remark(Level.NOTE, "board", f"{board.name}: does not fit: {'; '.join(wrong)}")
        else:
            yield Remark(Level.RIGHT, "board", f"{board.name}: fits; {_time_text(work)}")


def _network_remarks(
    path: Path, data: bytes, system: CompileOptions, firmware: tuple[Any, Any, Path | None], inputs: tuple[str, ...]
) -> tuple[list[Remark], dict[str, Any]]:
    from fvp_runner import FirmwareFacts, Level, Remark, check_network

    from ..ethosu.stream.encode import ContainerError
    from ..models.flatbuffer import read_file
    from ..models.tflite import read_network
    from ..target_data import load_board

    board = load_board(system.board) if system.board else None
    try:
        parsed = read_network(data, path.name)
    except ContainerError as error:
        text = f"{error}: the driver refuses it; nothing else of the file was checked"
        return [Remark(Level.WRONG, "payload", text)], {}
    values = read_inputs(parsed.name, [parsed.tensors[i] for i in parsed.inputs], inputs)
    registered, arena, reference = firmware
    requested = FirmwareFacts(registered, arena, None if reference is None else read_file(reference), str(path))
    found = check_network(parsed, data, board, requested, values)
    if board is None:
        return [*found, *_board_remarks(parsed, len(data), system)], _work_of(parsed, None)
    return found, _work_of(parsed, _memory_map(parsed, system))


def _program_remarks(
    name: str, data: bytes, board: Board, firmware: FirmwarePools, external: tuple[Path, ...], inputs: tuple[str, ...]
) -> list[Remark]:
    from fvp_runner import check_program

    from ..models.executorch.delegates import open_program

    program = open_program(name, data, external)
    return check_program(program, board, firmware, lambda what, wanted: read_inputs(what, wanted, inputs))
