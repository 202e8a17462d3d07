"""A firmware project as an Open-CMSIS-Pack: its description, a software layer, and what CMake makes otherwise.

Invariant: every file that the description names is in the project, and its components are all that the firmware is made
of. Names and elements are those of the specification's PACK.xsd (github.com/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec).
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from npu_memplan import __version__
from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds.fragments import REQUIRED_FLAGS
from npu_memplan.codegen.interface import c_files, region_config
from npu_memplan.names import identifier

from ..base import RunnerError
from .layout import BoardLayout

VENDOR = "NpuMemplan"
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
    name = identifier(artifact.name)
    description = folder / f"{VENDOR}.{name}.pdsc"
    texts = {
        f"{_FOLDER}/model.h": _model_header(name),
        f"{_FOLDER}/firmware.ld": _linker_script(folder / "linker", layout, artifact),
        f"{_FOLDER}/{name}.clayer.yml": _layer(name),
        description.name: _description(folder, layout, artifact, name),
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

    def included(match: re.Match[str]) -> str:
        path = linker / match[1]
        return path.read_text(encoding="utf-8") if path.is_file() else _regions(layout, artifact)

    text = re.sub(r"^ *INCLUDE (\S+).*\n", included, (linker / "firmware.ld").read_text(encoding="utf-8"), flags=re.M)
    return f"{text}__stack_bytes = {layout.board.firmware.stack_bytes:#x};\n"


def _regions(layout: BoardLayout, artifact: Artifact) -> str:
    """Which memory holds the constants, and which each pool: the first pool's region has no name behind it."""
    names = [f"NPU_POOLS_{identifier(pool.name).upper()}" for pool in artifact.run_pools]
    places = {"NPU_CONSTANTS": layout.constants.name}
    for index, (name, memory) in enumerate(zip(names, layout.pools, strict=True)):
        places[name if index else "NPU_POOLS"] = memory.name
    return "".join(f'REGION_ALIAS("{region}", {memory})\n' for region, memory in places.items())


def _layer(name: str) -> str:
    """A software layer for csolution: the components, and the flags that results depend on, which no pack can set."""
    listed = "\n".join(f"    - component: {VENDOR}::{':'.join(parts)}" for parts in _components(name))
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


def _components(name: str) -> tuple[tuple[str, str, str], ...]:
    """Class, group and sub-group of each: model, driver, startup, program."""
    return (
        (_CLASS, "Model", name),
        (_CLASS, "NPU Support", "Ethos-U Register Driver"),
        ("Device", "Startup", VENDOR),
        (_CLASS, "Program", name),
    )


def _description(folder: Path, layout: BoardLayout, artifact: Artifact, name: str) -> str:
    """Text of the .pdsc."""
    board = layout.board
    model, driver, startup, program = _components(name)
    core = board.cpu.capitalize().replace("-m", "-M")
    parts = (
        (model, f"{name}: streams, weights and C of npu-memplan compile", "Core", _model_files(folder, artifact)),
        (driver, "Register-level driver of one Ethos-U", "Model", _driver_files(folder, _NPU)),
        (startup, f"Start-up, UART and linker script for {board.name}", "Core", _startup_files(folder)),
        (program, "main.c: one inference", "Program", _program_files()),
    )
    components = "".join(_component(*part, region_config(artifact)) for part in parts)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<package schemaVersion="1.7.36" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance" xs:noNamespaceSchemaLocation="https://raw.githubusercontent.com/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec/v1.7.36/schema/PACK.xsd">
  <name>{name}</name>
  <vendor>{VENDOR}</vendor>
  <description>{escape(f"{artifact.source} compiled for {board.name}, with a driver of its NPU")}</description>
  <url></url>
  <releases>
    <release version="{__version__}">Written by npu-memplan {__version__}</release>
  </releases>
  <conditions>
    <condition id="Core">
      <require Dcore="{core}"/>
      <require Tcompiler="GCC"/>
    </condition>
    <condition id="Model">
      <require condition="Core"/>
      {_requirement(model)}
    </condition>
    <condition id="Program">
      <require condition="Model"/>
      {_requirement(driver)}
      {_requirement(startup)}
    </condition>
  </conditions>
  <csolution>
    <clayer type="Model" path="{_FOLDER}" file="{name}.clayer.yml"/>
  </csolution>
  <components>
{components}  </components>
</package>
"""


def _requirement(parts: tuple[str, str, str]) -> str:
    kind, group, sub = (quoteattr(part) for part in parts)
    return f"<require Cclass={kind} Cgroup={group} Csub={sub}/>"


def _component(
    parts: tuple[str, str, str], text: str, condition: str, files: list[tuple[str, str, str]], regions: int
) -> str:
    """One component: (category, path, further attributes) of each file. The driver's has REGIONCFG, for all sources."""
    kind, group, sub = (quoteattr(part) for part in parts)
    listed = "".join(
        f'        <file category="{category}" name={quoteattr(path)}{more}/>\n' for category, path, more in files
    )
    settings = f"#define BOARD_NPU_REGIONCFG {regions:#06x}"
    defined = f"      <Pre_Include_Global_h>{settings}</Pre_Include_Global_h>\n" if condition == "Model" else ""
    return f"""    <component Cclass={kind} Cgroup={group} Csub={sub} Cversion="{__version__}" condition="{condition}">
      <description>{escape(text)}</description>
{defined}      <files>
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
    settings = f' attr="config" version="{__version__}"'
    return [
        *_driver_files(folder, _STARTUP),
        ("header", "driver/stack.h", ""),
        ("header", "src/board.h", settings),
        ("linkerScript", f"{_FOLDER}/firmware.ld", settings),
    ]


def _program_files() -> list[tuple[str, str, str]]:
    return [
        ("header", f"{_FOLDER}/model.h", ""),
        ("header", "src/pools.h", ""),
        ("source", "src/main.c", ""),
    ]
