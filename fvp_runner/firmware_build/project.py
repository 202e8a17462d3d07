"""A firmware project around one compiled model, for a user with nothing but the wheel.

Invariant: the project is examples/firmware with the board's own files in place of Corstone-300's, the driver next to it
and the model in `model/`; it needs neither npu_memplan nor a path of this machine to be built.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.names import c_identifier
from npu_memplan.problem import Agent
from npu_memplan.target_data import Board, BoardMemory, FirmwarePlace, board_names, load_board

from ..base import RunnerError
from .build import FIRMWARE
from .sources import BoardLayout, board_header, lay_out, memory_lines

DRIVER = ("startup", "stack", "uart", "exit", "ethosu", "launch", "cache")
_POOLS = ".npu_memplan_pools"


def example_folder() -> Path:
    """`fvp_runner/firmware_project` of a wheel, `examples/firmware` of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "firmware_project", package.parent / "examples" / "firmware"):
        if (candidate / "CMakeLists.txt").is_file():
            return candidate
    raise RunnerError(f"the firmware project is missing beside {package}; install npu_memplan again")


def write_project(folder: Path, board: Board) -> Artifact:
    """Write the project into `folder`, with the artifact in `model/`; `LayoutError`."""
    artifact = Artifact.load(folder / "model")
    compiled_for = artifact.target.board
    if compiled_for and (other := load_board(compiled_for).name) != board.name:
        raise RunnerError(
            f"{artifact.name} is compiled for board {other}, whose memories and speeds its plan is for; compile it for "
            f"{board.name}, or give --board {compiled_for}"
        )
    layout = lay_out(artifact, board)
    example = example_folder()
    for name in ("CMakeLists.txt", "cmake", "linker", "src"):
        source = example / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    (folder / "driver").mkdir()
    for path in sorted(FIRMWARE.iterdir()):
        if path.stem in DRIVER:
            shutil.copy(path, folder / "driver")
    toolchain = folder / "cmake" / "arm-none-eabi.cmake"
    fragment = folder / "linker" / "npu_memplan.ld"
    texts = {
        toolchain: toolchain.read_text(encoding="utf-8").replace("cortex-m55", board.cpu),
        fragment: _pool_sections(fragment.read_text(encoding="utf-8"), artifact),
        folder / "board.cmake": _board_settings(layout, artifact),
        folder / "linker" / "board_memories.ld": _memory_script(board),
        folder / "src" / "board.h": board_header(board, artifact),
        folder / "src" / "pools.h": _pools_header(artifact),
        folder / "README.md": _readme_text(board, artifact),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return artifact


def _pool_names(artifact: Artifact) -> list[str]:
    return [c_identifier(pool.name) for pool in artifact.run_pools]


def _board_settings(layout: BoardLayout, artifact: Artifact) -> str:
    """Text of board.cmake."""
    board = layout.board
    names = _pool_names(artifact)
    constants = ", ".join(m.name for m in board.memories if Agent.NPU in m.agents)
    lines = [
        f"# {board.name}: where this board has what. -D on CMake's command line goes before it.",
        f'set(NPU_CONSTANTS {layout.constants.name} CACHE STRING "Memory of weights and streams: {constants}")',
    ]
    for index, (pool, name, memory) in enumerate(zip(artifact.run_pools, names, layout.pools, strict=True)):
        variable = f"NPU_POOLS_{name.upper()}" if index else "NPU_POOLS"
        reached = ", ".join(m.name for m in board.memories if _holds_sections(m))
        lines.append(f'set({variable} {memory.name} CACHE STRING "Memory of pool {pool.name}: {reached}")')
    lines.append(f"set(NPU_MORE_POOLS {' '.join(name.upper() for name in names[1:])})")
    lines.append(f"set(BOARD_STACK_BYTES {_firmware_place(board).stack_bytes:#x})")
    return "\n".join(lines) + "\n"


def _holds_sections(memory: BoardMemory) -> bool:
    return not memory.read_only and Agent.NPU in memory.agents and Agent.HOST in memory.agents


def _memory_script(board: Board) -> str:
    """Text of board_memories.ld."""
    place = _firmware_place(board)
    code, data = _memory_names(board, lambda memory: True), _memory_names(board, lambda memory: not memory.read_only)
    named = f'REGION_ALIAS("CODE", {place.code}) /* vectors and code: {code} */\n'
    named += f'REGION_ALIAS("DATA", {place.data}) /* variables and stack: {data} */\n'
    return f"/* {board.name}: {board.description}. */\nMEMORY\n{{\n{memory_lines(board)}}}\n{named}"


def _firmware_place(board: Board) -> FirmwarePlace:
    """Where firmware lies; TODO where that is not known."""
    return board.firmware if board.can_run else FirmwarePlace("TODO", "TODO", "TODO")


def _memory_names(board: Board, holds: Callable[[BoardMemory], bool]) -> str:
    return ", ".join(m.name for m in board.memories if Agent.HOST in m.agents and holds(m))


def _pool_sections(text: str, artifact: Artifact) -> str:
    """npu_memplan.ld with an output section for each pool, so that each can be in another memory."""
    begin = text.index(f"{_POOLS} (NOLOAD)")
    head, block = text[:begin], text[begin:]
    more = []
    for name in _pool_names(artifact)[1:]:
        section = block.replace(_POOLS, f"{_POOLS}_{name}").replace("> NPU_POOLS", f"> NPU_POOLS_{name.upper()}")
        own = f".bss.npu_memplan.{name}"
        more.append(section.replace(".bss.npu_memplan .bss.npu_memplan.*", own))
    return head + "".join(more) + block  # the last one takes what no other took


def _pools_header(artifact: Artifact) -> str:
    """Text of pools.h."""
    lines = [
        "/* The planned pools, in their order, for main.c. The sizes are the model's; the checks are for arrays of",
        " * other sizes. */",
        '#define POOL(name) __attribute__((aligned(32), section(".bss.npu_memplan." #name)))',
    ]
    for name in _pool_names(artifact):
        size = f"MODEL({name.upper()}_BYTES)"
        lines.append(f"static POOL({name}) uint8_t pool_{name}[{size} > 0 ? {size} : 1];")
        lines.append(f"MODEL({name.upper()}_CHECK)(pool_{name});")
    arrays = ", ".join(f"pool_{name}" for name in _pool_names(artifact))
    lines += [
        "",
        f"static uint8_t *const pools[] = {{{arrays}}};",
        'static_assert(MODEL(POOL_COUNT) == sizeof pools / sizeof *pools, "another number of pools: see pools.h");',
    ]
    return "\n".join(lines) + "\n"


def _board_argument(board: Board) -> str:
    """The board as --board takes it."""
    return board.name if board.name in board_names() else str(board.path.resolve())


def steps_to_do(board: Board) -> str:
    """What to do before the project can be built; empty where nothing is."""
    if board.can_run:
        return ""
    return "write values in place of TODO in src/board.h and linker/board_memories.ld: its board file has none"


def build_commands(board: Board) -> tuple[str, ...]:
    """The commands that build the project and run it, in its folder."""
    run = f"npu-memplan run --elf build/firmware.elf --board {_board_argument(board)}"
    return (
        "cmake -S . -B build -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm-none-eabi.cmake",
        "cmake --build build",
        *([run] if board.qemu else []),
    )


def _readme_text(board: Board, artifact: Artifact) -> str:
    listed = "\n".join(build_commands(board))
    where = (
        "" if board.qemu else f"\nNo emulator here runs {board.name}: load `build/firmware.elf` with your debugger.\n"
    )
    reach = " `npu-memplan run --elf` reports a pool or constants in memory that the NPU cannot reach."
    reach = reach if board.qemu else ""
    unknown = "".join(f"- {text}\n" for text in board.unknown)
    to_do = (
        ""
        if board.can_run
        else f"""
**To do first:** {steps_to_do(board)}. Until then CMake stops and lists them, and `src/board.h` is an `#error`.
`driver/uart.c` drives Arm's CMSDK UART: of another one write `uart_init` and `uart_char` anew. Clocks,
power of the NPU, the boot ROM's image header and TrustZone are not set up here: take them from the vendor's project.
Compare `MEMORY` with the core's own addresses: a core may see its tightly coupled memory elsewhere than the NPU does.
Not known of this board, or assumed:

{unknown}"""
    )
    return f"""# Firmware for {board.name}

Written by `npu-memplan new-firmware` around `{artifact.source}`. It needs CMake, Ninja and arm-none-eabi-gcc.
{to_do}
```sh
{listed}
```
{where}
Another model, for the same board and memory mode ({artifact.target.memory_mode}):

```sh
npu-memplan compile MODEL.tflite --board {_board_argument(board)} -o model --force
cmake --build build
```

| file | for |
|---|---|
| `board.cmake` | memories of constants and pools, stack |
| `linker/` | `board_memories.ld` is the board's; `npu_memplan.ld` places constants and pools; `firmware.ld` the rest |
| `src/main.c`, `src/pools.h`, `src/board.h` | your program, the pools, addresses of the board |
| `driver/` | startup, UART and the small Ethos-U driver |
| `model/` | the compiled model: `model/memory.txt` says what lies where |

A pool array that is too small for the model is a compile error.{reach}
"""
