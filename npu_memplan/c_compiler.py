"""The user's C compiler, and the message where there is none.

Invariant: $CC decides where it is set; nothing is run here.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys


def compiler_command() -> list[str] | None:
    """Command of the C compiler: $CC, cc, gcc, clang, or the ziglang package; None without one."""
    named = _words_of_cc()
    if named is not None:
        return named if named and shutil.which(named[0]) else None
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-I", "-m", "ziglang", "cc"]
    return None


def _words_of_cc() -> list[str] | None:
    """The words of $CC; none when they are no command line, None when it is not set."""
    if not os.environ.get("CC", "").strip():
        return None
    try:
        return shlex.split(os.environ["CC"])
    except ValueError:  # a quotation without an end
        return []


def missing_compiler() -> str | None:
    """Why there is no C compiler, with what to do; None when there is one."""
    if compiler_command() is not None:
        return None
    command = _words_of_cc()
    fault = "which is not on PATH" if command else "which is no command line"
    named = "" if command is None else f" (CC names {os.environ['CC']!r}, {fault})"
    return f"no C compiler found{named}; set CC, or install one (e.g. apt install gcc, or pip install ziglang)"
