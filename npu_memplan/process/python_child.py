"""Python processes that this one starts: they import what it imports, and nothing from the working directory.

Invariant: no module is imported before the import path is the caller's, without the working directory, unless the user
named it in PYTHONPATH or this package is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_CLEANED = f"import sys; sys.path[:] = sys.argv.pop(1).split({os.pathsep!r}); "


def import_path() -> list[str]:
    """`sys.path` for a child: absolute folders, without the working directory."""
    here, ours = os.path.realpath(os.curdir), str(Path(__file__).resolve().parents[2])
    named = [os.path.realpath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    folders = [os.path.abspath(p) for p in sys.path]  # of an interactive Python, "" is the working directory
    return [p for p in folders if os.path.realpath(p) != here or here in (ours, *named)]


def python_child(code: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
    """The command that runs `code` in a new interpreter; `sys.argv[1:]` are the `arguments`."""
    # isolated: neither the working directory nor the environment say where the first imports come from
    return [sys.executable, "-I", *flags, "-c", _CLEANED + code, os.pathsep.join(import_path()), *arguments]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` as `python -m` does."""
    code = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return python_child(code, *arguments)
