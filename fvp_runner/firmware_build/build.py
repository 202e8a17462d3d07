"""The firmware of an artifact built as one ELF for emulator, FVP and silicon, and 32-bit little-endian ELF files read.

Invariant: the ELF depends on the artifact, the board, the CPU and the options alone, and is built again only when one
of them changes. Inputs are not in it; they are put into the image when it is run: a file's bytes are never changed in
place, `with_data` and `with_segment` give a new image. The output folder is complete or absent. Only what loading
firmware needs is read of an ELF file: segments and symbols. Source: the ELF specification.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError, ELFParseError
from elftools.elf.elffile import ELFFile

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.codegen.interface import c_files
from npu_memplan.files.folders import FIRMWARE as BUILT
from npu_memplan.files.folders import TakenError, staged_directory
from npu_memplan.files.paths import read_bytes, read_text
from npu_memplan.names import c_identifier
from npu_memplan.process.programs import run_program
from npu_memplan.target_data import Board, accelerator_system, load_board

from ..base import RunnerError, RunnerMissingError, RunOptions, load_artifact
from ..process import read_output
from .sources import BoardLayout, LayoutError, board_header, lay_out, linker_script, program_header


class ElfError(RunnerError):
    """A file is no ELF executable of this kind, or lacks a symbol."""


_PHOFF, _PHENTSIZE = 28, 42  # fields of the ELF header: of the program headers' table, of their size and number
_PT_LOAD, _READ_WRITE = 1, 6


@dataclass(frozen=True, slots=True)
class Segment:
    """A loadable segment: `file_bytes` bytes at file offset `offset` go to `physical`."""

    offset: int
    virtual: int
    physical: int
    file_bytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """An address, without the Thumb bit, and a size in bytes."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section that takes memory when the program runs."""

    name: str
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Elf:
    image: bytes
    entry: int
    segments: tuple[Segment, ...]
    symbols: dict[str, Symbol]
    sections: tuple[Section, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Elf:
        """Read the executable at `path`; `ElfError` says what is wrong with it."""
        try:
            content = read_bytes(path)
        except OSError as error:
            raise ElfError(f"cannot read {path}: {error.strerror or error}") from None
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, image: bytes, where: str = "image") -> Elf:
        if image[:7] != b"\x7fELF\x01\x01\x01" or len(image) < 52:
            raise ElfError(f"{where} is no 32-bit little-endian ELF file")
        try:
            file = ELFFile(io.BytesIO(image))
            if file["e_machine"] != "EM_ARM":
                raise ElfError(f"{where} is for machine {file['e_machine']}, not for Arm (EM_ARM)")
            table_end = file["e_phoff"] + file["e_phnum"] * file["e_phentsize"]
            if table_end > len(image):
                raise ElfError(f"{where} is a damaged ELF file: {len(image)} bytes, program headers to {table_end}")
            segments = tuple(
                Segment(s["p_offset"], s["p_vaddr"], s["p_paddr"], s["p_filesz"], bool(s["p_flags"] & 2))
                for s in file.iter_segments("PT_LOAD")
            )
            return cls(image, file["e_entry"], segments, _read_symbols(file), _read_sections(file))
        except (ELFError, ELFParseError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
            raise ElfError(f"{where} is a damaged ELF file: {error}") from None

    def find_symbol(self, name: str) -> Symbol:
        """The symbol called `name`; `ElfError` when it was not linked in."""
        try:
            return self.symbols[name]
        except KeyError:
            raise ElfError(f"the firmware has no symbol {name!r}; build it again") from None

    def read(self, address: int, size_bytes: int) -> memoryview | None:
        """The file's bytes for `[address, address + size_bytes)` if one segment holds them all."""
        offset = self._file_offset(address, size_bytes)
        return None if offset is None else memoryview(self.image)[offset : offset + size_bytes]

    def read_only(self, address: int, size_bytes: int) -> memoryview | None:
        """The same as `read`, but only from a segment that no program may write."""
        for s in self.segments:
            if not s.writable and s.virtual <= address and address + size_bytes <= s.virtual + s.file_bytes:
                return self.read(address, size_bytes)
        return None

    def with_data(self, name: str, data: bytes) -> Elf:
        """The same executable with `data` at the start of symbol `name`."""
        symbol = self.find_symbol(name)
        offset = self._file_offset(symbol.address, symbol.size_bytes)
        if offset is None or len(data) > symbol.size_bytes:
            raise ElfError(f"symbol {name!r} holds {symbol.size_bytes} bytes in the file, not {len(data)}")
        image = bytearray(self.image)
        image[offset : offset + len(data)] = data
        return Elf(bytes(image), self.entry, self.segments, self.symbols, self.sections)

    def with_segment(self, address: int, data: bytes) -> Elf:
        """The same executable with one more loadable segment: `data` at `address`, which the program may write."""
        image = bytearray(self.image)
        table, entries = struct.unpack_from("<I", image, _PHOFF)[0], struct.unpack_from("<HH", image, _PHENTSIZE)
        headers = bytes(image[table : table + entries[0] * entries[1]])
        image += bytes(-len(image) % 16)
        offset = len(image)
        image += data + bytes(-len(data) % 16)
        header = struct.pack("<8I", _PT_LOAD, offset, address, address, len(data), len(data), _READ_WRITE, 16)
        struct.pack_into("<I", image, _PHOFF, len(image))
        struct.pack_into("<HH", image, _PHENTSIZE, entries[0], entries[1] + 1)
        return Elf.parse(bytes(image) + headers + header)

    def name_of(self, address: int) -> str:
        """The object at an address, e.g. "kws_stream in .text"; empty when the file says nothing of it."""
        held = [
            (s.size_bytes, name)
            for name, s in self.symbols.items()
            if s.address <= address < s.address + s.size_bytes and not name.startswith("$")
        ]
        sections = [s.name for s in self.sections if s.address <= address < s.address + s.size_bytes]
        return " in ".join([*(name for _, name in sorted(held)[:1]), *sections[:1]])

    def _file_offset(self, address: int, size_bytes: int) -> int | None:
        for s in self.segments:
            if s.virtual <= address and address + size_bytes <= s.virtual + s.file_bytes:
                return s.offset + address - s.virtual
        return None


_ALLOCATED = 2  # SHF_ALLOC


def _read_sections(file: Any) -> tuple[Section, ...]:
    return tuple(
        Section(s.name, s["sh_addr"], s["sh_size"])
        for s in file.iter_sections()
        if s["sh_flags"] & _ALLOCATED and s["sh_size"]
    )


def _read_symbols(file: Any) -> dict[str, Symbol]:
    return {
        # the address of a function carries the Thumb bit
        symbol.name: Symbol(
            symbol["st_value"] & (-2 if symbol["st_info"]["type"] == "STT_FUNC" else -1), symbol["st_size"]
        )
        for table in file.iter_sections("SHT_SYMTAB")
        for symbol in table.iter_symbols()
        if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
    }


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
    if not board.can_run:
        raise LayoutError(
            f"board {board.name} is described to fit and to time only: its UART, interrupt and linker regions are not "
            "known here. npu-memplan new-firmware DIR --board "
            f"{board.name} writes a project with these to fill in; compile --emit arm-core-driver or --emit "
            "vela-tflite writes files for a project of its vendor's"
        )
    return board


def build(directory: Path, options: RunOptions, cpu: str | None = None) -> Firmware:
    """Build (or find built) the firmware of the artifact in `directory`.

    `LayoutError` before anything is compiled when it cannot fit; `BuildError` with the
    compiler's message when the C is wrong; `RunnerMissingError` without a compiler.
    """
    artifact = load_artifact(directory, options)
    board = board_of(artifact, options)
    layout = lay_out(artifact, board, options.steps)
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
    sources = [*_c_sources(directory, artifact), *options.external_sources]
    key = _build_key(sources, generated, cpu, defines)
    root = options.build_folder or _default_root(directory)
    steps = f"-{options.steps}" if options.steps > 1 else ""
    folder = root / f"{board.name}-{cpu}{'-irq' if options.interrupt else ''}{steps}"
    elf_path = folder / f"{c_identifier(artifact.name)}.elf"
    if not (elf_path.is_file() and _folder_stamp(folder) == key):
        if options.progress:
            options.progress(f"building {elf_path.name} for {board.name}, {cpu}")
        try:
            with staged_directory(folder, force=True, kind=BUILT) as staging:
                _compile_firmware(sources, generated, cpu, defines, staging, elf_path.name)
                (staging / "stamp").write_text(key, encoding="ascii")
        except TakenError:  # another run builds here too: the same, or it is an error
            if _folder_stamp(folder) != key:
                raise
    return Firmware(artifact, layout, cpu, elf_path, Elf.load(elf_path))


def _default_root(directory: Path) -> Path:
    """Inside the artifact; where that may not be written, in the user's cache."""
    if os.access(directory, os.W_OK):
        return directory / "firmware"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    return cache / "npu_memplan" / "firmware" / name


def _folder_stamp(folder: Path) -> str:
    try:
        return read_text(folder / "stamp", 1 << 10, "ascii")
    except (OSError, ValueError):
        return ""


def _c_sources(directory: Path, artifact: Artifact) -> list[Path]:
    """The firmware's and the artifact's C files; `BuildError` when the artifact has none."""
    generated = [directory / "src" / name for name in c_files(artifact)]
    absent = [p for p in generated if not p.is_file()]
    if absent:
        raise BuildError(f"{directory} has no {absent[0].name} in src; compile the model again")
    return [FIRMWARE / f"{module}.c" for module in MODULES] + generated


def _build_key(sources: list[Path], generated: dict[str, str], cpu: str, defines: list[str]) -> str:
    digest = hashlib.sha256(
        repr((_query_compiler("--version"), cpu, defines, _COMPILE, _LINK, sorted(generated.items()))).encode()
    )
    headers = {h for p in sources for pattern in ("*.h", "*.bin") for h in p.parent.glob(pattern)}
    for path in [*sources, *sorted(headers)]:
        digest.update(path.name.encode() + b"\0" + read_bytes(path))
    return digest.hexdigest()


def _compile_firmware(
    sources: list[Path], generated: dict[str, str], cpu: str, defines: list[str], folder: Path, elf_name: str
) -> None:
    for file_name, text in generated.items():
        (folder / file_name).write_text(text, encoding="utf-8")
    generated_here = sources[-1].parent
    includes = [f"-I{folder}", f"-I{FIRMWARE}", f"-I{generated_here}", f"-Wa,-I,{generated_here}"]
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, target: Path) -> None:
        flags = [f"-mcpu={cpu}", *_COMPILE, *(f"-D{d}" for d in defines), *includes]
        _run_tool([COMPILER, *flags, "-c", str(source), "-o", str(target)], folder, f"compiling {source.name}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        for done in [pool.submit(compile_one, s, t) for s, t in zip(sources, objects, strict=True)]:
            done.result()
    script, map_file = folder / "firmware.ld", folder / "firmware.map"
    link = [COMPILER, f"-mcpu={cpu}", *_LINK, f"-Wl,-T,{script}", f"-Wl,-Map,{map_file}", *map(str, objects)]
    _run_tool([*link, "-lm", "-lc", "-lgcc", "-o", str(folder / elf_name)], folder, "linking the firmware")
    for path in objects:
        path.unlink()


def _run_tool(command: list[str], folder: Path, doing: str) -> None:
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
