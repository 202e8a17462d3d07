"""What options say, as plain values for a hash; the files that they name are their content.

Invariant: options that may give another result give other values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..options import CompileOptions


def files_of(options: CompileOptions) -> dict[str, str]:
    """Field -> path of each option that names a file which is there."""
    found = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, str) and Path(value).suffix in (".ini", ".toml") and Path(value).is_file()
    }


def resolved(options: CompileOptions) -> CompileOptions:
    """`options` with their defaults, or as they are where they contradict each other, which the compile says."""
    try:
        return options.resolved()
    except NpuMemplanError:
        return options


def plain(options: CompileOptions) -> dict[str, Any]:
    """Fields as JSON; mappings as pairs, because their order may matter."""
    found = {}
    for field in fields(options):
        value = getattr(options, field.name)
        found[field.name] = list(map(list, value.items())) if isinstance(value, Mapping) else value
    return found
