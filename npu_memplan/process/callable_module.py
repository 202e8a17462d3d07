"""A module that can be called as well.

Invariant: calling it is calling one function, which is imported then; as a module it is what it was.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


def callable_as(module: str, function: str) -> None:
    """From now on `module` (its full name) is, when called, the function called `function`: `package.module:name`."""
    source, name = function.split(":")

    class CallableModule(types.ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(source), name)(*arguments, **options)

    sys.modules[module].__class__ = CallableModule
