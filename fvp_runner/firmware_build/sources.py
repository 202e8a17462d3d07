"""Where the pools and constants of a model lie on a board, and the generated sources that say so.

Invariant: a layout exists only if everything fits: each whole pool is in one memory that all its agents reach and that
can be written, and no memory is promised more bytes than it has. So a pool that is too big is refused before anything
is compiled. In board.h, program.h and the linker script numbers of the board come from its file alone; numbers of the
model are the macros of its own generated header, and the compiler asserts that both agree (`_Static_assert`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.interface import npu_target
from npu_memplan.ethosu.arch import ACCELERATORS, Language
from npu_memplan.ethosu.time import load_system
from npu_memplan.names import c_identifier
from npu_memplan.problem import POISON, Agent
from npu_memplan.sizes import format_size
from npu_memplan.target_data import Board, BoardMemory, load_memory_mode, targets_folder

from ..base import RunnerError
from ..guards import GUARD, GUARD_BYTES

_ALIGN = 16
_PROGRAM_BYTES = 64 << 10  # left for code and variables, whose bytes only the linker has exactly


class LayoutError(RunnerError):
    """A pool or the constants do not fit the board, or the board does not know the pool."""


@dataclass(frozen=True, slots=True)
class BoardLayout:
    """`pools[i]` is the memory of the artifact's pool i, with `guards_bytes[i]` guard bytes on either side of it."""

    board: Board
    pools: tuple[BoardMemory, ...]
    constants: BoardMemory
    guards_bytes: tuple[int, ...]
    notes: tuple[str, ...] = ()


def input_bytes(artifact: Artifact) -> int:
    """Bytes of all inputs of one inference, without gaps."""
    return sum(slot.size_bytes for slot in artifact.inputs)


def lay_out(artifact: Artifact, board: Board, steps: int = 1) -> BoardLayout:
    """Lay out `artifact`, with inputs for `steps` inferences, on `board`; `LayoutError` says what does not fit."""
    if artifact.target.accelerator not in (*board.accelerators, "none"):
        raise LayoutError(
            f"{artifact.name} is compiled for {artifact.target.accelerator}, but board {board.name} has "
            f"{' or '.join(board.accelerators)}; compile for one of these, or choose another board with --board"
        )
    mode = artifact.target.memory_mode
    placement = board.memory_placement(mode)
    free = {memory.name: memory.size_bytes for memory in board.memories}
    if board.can_run:  # the linker checks code and data to the byte
        free[board.firmware.data] -= board.firmware.stack_bytes
        free[board.firmware.io] -= _pad_size(16 + steps * _pad_size(input_bytes(artifact)))
    pools = []
    for pool in artifact.run_pools:
        names = placement.pools.get(pool.name)
        if names is None:
            raise LayoutError(
                f"board {board.name} does not say where pool {pool.name!r} lies in memory mode {mode}; it knows: "
                f"{', '.join(placement.pools)}. Add it to [placement.{mode}] in {board.path}"
            )
        size = artifact.pool_bytes(pool.name)
        candidates = [board.memory(n) for n in names]
        usable = [m for m in candidates if pool.agents <= m.agents and not m.read_only]
        if not usable:
            agents = " and ".join(sorted(a.value for a in pool.agents))
            raise LayoutError(
                f"pool {pool.name!r} must be written by {agents}, which none of {', '.join(names)} on board "
                f"{board.name} allows; name another memory in [placement.{mode}] of {board.path}"
            )
        what = f"pool {pool.name!r} of {artifact.name}"
        hint = f"compile with a smaller pool, e.g. --pool {pool.name}={usable[0].size_bytes}"
        pools.append(_take_memory(what, size, usable, free, board, hint))
    size = artifact.constants_bytes + artifact.stream_bytes
    candidates = [board.memory(n) for n in placement.constants]
    usable = [m for m in candidates if Agent.NPU in m.agents]
    what = f"the constants of {artifact.name}"
    constants = _take_memory(what, size, usable, free, board, "choose a memory mode with constants in a bigger memory")
    notes: tuple[str, ...] = ()
    if usable and constants is not usable[0]:
        notes = (
            f"constants: {format_size(size)} do not fit {usable[0].name} of {board.name}, they are in {constants.name}",
        )
    return BoardLayout(board, tuple(pools), constants, _guard_bytes(artifact, pools, free, board), notes)


