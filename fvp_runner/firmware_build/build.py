"""Build the firmware of an artifact: one ELF for emulator, FVP and silicon.

Invariant: the ELF depends on the artifact, the board, the CPU and the options alone, and is
built again only when one of them changes. Inputs are not in it; they are put into the image
when it is run. The output folder is complete or absent.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds.fragments import REQUIRED_FLAGS
from npu_memplan.codegen.interface import c_files
from npu_memplan.files.manifest import FIRMWARE as BUILT
from npu_memplan.files.paths import read_bytes, read_text
from npu_memplan.files.staging import TakenError, staged_directory
from npu_memplan.names import identifier
from npu_memplan.process.programs import run_program
from npu_memplan.target_data import Board, accelerator_system, load_board

from ..base import RunnerError, RunnerMissingError, RunOptions, load_artifact
from ..process import read_output
from .elf import Elf
from .layout import BoardLayout, LayoutError, place
from .sources import board_header, linker_script, program_header

COMPILER = "arm-none-eabi-gcc"
COMPILER_HINT = "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi"
FIRMWARE = Path(__file__).resolve().parent.parent / "firmware"
MODULES = ("startup", "main", "ethosu", "launch", "uart", "exit", "crc32", "cache", "inputs", "adapters")
_ABI = ("-mthumb", "-mfloat-abi=hard")
_COMPILE = (
    *("-std=c11", "-O2", *REQUIRED_FLAGS, "-ffunction-sections", "-fdata-sections"),
    *("-Wall", "-Wextra", "-Werror"),
    *_ABI,
)
_LINK = ("-nostartfiles", "-Wl,--gc-sections", "-Wl,--fatal-warnings", *_ABI)


_TIMEOUT_S = 600.0  # of one command of the toolchain


class BuildError(RunnerError):
    """The firmware does not compile or link; the message ends with the compiler's own words."""


@dataclass(frozen=True, slots=True)
class Firmware:
    artifact: Artifact
    layout: BoardLayout
    cpu: str
    path: Path
    elf: Elf

    @property
    def board(self) -> Board:
        return self.layout.board


def missing_compiler() -> str | None:
    """Why firmware cannot be built here, or None."""
    if shutil.which(COMPILER) is None:
        return f"the compiler {COMPILER} is not on PATH; install it with: {COMPILER_HINT}"
    if "/" not in _query_compiler("-print-file-name=libc.a"):
        return f"{COMPILER} has no C library; install it with: {COMPILER_HINT}"
    return None


@lru_cache(maxsize=4)
def _query_compiler(option: str) -> str:
    return read_output([COMPILER, option]).text


def board_of(artifact: Artifact, options: RunOptions) -> Board:
    """The board the options name, or the default one of the artifact's accelerator; one that firmware can be for."""
    if options.board is not None:
        return runnable_board(options.board)
    return load_board(accelerator_system(artifact.target.accelerator).board)


def runnable_board(name: str | Path) -> Board:
    """The board `name`; `LayoutError` for one that firmware cannot be linked for."""
    board = load_board(name)
    if not board.runs:
        raise LayoutError(
            f"board {board.name} is described to fit and to time only: its UART, interrupt and linker regions are not "
            "known here. Use npu-memplan compile MODEL --emit c --launch arm-core-driver or --emit vela-tflite in a "
            "project of its vendor's, or add [npu], [uart] and [firmware] to a board file of your own "
            f"(a copy of {board.path}) and give that to --board"
        )
    return board


