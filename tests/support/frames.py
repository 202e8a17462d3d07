"""`inspect.stack` in time that does not grow with the number of modules.

Invariant: `inspect.getmodule` finds what it finds without `remember_frames_without_module`.

TVMScript's decorators ask for the whole stack with its source lines. Of a frame that belongs to no module, as those of
Python's import system, `inspect` looks through all modules each time: two thirds of the time that pytest needs to
collect all tests.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FrameType, ModuleType
from typing import Any


def remember_frames_without_module() -> None:
    """`inspect` does not search again for the module of a file that has none, until modules are added or removed."""
    search = inspect.getmodule
    modules_then: dict[str, int] = {}  # by file: how many modules there were when none was found

    def getmodule(object: Any, _filename: str | None = None) -> ModuleType | None:
        code = object.f_code if isinstance(object, FrameType) else object
        if not isinstance(code, CodeType):
            return search(object, _filename)
        if modules_then.get(code.co_filename) == len(sys.modules):
            return None
        found = search(object, _filename)
        if found is None:
            modules_then[code.co_filename] = len(sys.modules)
        return found

    inspect.getmodule = getmodule