def _guard_bytes(
    artifact: Artifact, memories: Sequence[BoardMemory], free: dict[str, int], board: Board
) -> tuple[int, ...]:
    """Guard bytes on either side of each pool: of what is left when everything else has its place."""
    guards = []
    for pool, memory in zip(artifact.run_pools, memories, strict=True):
        alignment = max(pool.alignment, _ALIGN)  # a multiple of it, so that the pool after it is aligned
        kept = alignment + (_PROGRAM_BYTES if memory.name in (board.firmware.code, board.firmware.data) else 0)
        guard = max(0, min(GUARD_BYTES, (free[memory.name] - kept) // 2) // alignment * alignment)
        free[memory.name] -= 2 * guard
        guards.append(guard)
    return tuple(guards)


def _pad_size(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _take_memory(
    what: str, size: int, usable: Sequence[BoardMemory], free: dict[str, int], board: Board, hint: str
) -> BoardMemory:
    for memory in usable:
        if _pad_size(size) <= free[memory.name]:
            free[memory.name] -= _pad_size(size)
            return memory
    best = max(usable, key=lambda m: free[m.name], default=None)
    if best is None:
        raise LayoutError(f"{what}: no memory of board {board.name} named for it can be reached by the NPU")
    left = ", ".join(f"{memory.name} has {format_size(free[memory.name])} left" for memory in usable)
    raise LayoutError(
        f"{what} needs {format_size(size)}, but {left} on board {board.name}: "
        f"{format_size(size - free[best.name])} too much; {hint}, or choose another board with --board"
    )


def board_header(board: Board, artifact: Artifact) -> str:
    """Text of board.h. A board that no firmware can be linked for has TODO in place of what is not known."""
    name = artifact.target.accelerator
    npu = ACCELERATORS[name if name in ACCELERATORS else board.accelerators[0]]
    places = {
        "BOARD_UART_BASE": (
            f"{board.uart.base:#010x}u",
            "address; uart.c drives Arm's CMSDK UART, replace it for another",
        ),
        "BOARD_UART_BAUD_DIVISOR": (f"{board.uart.baud_divisor}u", "the UART's clock by 115200, at least 16"),
        "BOARD_NPU_BASE": (f"{board.npu.base:#010x}u", "address of the NPU's registers, as the core sees it"),
        "BOARD_NPU_IRQ": (f"{board.npu.irq}", "the NPU's interrupt, below 96"),
    }
    lines = [
        f"#define {name} {value if board.can_run else f'TODO /* {what} */'}" for name, (value, what) in places.items()
    ]
    if not board.can_run:
        unset = " || ".join(f"{name} == TODO" for name in places)
        lines = ["#define TODO -1", *lines, f"#if {unset}"]
        lines += [f'#error "board.h: write values in place of TODO: {", ".join(places)}"', "#endif"]
    listed = "\n".join(lines)
    return f"""/* Generated from the description of board {board.name}. */
#ifndef NPU_MEMPLAN_BOARD_H
#define NPU_MEMPLAN_BOARD_H

#define BOARD_NAME "{board.name}"
#define BOARD_IRQ_COUNT {board.vectors.irq_count}
{listed}
#define BOARD_NPU_U85 {int(npu.language is Language.U85)}

#endif
"""


def _pools_of(upper: str, artifact: Artifact, layout: BoardLayout) -> tuple[list[str], list[str], list[str]]:
    """Assertions of their sizes, their arrays with guards, and the macros of their sizes."""
    asserts, pools, sizes = [], [], []
    for index, (pool, memory, guard) in enumerate(
        zip(artifact.run_pools, layout.pools, layout.guards_bytes, strict=True)
    ):
        size = artifact.pool_bytes(pool.name)
        macro = f"{upper}_{c_identifier(pool.name).upper()}_BYTES"
        asserts += [
            f'_Static_assert({macro} == {size}, "pool {pool.name} is not the planned size");',
            f'_Static_assert({macro} <= {memory.size_bytes:#x}, "pool {pool.name} is bigger than {memory.name}");',
        ]
        pools.append(
            f"static uint8_t npu_memplan_pool_{index}[{guard} + {max(size, 1)} + {guard}] "
            f'__attribute__((aligned({max(pool.alignment, 16)}), section(".bss.npu_memplan_pool_{index}")));'
        )
        sizes.append(macro)
    return asserts, pools, sizes


def program_header(artifact: Artifact, layout: BoardLayout) -> str:
    """Text of program.h: tables over the macros of the model's own header. Included by main.c."""
    name = c_identifier(artifact.name)
    upper = name.upper()
    asserts, pools, sizes = _pools_of(upper, artifact, layout)
    starts = [f"npu_memplan_pool_{i} + {guard}" for i, guard in enumerate(layout.guards_bytes)]
    inputs = [_slot_row(upper, "INPUT", i) for i in range(len(artifact.inputs))]
    outputs = [_slot_row(upper, "OUTPUT", i) for i in range(len(artifact.outputs))]
    npu = npu_target(artifact)
    config = 0 if npu is None else npu.config
    adapters = _adapter_settings(layout.board, artifact)
    lines = [
        f"/* Generated: what main.c needs to know of {name}. */",
        "#ifndef NPU_MEMPLAN_PROGRAM_H",
        "#define NPU_MEMPLAN_PROGRAM_H",
        "",
        "#include <stdint.h>",
        "",
        f'#include "{name}.h"',
        "",
        f'#define PROGRAM_NAME "{name}"',
        f"#define PROGRAM_RUN {name}_run",
        f"#define PROGRAM_INIT {f'{name}_init' if artifact.has_init else '(void)'}",
        f"#define PROGRAM_RESET {f'{name}_reset' if artifact.states else '(void)'}",
        f"#define PROGRAM_NPU_CONFIG {config:#010x}u /* {artifact.target.accelerator}; 0: no NPU is used */",
        f"#define PROGRAM_ADAPTERS {len(adapters)} /* timing adapters to set */",
        f"#define PROGRAM_POISON {POISON:#04x}",
        f"#define PROGRAM_GUARD {GUARD:#04x}",
        f"#define PROGRAM_POOLS {len(pools)}",
        f"#define PROGRAM_INPUTS {len(inputs)}",
        f"#define PROGRAM_OUTPUTS {len(outputs)}",
        f"#define PROGRAM_INPUT_WORDS {-(-input_bytes(artifact) // 4)}u",
        "",
        f'_Static_assert({upper}_POOL_COUNT == {len(pools)}, "the plan has another number of pools");',
        *asserts,
        "",
        "#ifdef PROGRAM_TABLES /* main.c alone */",
        "struct slot {",
        "  uint32_t pool, offset, bytes;",
        "};",
        *pools,
        _c_table("uint8_t *const pools", starts, "0"),
        _c_table("const uint32_t pool_bytes", sizes, "0"),
        _c_table("const uint32_t guard_bytes", [str(guard) for guard in layout.guards_bytes], "0"),
        _c_table("const struct slot inputs", inputs, "{0, 0, 0}"),
        _c_table("const struct slot outputs", outputs, "{0, 0, 0}"),
        *([_c_table("const struct adapter adapters", adapters, "")] if adapters else []),
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _adapter_settings(board: Board, artifact: Artifact) -> list[str]:
    """Base and settings of each timing adapter, where the system configuration gives those of an FVP."""
    target = artifact.target.resolve_defaults()
    if npu_target(artifact) is None or target.board or target.vela_ini:
        return []
    system = load_system(target.system_config)
    constants = load_memory_mode(target.memory_mode).constants_port
    rows = []
    for adapter in board.timing_adapters:
        memory = system.behind(min(adapter.port, constants))
        if memory.pulse is None:
            return []
        limits = memory.read.outstanding & 63, memory.write.outstanding & 63, 0  # fields of 6 bits; 0: no limit
        pulse = memory.pulse.on, memory.pulse.off, memory.pulse.words
        values = (*limits, memory.read.latency, memory.write.latency, *pulse)
        rows.append(f"{{{adapter.base:#010x}u, {{{', '.join(map(str, values))}}}}}")
    return rows


def linker_script(artifact: Artifact, layout: BoardLayout) -> str:
    """Text of the linker script: targets/linker.ld.in with the board's memories and the pools."""
    board = layout.board
    pools = []
    for index, memory in enumerate(layout.pools):
        section = f".bss.npu_memplan_pool_{index}"
        pools.append(f"  .pool_{index} (NOLOAD) : ALIGN(16) {{ *({section}) }} > {memory.name} :NONE\n")
    values = {
        "NAME": c_identifier(artifact.name),
        "BOARD": board.name,
        "MEMORIES": memory_lines(board),
        "CODE": board.firmware.code,
        "DATA": board.firmware.data,
        "IO": board.firmware.io,
        "CONSTANTS": layout.constants.name,
        "STACK_BYTES": f"{board.firmware.stack_bytes:#x}",
        "POOLS": "".join(pools),
    }
    text = (targets_folder() / "linker.ld.in").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def memory_lines(board: Board) -> str:
    """The lines of the linker script's MEMORY."""
    return "".join(f"  {m.name} : ORIGIN = {m.base:#010x}, LENGTH = {m.size_bytes:#x}\n" for m in board.memories)


def _slot_row(upper: str, kind: str, index: int) -> str:
    prefix = f"{upper}_{kind}_{index}"
    return f"{{{prefix}_POOL, {prefix}_OFFSET, {prefix}_BYTES}}"


def _c_table(declaration: str, rows: list[str], empty: str) -> str:
    """A C array of `rows`; an empty one gets a row that the counts keep from being read."""
    return f"static {declaration}[] = {{{', '.join(rows or [empty])}}};"
