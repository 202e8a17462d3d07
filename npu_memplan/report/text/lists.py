"""Tables of boards, and of the operators of TFLite and tflite-micro: what has code for each, of which types, how exact.

Invariant: a figure is the board file's or an estimate that says so; what is not known is a dash. A cell of the
operators is a row of `exactness`, which tests hold to the reference; nothing is printed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Column

from ...exactness import EXACT, EXACT_AS_A_WHOLE, LIBRARY, LITERT, STEP, Code, Exactness, operator_claim
from ...process.setup import terminal_console
from ...target_data import Board, BoardMemory
from .memory_txt import table_of


def print_boards(boards: Sequence[Board]) -> None:
    console = terminal_console()
    table = table_of("board", "NPU", Column("MHz", justify="right"), "memories that the NPU reaches", "state")
    for board in boards:
        reached = ", ".join(f"{m.name} {_size_text(m)}" for m in board.memories if m.speed or m.like)
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
        where = f"{memory.name:8} {memory.base:#010x} {_size_text(memory):>9}"
        yield f"  {where}  {kind}reached by {', '.join(reach)}{_speed_text(memory)}"
    for mode, placement in board.placements.items():
        pools = "; ".join(f"pool {pool}: {', '.join(names)}" for pool, names in placement.pools.items())
        yield f"  {mode}: {pools}; constants: {', '.join(placement.constants)}"
    yield from (f"source: {text}" for text in board.sources)
    yield from (f"not known: {text}" for text in board.unknown)


def _speed_text(memory: BoardMemory) -> str:
    if memory.speed is not None:
        scale, latency = f"{100 * memory.speed.clock_scale:.1f} %", memory.speed.read_latency
        source = memory.speed.source
        return f"; AXI{memory.speed.port} at {scale} of its port, {latency} cycles to the first byte ({source})"
    return f"; taken as {memory.like} of the system configuration" if memory.like else ""


def _size_text(memory: BoardMemory) -> str:
    size = memory.size_bytes
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size >> 10} KiB"


_ORDER = ("int8", "int16", "uint8", "float32", "int32", "int64", "uint32", "bool")
MARKS = {Exactness.EXACT: "", Exactness.ULPS: "~", Exactness.STEP: "±", Exactness.UNPROVEN: "?", Exactness.DIFFERS: "!"}
LEGEND = (
    "A type alone: exact against tflite-micro's reference kernels; with L: against LiteRT's; ±: within a step of the "
    "reference; ~: the reference's float operations with a function of the C library, equal with the same library. "
    "`all`: whatever types the operator has."
)


def operator_kinds() -> tuple[str, ...]:
    """Operators with code of some kind, by name, those of TFLite first."""
    claimed = {kind for table in EXACT.values() for found in table.values() for kind in found}
    return tuple(sorted(claimed | {kind for _, kind, _ in STEP} | EXACT_AS_A_WHOLE | set(LIBRARY)))


def without_code() -> tuple[str, ...]:
    """Built-in operators of the schema that nothing here has code for."""
    import tflite

    names = {n for n, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int) and not n.startswith("_")}
    names -= {"CUSTOM", "PLACEHOLDER_FOR_GREATER_OP_CODES"}
    return tuple(sorted(names - set(operator_kinds())))


def cell_text(code: Code, kind: str) -> str:
    """The types for which `code` has the operator, each with its mark; empty without any."""
    if code is Code.HOST and kind in EXACT_AS_A_WHOLE:
        return "all"
    return " ".join(_type_marks(code, kind))


def _type_marks(code: Code, kind: str) -> Iterator[str]:
    for dtype in _ORDER:
        known = operator_claim(code, kind, dtype)
        if known.exactness is not Exactness.UNPROVEN:
            yield dtype + MARKS[known.exactness] + ("L" if known.reference == LITERT else "")


def operator_rows() -> Iterator[tuple[str, str, str, str]]:
    """(operator, NPU lifted, NPU lowered, host) for each operator with code."""
    for kind in operator_kinds():
        yield kind, cell_text(Code.LIFTED, kind), cell_text(Code.LOWERED, kind), cell_text(Code.HOST, kind)
