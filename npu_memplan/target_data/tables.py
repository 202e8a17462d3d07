"""The tables of `targets/` that are not boards: memory modes, and the defaults of an accelerator.

Invariant: data only, checked when it is read. The files are in `targets/` of the repository and in
`npu_memplan/targets` of an installed wheel.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import NpuMemplanError
from ..files.paths import read_text
from ..files.schema import T, from_values
from ..problem import Count

_LIMIT_BYTES = 16 << 20  # a board has a few KiB
_toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


class TargetDataError(NpuMemplanError):
    """A board, accelerator or memory mode is unknown, or its file is wrong."""


@dataclass(frozen=True, slots=True)
class MemoryMode:
    """Planned pools in region order (the first is region 1), and hard sizes where the mode has them."""

    name: str
    description: str
    pools: tuple[str, ...]
    like: str = ""
    capacity_bytes: Mapping[str, Count] = field(default_factory=dict, hash=False)
    constants_port: int = 1  # AXI port of the memory that constants and command streams are in


@dataclass(frozen=True, slots=True)
class AcceleratorSystem:
    """Defaults for an accelerator: system configuration of vela.ini, memory mode, board."""

    accelerator: str
    system_config: str
    memory_mode: str
    board: str


@lru_cache(maxsize=1)
def targets_folder() -> Path:
    """Folder of the data files: `npu_memplan/targets` of a wheel, `targets/` of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "targets", package.parent / "targets"):
        if (candidate / "accelerators.toml").is_file():
            return candidate
    raise TargetDataError(f"the data folder 'targets' is missing beside {package}; install npu_memplan again")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; `TargetDataError` when it cannot be read or is none."""
    try:
        values: dict[str, Any] = _toml.loads(read_text(path, _LIMIT_BYTES))
    except OSError as error:
        raise TargetDataError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not TOML, not text, a number of 5,000 digits, endless nesting
        raise TargetDataError(f"{path} is not TOML: {error}") from None
    if _has_long_number(values):
        raise TargetDataError(f"{path} has a number of more than 64 bits")
    return values


def _has_long_number(value: object) -> bool:
    """Whether there is an integer that TOML's readers need not take; as hexadecimal digits, Python's takes any."""
    if isinstance(value, dict):
        return any(map(_has_long_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_long_number, value))
    return isinstance(value, int) and value.bit_length() > 64


@lru_cache(maxsize=8)
def _own_tables(file: str) -> Mapping[str, Any]:
    """A file of this package's, which does not change while it runs: a search of blocks asks it at each step."""
    return MappingProxyType(read_toml(targets_folder() / file))


def memory_mode_names() -> tuple[str, ...]:
    """Names of the memory modes, in the file's order."""
    return tuple(_own_tables("memory_modes.toml"))


def load_memory_mode(name: str) -> MemoryMode:
    """A memory mode by name; `TargetDataError` lists the known ones."""
    return _named_row("memory_modes.toml", "memory mode", {"name": name}, MemoryMode)


def accelerator_names() -> tuple[str, ...]:
    """Names of the accelerators, in the file's order."""
    return tuple(_own_tables("accelerators.toml"))


def accelerator_system(accelerator: str) -> AcceleratorSystem:
    """Default system configuration, memory mode and board of an accelerator."""
    return _named_row("accelerators.toml", "accelerator", {"accelerator": accelerator}, AcceleratorSystem)


def near_names(name: str, known: Iterable[str], print_name: Callable[[str], str] = str) -> str:
    """The question which of the `known` names was meant, with a space behind it; nothing where none is near.

    Those that begin with `name`, else that have it inside, else the nearest; only letters and digits count.
    """
    plain, sought = {plain_name(one): one for one in known}, plain_name(name)
    begun = [key for key in plain if sought and key.startswith(sought)]  # the variants of what was named
    close = begun or [key for key in plain if len(sought) > 1 and sought in key]
    if not close:
        alike = {key: difflib.SequenceMatcher(None, key, sought).ratio() for key in plain}
        nearest = max(0.65, *alike.values()) if alike else 1
        close = [key for key, ratio in alike.items() if ratio == nearest]
    near = dict.fromkeys(print_name(plain[key]) for key in close)
    return f"did you mean {' or '.join(near)}? " if near else ""


def plain_name(name: str) -> str:
    """Small letters and digits of `name`: "EK-RA8P1" is "ekra8p1"."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _named_row(file: str, what: str, named: Mapping[str, str], kind: type[T]) -> T:
    """The table of a file that has the name in `named`, as a `kind`."""
    (name,) = named.values()
    tables = _own_tables(file)
    if name not in tables:
        raise TargetDataError(f"unknown {what} {name!r}; {near_names(name, tables)}known: {', '.join(tables)}")
    return from_values({**named, **tables[name]}, kind, f"{targets_folder() / file}: {name}", TargetDataError)
