"""Lazy imports of modules that most commands do not use, and lazy methods of dataclasses.

Invariant: a name of a lazy module is the same as after an ordinary import, and a lazy method does the same; only the
time at which the module is executed, or the method is compiled, differs. For processes of our own alone: a library
leaves its caller's imports as they are.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # the module of these two takes longer to import than a command's help
    Loader = MetaPathFinder = object


class LazyModule(ModuleType):
    """A module that is executed when the first of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        execute_module(self)
        return getattr(self, name)


def execute_module(module: ModuleType) -> None:
    """Execute a lazy module; it is an ordinary one from now on."""
    module.__class__ = ModuleType
    loader: Any = module.__loader__
    loader.exec_module(module)


class LazyLoader(Loader):
    """Makes a module of the class `kind`, which executes itself."""

    def __init__(self, loader: Loader, kind: type[ModuleType] = LazyModule) -> None:
        self._loader, self._kind = loader, kind

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        module.__class__ = self._kind


class LazyFinder(MetaPathFinder):
    """Finds the modules of some names, which are executed when they are used."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_lazily(names: Collection[str]) -> None:
    """Execute the modules of these names when the first of their names is asked for, in this process."""
    sys.meta_path.insert(0, LazyFinder(names))


class _Schema(ModuleType):
    """The package `tflite`, which imports 186 modules for the names of all of them. Most are a class in a module of
    the same name; such a module is imported when its class is asked for, and all are for any other name.
    """

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            try:
                return getattr(import_module(f"{self.__name__}.{name}"), name)
            except (ImportError, AttributeError):
                pass
        execute_module(self)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """The import of a module sets it here, in place of its class."""
        super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)


class _SchemaFinder(MetaPathFinder):
    """Finds `tflite`, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "tflite":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader, _Schema)
        return spec


def import_schema_lazily() -> None:
    """Import the modules of `tflite` one by one in this process, if it has imported none."""
    if "tflite" not in sys.modules:
        sys.meta_path.insert(0, _SchemaFinder())


_LATE_METHODS = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"))
_FROZEN_ASSIGNMENT = re.compile(r"__dataclass_builtins_object__\.__setattr__\((\w+),'(\w+)',(.*)\)", re.DOTALL)


def _assign_to_slots(owner: type, body: Sequence[str], names: dict[str, Any]) -> list[str]:
    """The lines of an `__init__` that assign to slots of a frozen class by the slots themselves, which takes two thirds
    of the time; `names` gets what they call.
    """
    lines = []
    for line in body:
        found = _FROZEN_ASSIGNMENT.fullmatch(line)
        slot = getattr(owner, found[2], None) if found else None
        if found and isinstance(slot, MemberDescriptorType):
            names[f"__set_{found[2]}__"] = slot.__set__
            line = f"__set_{found[2]}__({found[1]},{found[3]})"
        lines.append(line)
    return lines


def compile_methods_late() -> None:
    """Let dataclasses that are defined from now on compile these methods at their first call: most of them have none in
    a command, and to compile those of all classes takes a quarter of the imports' time. Those with slots are made
    faster, too.
    """
    create: Callable[..., Any] | None = getattr(dataclasses, "_create_fn", None)
    if create is None:  # from Python 3.13 on all methods of a class are compiled at once
        return

    def create_late(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name not in _LATE_METHODS:
            return create(name, *arguments, **keywords)
        made: Any = None

        def method(self: Any, *given: Any, **named: Any) -> Any:
            nonlocal made
            if made is None:
                owners = [owner for owner in type(self).__mro__ if vars(owner).get(name) is method]
                if name == "__init__" and owners and keywords.get("locals") is not None:
                    parameters, body = arguments
                    body = _assign_to_slots(owners[0], body, keywords["locals"])
                    made = create(name, parameters, body, **keywords)
                else:
                    made = create(name, *arguments, **keywords)
                made.__qualname__ = method.__qualname__
                for owner in owners:
                    setattr(owner, name, made)
            return made(self, *given, **named)

        method.__name__ = name
        return method

    setattr(dataclasses, "_create_fn", create_late)  # noqa: B010 - typeshed does not know it
