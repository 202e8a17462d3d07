"""A firmware project around one compiled model, for a user with nothing but the wheel; also as an Open-CMSIS-Pack.

Invariant: the project is examples/firmware with the board's own files in place of Corstone-300's, the driver next to it
and the model in `model/`; it needs neither npu_memplan nor a path of this machine to be built. Every file that the
description of the pack names is in the project, and its components are all that the firmware is made of. Names and
elements are those of the specification's PACK.xsd (github.com/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.codegen.interface import c_files
from npu_memplan.names import c_identifier
from npu_memplan.problem import Agent
from npu_memplan.target_data import Board, BoardMemory, FirmwarePlace, board_names

from ..base import RunnerError
from .build import FIRMWARE
from .sources import BoardLayout, board_header, lay_out, memory_lines

VENDOR = "NpuMemplan"
VERSION = metadata.version("npu_memplan")
_CLASS = "Machine Learning"
_STARTUP = ("startup", "uart", "exit")
_NPU = ("ethosu", "launch", "cache")
_FOLDER = "cmsis"  # what is not in a project without a pack


def write_pack(folder: Path, layout: BoardLayout, artifact: Artifact) -> Path:
    """Describe the project in `folder`; the path of its .pdsc. `RunnerError` where constants are files for .incbin."""
    if artifact.target.incbin:
        raise RunnerError(
            f"a CMSIS-Pack cannot say where .incbin finds {artifact.name}'s constants; leave out --incbin"
        )
    name = c_identifier(artifact.name)
    description = folder / f"{VENDOR}.{name}.pdsc"
    texts = {
        f"{_FOLDER}/model.h": _model_header(name),
        f"{_FOLDER}/firmware.ld": _linker_script(folder / "linker", layout, artifact),
        f"{_FOLDER}/{name}.clayer.yml": _software_layer(name),
        description.name: _pack_description(folder, layout, artifact, name),
    }
    (folder / _FOLDER).mkdir()
    for path, text in texts.items():
        (folder / path).write_text(text, encoding="utf-8")
    return description


def _model_header(name: str) -> str:
    """The names of the model's macros and functions, for a main.c that serves any model."""
    return f"""/* What main.c calls the model's macros and functions; CMake writes this file otherwise. */
#include "{name}.h"
#define MODEL(name) {name.upper()}_##name
#define model(name) {name}_##name
#define MODEL_NAME "{name}"
"""


def _linker_script(linker: Path, layout: BoardLayout, artifact: Artifact) -> str:
    """firmware.ld with what it includes, the memories of constants and pools, and the size of the stack."""

    def included_text(match: re.Match[str]) -> str:
        path = linker / match[1]
        return path.read_text(encoding="utf-8") if path.is_file() else _region_defines(layout, artifact)

    text = re.sub(
        r"^ *INCLUDE (\S+).*\n", included_text, (linker / "firmware.ld").read_text(encoding="utf-8"), flags=re.M
    )
    return f"{text}__stack_bytes = {_firmware_place(layout.board).stack_bytes:#x};\n"


def _region_defines(layout: BoardLayout, artifact: Artifact) -> str:
    """The memory that holds the constants, and that of each pool: the first pool's region has no name behind it."""
    names = [f"NPU_POOLS_{c_identifier(pool.name).upper()}" for pool in artifact.run_pools]
    places = {"NPU_CONSTANTS": layout.constants.name}
    for index, (name, memory) in enumerate(zip(names, layout.pools, strict=True)):
        places[name if index else "NPU_POOLS"] = memory.name
    return "".join(f'REGION_ALIAS("{region}", {memory})\n' for region, memory in places.items())


def _software_layer(name: str) -> str:
    """A software layer for csolution: the components, and the flags that results depend on, which no pack can set."""
    listed = "\n".join(f"    - component: {VENDOR}::{':'.join(parts)}" for parts in _project_components(name))
    return f"""# For a csolution whose device has the board's core. The pack has no device: take that of its vendor.
layer:
  description: {name} on an Ethos-U, with driver, startup and linker script
  packs:
    - pack: {VENDOR}::{name}
  components:
{listed}
  misc:
    - for-compiler: GCC
      C: [{", ".join(REQUIRED_FLAGS)}]
      Link: [-nostartfiles, "-Wl,--gc-sections"]
"""


def _project_components(name: str) -> tuple[tuple[str, str, str], ...]:
    """Class, group and sub-group of each: model, driver, startup, program."""
    return (
        (_CLASS, "Model", name),
        (_CLASS, "NPU Support", "Ethos-U Register Driver"),
        ("Device", "Startup", VENDOR),
        (_CLASS, "Program", name),
    )


