"""Tables of boards: what they have.

Invariant: a figure is the board file's or an estimate that says so; what is not known is a dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Column

from ...process.setup import terminal
from ...target_data import Board, BoardMemory
from .memory_txt import table_of


def print_boards(boards: Sequence[Board]) -> None:
    console = terminal()
    table = table_of("board", "NPU", Column("MHz", justify="right"), "memories that the NPU reaches", "state")
    for board in boards:
        reached = ", ".join(f"{m.name} {_size(m)}" for m in board.memories if m.speed or m.like)
        clock = f"{board.clock.npu_hz / 1e6:,.0f}" if board.clock.npu_hz else "-"
        table.add_row(board.name, board.accelerator.removeprefix("ethos-"), clock, reached, board.state)
    console.print(table)
    console.print()
    console.print("emulated: firmware was run by us on emulators. described: from public texts, never run by us.")


def board_text(board: Board) -> Iterator[str]:
    """All that is known of a board, with sources."""
    yield f"{board.name}: {board.description}"
    if board.aliases:
        yield f"also called: {', '.join(board.aliases)}"
    yield f"accelerators: {', '.join(board.accelerators)}; for a host of -mcpu={board.cpu}"
    if board.beside:
        yield f"other NPUs of the chip, for link --npu: {', '.join(board.beside)}"
    clocks = (("NPU", board.clock.npu_hz), ("host", board.clock.cpu_hz))
    yield "clocks: " + ", ".join(f"{who} {hz / 1e6:,.0f} MHz" if hz else f"{who} not known" for who, hz in clocks)
    for memory in board.memories:
        reach = [*sorted(agent.value for agent in memory.agents), *(["DMA"] if memory.dma else [])]
        kind = "read only, " if memory.read_only else ""
        where = f"{memory.name:8} {memory.base:#010x} {_size(memory):>9}"
        yield f"  {where}  {kind}reached by {', '.join(reach)}{_speed(memory)}"
    for mode, placement in board.placements.items():
        pools = "; ".join(f"pool {pool}: {', '.join(names)}" for pool, names in placement.pools.items())
        yield f"  {mode}: {pools}; constants: {', '.join(placement.constants)}"
    yield from (f"source: {text}" for text in board.sources)
    yield from (f"not known: {text}" for text in board.unknown)


def _speed(memory: BoardMemory) -> str:
    if memory.speed is not None:
        scale, latency = f"{100 * memory.speed.clock_scale:.1f} %", memory.speed.read_latency
        source = memory.speed.source
        return f"; AXI{memory.speed.port} at {scale} of its port, {latency} cycles to the first byte ({source})"
    return f"; taken as {memory.like} of the system configuration" if memory.like else ""


def _size(memory: BoardMemory) -> str:
    size = memory.size_bytes
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size >> 10} KiB"
