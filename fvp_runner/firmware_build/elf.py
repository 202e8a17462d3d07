"""Read a 32-bit little-endian ELF executable, and put data into one of its symbols.

Invariant: the file's bytes are never changed in place; `with_data` and `with_segment` give a new image. Only
what loading firmware needs is read: segments and symbols. Source: the ELF specification.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError, ELFParseError
from elftools.elf.elffile import ELFFile

from npu_memplan.files.paths import read_bytes

from ..base import RunnerError


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
            segments = tuple(
                Segment(s["p_offset"], s["p_vaddr"], s["p_paddr"], s["p_filesz"], bool(s["p_flags"] & 2))
                for s in file.iter_segments("PT_LOAD")
            )
            return cls(image, file["e_entry"], segments, _symbols(file), _sections(file))
        except (ELFError, ELFParseError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
            raise ElfError(f"{where} is a damaged ELF file: {error}") from None

    def symbol(self, name: str) -> Symbol:
        """The symbol called `name`; `ElfError` when it was not linked in."""
        try:
            return self.symbols[name]
        except KeyError:
            raise ElfError(f"the firmware has no symbol {name!r}; build it again") from None

    def read(self, address: int, size_bytes: int) -> memoryview | None:
        """The file's bytes for `[address, address + size_bytes)` if one segment holds them all."""
        offset = self._offset(address, size_bytes)
        return None if offset is None else memoryview(self.image)[offset : offset + size_bytes]

    def read_only(self, address: int, size_bytes: int) -> memoryview | None:
        """As `read`, but only from a segment that no program may write."""
        for s in self.segments:
            if not s.writable and s.virtual <= address and address + size_bytes <= s.virtual + s.file_bytes:
                return self.read(address, size_bytes)
        return None

    def with_data(self, name: str, data: bytes) -> Elf:
        """The same executable with `data` at the start of symbol `name`."""
        symbol = self.symbol(name)
        offset = self._offset(symbol.address, symbol.size_bytes)
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

    def _offset(self, address: int, size_bytes: int) -> int | None:
        for s in self.segments:
            if s.virtual <= address and address + size_bytes <= s.virtual + s.file_bytes:
                return s.offset + address - s.virtual
        return None


_ALLOCATED = 2  # SHF_ALLOC


def _sections(file: Any) -> tuple[Section, ...]:
    return tuple(
        Section(s.name, s["sh_addr"], s["sh_size"])
        for s in file.iter_sections()
        if s["sh_flags"] & _ALLOCATED and s["sh_size"]
    )


def _symbols(file: Any) -> dict[str, Symbol]:
    return {
        # the address of a function carries the Thumb bit
        symbol.name: Symbol(
            symbol["st_value"] & (-2 if symbol["st_info"]["type"] == "STT_FUNC" else -1), symbol["st_size"]
        )
        for table in file.iter_sections("SHT_SYMTAB")
        for symbol in table.iter_symbols()
        if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
    }