def _pack_description(folder: Path, layout: BoardLayout, artifact: Artifact, name: str) -> str:
    """Text of the .pdsc."""
    board = layout.board
    model, driver, startup, program = _project_components(name)
    core = board.cpu.capitalize().replace("-m", "-M")
    parts = (
        (model, f"{name}: streams, weights and C of npu-memplan compile", "Core", _model_files(folder, artifact)),
        (driver, "Register-level driver of one Ethos-U", "Model", _driver_files(folder, _NPU)),
        (startup, f"Start-up, UART and linker script for {board.name}", "Core", _startup_files(folder)),
        (program, "main.c: one inference", "Program", _program_files()),
    )
    components = "".join(_component_text(*part) for part in parts)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<package schemaVersion="1.7.36" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance" xs:noNamespaceSchemaLocation="https://raw.githubusercontent.com/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec/v1.7.36/schema/PACK.xsd">
  <name>{name}</name>
  <vendor>{VENDOR}</vendor>
  <description>{escape(f"{artifact.source} compiled for {board.name}, with a driver of its NPU")}</description>
  <url></url>
  <releases>
    <release version="{VERSION}">Written by npu-memplan {VERSION}</release>
  </releases>
  <conditions>
    <condition id="Core">
      <require Dcore="{core}"/>
      <require Tcompiler="GCC"/>
    </condition>
    <condition id="Model">
      <require condition="Core"/>
      {_component_requirement(model)}
    </condition>
    <condition id="Program">
      <require condition="Model"/>
      {_component_requirement(driver)}
      {_component_requirement(startup)}
    </condition>
  </conditions>
  <csolution>
    <clayer type="Model" path="{_FOLDER}" file="{name}.clayer.yml"/>
  </csolution>
  <components>
{components}  </components>
</package>
"""


def _component_requirement(parts: tuple[str, str, str]) -> str:
    kind, group, sub = (quoteattr(part) for part in parts)
    return f"<require Cclass={kind} Cgroup={group} Csub={sub}/>"


def _component_text(parts: tuple[str, str, str], text: str, condition: str, files: list[tuple[str, str, str]]) -> str:
    """One component: (category, path, further attributes) of each file."""
    kind, group, sub = (quoteattr(part) for part in parts)
    listed = "".join(
        f'        <file category="{category}" name={quoteattr(path)}{more}/>\n' for category, path, more in files
    )
    return f"""    <component Cclass={kind} Cgroup={group} Csub={sub} Cversion="{VERSION}" condition="{condition}">
      <description>{escape(text)}</description>
      <files>
{listed}      </files>
    </component>
"""


def _model_files(folder: Path, artifact: Artifact) -> list[tuple[str, str, str]]:
    sources = folder / "model" / "src"
    headers = sorted(path.relative_to(folder).as_posix() for path in sources.rglob("*.h"))
    return [
        ("include", "model/src/", ""),
        *(("header", header, "") for header in headers),
        *(("source", f"model/src/{name}", "") for name in c_files(artifact)),
    ]


def _driver_files(folder: Path, modules: tuple[str, ...]) -> list[tuple[str, str, str]]:
    present = [f"driver/{module}.h" for module in modules if (folder / "driver" / f"{module}.h").is_file()]
    return [
        ("include", "driver/", ""),
        *(("header", header, "") for header in present),
        *(("source", f"driver/{module}.c", "") for module in modules),
    ]


def _startup_files(folder: Path) -> list[tuple[str, str, str]]:
    settings = f' attr="config" version="{VERSION}"'
    return [
        *_driver_files(folder, _STARTUP),
        ("header", "driver/stack.h", ""),
        ("header", "src/board.h", settings),
        ("linkerScript", f"{_FOLDER}/firmware.ld", settings),
    ]


def _program_files() -> list[tuple[str, str, str]]:
    return [("header", f"{_FOLDER}/model.h", ""), ("header", "src/pools.h", ""), ("source", "src/main.c", "")]


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
    """Write the project into `folder`, with the artifact in `model/`; `pack`: as a CMSIS-Pack; `LayoutError`."""
    artifact = Artifact.load(folder / "model")
    if artifact.stream is not None:
        raise RunnerError(f"main.c of a project gives {artifact.name} whole inputs; leave out --io rows=NAME")
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
    if pack:
        write_pack(folder, layout, artifact)
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

A pool array that is too small for the model is a compile error. A pool or constants in memory that the NPU cannot reach
are reported by `npu-memplan run --elf`.
"""
