"""A firmware project around one compiled model, for a board and a user with nothing but the wheel.

Invariant: the project is examples/firmware with the board's own files in place of Corstone-300's, the driver next to it
and the model in `model/`; it needs neither npu_memplan nor a path of this machine to be built.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.names import identifier
from npu_memplan.problem import Agent
from npu_memplan.target_data import Board, BoardMemory, board_names

from ..base import RunnerError
from .build import FIRMWARE
from .layout import BoardLayout, place
from .pack import write_pack
from .sources import board_header, memory_lines

DRIVER = ("startup", "stack", "uart", "exit", "ethosu", "launch", "cache")
_POOLS = ".npu_memplan_pools"


def example_folder() -> Path:
    """`fvp_runner/firmware_project` of a wheel, `examples/firmware` of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "firmware_project", package.parent / "examples" / "firmware"):
        if (candidate / "CMakeLists.txt").is_file():
            return candidate
    raise RunnerError(f"the firmware project is missing beside {package}; install npu_memplan again")


def write_project(folder: Path, board: Board, pack: bool = False) -> Artifact:
    """Write the project into `folder`, where the artifact is in `model/`; `pack`: as a CMSIS-Pack too.

    `LayoutError` when it does not fit.
    """
    artifact = Artifact.load(folder / "model")
    if artifact.stream is not None:
        raise RunnerError(f"main.c of a project gives {artifact.name} whole inputs; leave out --stream-input")
    layout = place(artifact, board)
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
        fragment: _fragment(fragment.read_text(encoding="utf-8"), artifact),
        folder / "board.cmake": _settings(layout, artifact),
        folder / "linker" / "board_memories.ld": _memories(board),
        folder / "src" / "board.h": board_header(board, artifact, with_regions=False),
        folder / "src" / "pools.h": _pools(artifact),
        folder / "README.md": _readme(board, artifact),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    if pack:
        write_pack(folder, layout, artifact)
    return artifact


def _pool_names(artifact: Artifact) -> list[str]:
    return [identifier(pool.name) for pool in artifact.run_pools]


def _settings(layout: BoardLayout, artifact: Artifact) -> str:
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
        reached = ", ".join(m.name for m in board.memories if _holds(m))
        lines.append(f'set({variable} {memory.name} CACHE STRING "Memory of pool {pool.name}: {reached}")')
    lines.append(f"set(NPU_MORE_POOLS {' '.join(name.upper() for name in names[1:])})")
    lines.append(f"set(BOARD_STACK_BYTES {board.firmware.stack_bytes:#x})")
    return "\n".join(lines) + "\n"


def _holds(memory: BoardMemory) -> bool:
    return not memory.read_only and Agent.NPU in memory.agents and Agent.HOST in memory.agents


def _memories(board: Board) -> str:
    """Text of board_memories.ld."""
    aliases = {"CODE": board.firmware.code, "DATA": board.firmware.data}
    named = "".join(f'REGION_ALIAS("{alias}", {name})\n' for alias, name in aliases.items())
    return f"/* {board.name}: {board.description}. */\nMEMORY\n{{\n{memory_lines(board)}}}\n{named}"


def _fragment(text: str, artifact: Artifact) -> str:
    """npu_memplan.ld with an output section for each pool, so that each can be in another memory."""
    begin = text.index(f"{_POOLS} (NOLOAD)")
    head, block = text[:begin], text[begin:]
    more = []
    for name in _pool_names(artifact)[1:]:
        section = block.replace(_POOLS, f"{_POOLS}_{name}").replace("> NPU_POOLS", f"> NPU_POOLS_{name.upper()}")
        own = f".bss.npu_memplan.{name}"
        more.append(section.replace(".bss.npu_memplan .bss.npu_memplan.*", own))
    return head + "".join(more) + block  # the last one takes what no other took


def _pools(artifact: Artifact) -> str:
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


def _named(board: Board) -> str:
    """The board as --board takes it."""
    return board.name if board.name in board_names() else str(board.path.resolve())


def commands(board: Board) -> tuple[str, ...]:
    """What builds the project and runs it, in its folder."""
    run = f"npu-memplan run --elf build/firmware.elf --board {_named(board)}"
    return (
        "cmake -S . -B build -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm-none-eabi.cmake",
        "cmake --build build",
        *([run] if board.qemu else []),
    )


def _readme(board: Board, artifact: Artifact) -> str:
    listed = "\n".join(commands(board))
    where = (
        "" if board.qemu else f"\nNo emulator here runs {board.name}: load `build/firmware.elf` with your debugger.\n"
    )
    return f"""# Firmware for {board.name}

Written by `npu-memplan new-firmware` around `{artifact.source}`. It needs CMake, Ninja and arm-none-eabi-gcc.

```sh
{listed}
```
{where}
Another model, for the same board and memory mode ({artifact.target.memory_mode}):

```sh
npu-memplan compile MODEL.tflite --board {_named(board)} -o model --force
cmake --build build
```

| file | for |
|---|---|
| `board.cmake` | memories of constants and pools, stack |
| `linker/` | `board_memories.ld` is the board's; `npu_memplan.ld` places constants and pools; `firmware.ld` the rest |
| `src/main.c`, `src/pools.h`, `src/board.h` | your program, the pools, addresses of the board |
| `driver/` | startup, UART and the small Ethos-U driver |
| `model/` | the compiled model: `model/memory.txt` says what lies where |

A pool array that is too small for the model is a compile error. A pool or constants in memory that the NPU cannot reach
are reported by `npu-memplan run --elf`.
"""