def build(directory: Path, options: RunOptions, cpu: str | None = None) -> Firmware:
    """Build (or find built) the firmware of the artifact in `directory`.

    `LayoutError` before anything is compiled when it cannot fit; `BuildError` with the
    compiler's message when the C is wrong; `RunnerMissingError` without a compiler.
    """
    artifact = load_artifact(directory, options)
    board = board_of(artifact, options)
    layout = place(artifact, board, options.steps)
    reason = missing_compiler()
    if reason is not None:
        raise RunnerMissingError(reason)
    cpu = options.cpu or cpu or board.cpu
    generated = {
        "board.h": board_header(board, artifact),
        "program.h": program_header(artifact, layout),
        "firmware.ld": linker_script(artifact, layout),
    }
    defines = list(options.defines)
    if options.interrupt:
        defines.append("ETHOSU_USE_INTERRUPT=1")
    if options.steps > 1:
        defines.append(f"INPUT_STEPS={options.steps}")
    sources = [*_sources(directory, artifact), *options.external_sources]
    key = _key(sources, generated, cpu, defines)
    root = options.build_folder or _default_root(directory)
    steps = f"-{options.steps}" if options.steps > 1 else ""
    folder = root / f"{board.name}-{cpu}{'-irq' if options.interrupt else ''}{steps}"
    elf_path = folder / f"{identifier(artifact.name)}.elf"
    if not (elf_path.is_file() and _stamp(folder) == key):
        if options.progress:
            options.progress(f"building {elf_path.name} for {board.name}, {cpu}")
        try:
            with staged_directory(folder, force=True, kind=BUILT) as staging:
                _compile(sources, generated, cpu, defines, staging, elf_path.name)
                (staging / "stamp").write_text(key, encoding="ascii")
        except TakenError:  # another run builds here too: the same, or it is an error
            if _stamp(folder) != key:
                raise
    return Firmware(artifact, layout, cpu, elf_path, Elf.load(elf_path))


def _default_root(directory: Path) -> Path:
    """Inside the artifact; where that may not be written, in the user's cache."""
    if os.access(directory, os.W_OK):
        return directory / "firmware"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    return cache / "npu_memplan" / "firmware" / name


def _stamp(folder: Path) -> str:
    try:
        return read_text(folder / "stamp", 1 << 10, "ascii")
    except (OSError, ValueError):
        return ""


def _sources(directory: Path, artifact: Artifact) -> list[Path]:
    """The firmware's and the artifact's C files; `BuildError` when the artifact has none."""
    generated = [directory / "src" / name for name in c_files(artifact)]
    absent = [p for p in generated if not p.is_file()]
    if absent:
        raise BuildError(f"{directory} has no {absent[0].name} in src; compile the model again")
    return [FIRMWARE / f"{module}.c" for module in MODULES] + generated


def _key(sources: list[Path], generated: dict[str, str], cpu: str, defines: list[str]) -> str:
    digest = hashlib.sha256(
        repr((_query_compiler("--version"), cpu, defines, _COMPILE, _LINK, sorted(generated.items()))).encode()
    )
    headers = {h for p in sources for pattern in ("*.h", "*.bin") for h in p.parent.glob(pattern)}
    for path in [*sources, *sorted(headers)]:
        digest.update(path.name.encode() + b"\0" + read_bytes(path))
    return digest.hexdigest()


def _compile(
    sources: list[Path], generated: dict[str, str], cpu: str, defines: list[str], folder: Path, elf_name: str
) -> None:
    for file_name, text in generated.items():
        (folder / file_name).write_text(text, encoding="utf-8")
    generated_here = sources[-1].parent
    includes = [f"-I{folder}", f"-I{FIRMWARE}", f"-I{generated_here}", f"-Wa,-I,{generated_here}"]
    objects = [folder / f"{source.stem}.o" for source in sources]

    def one(source: Path, target: Path) -> None:
        flags = [f"-mcpu={cpu}", *_COMPILE, *(f"-D{d}" for d in defines), *includes]
        _run([COMPILER, *flags, "-c", str(source), "-o", str(target)], folder, f"compiling {source.name}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        for done in [pool.submit(one, s, t) for s, t in zip(sources, objects, strict=True)]:
            done.result()
    script, map_file = folder / "firmware.ld", folder / "firmware.map"
    link = [COMPILER, f"-mcpu={cpu}", *_LINK, f"-Wl,-T,{script}", f"-Wl,-Map,{map_file}", *map(str, objects)]
    _run([*link, "-lm", "-lc", "-lgcc", "-o", str(folder / elf_name)], folder, "linking the firmware")
    for path in objects:
        path.unlink()


def _run(command: list[str], folder: Path, doing: str) -> None:
    try:
        done = run_program(command, folder, _TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{doing} took longer than {_TIMEOUT_S:g} s; the command was: {' '.join(command)}") from None
    if done.returncode != 0:
        lines = [
            line for line in done.stderr.splitlines() if "error" in line or "warning" in line or "overflow" in line
        ]
        shown = "\n".join((lines or done.stderr.splitlines())[:8])
        raise BuildError(f"{doing} failed:\n{shown}\nthe command was: {' '.join(command)}")
