"""Module passes whose errors reach the caller as they were raised.

Invariant: TVM makes text of every error that leaves a pass; called by itself, a pass raises the original
`NpuMemplanError`. Inside a `Sequential` TVM raises an error of its own with the same text. Programs may be nested as
deep as TVM itself takes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm

from ..errors import NpuMemplanError
from ..planners import gc_paused
from ..process.ending import raise_lack_of_memory

DEEPEST = 10_000
"""Calls of Python within each other while a module is walked: enough for an `if` in an `if` some hundred times."""


@contextmanager
def module_walk() -> Iterator[None]:
    """A scope in which walks may go `DEEPEST` calls deep, and look for no garbage."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        with gc_paused():
            yield
    finally:
        sys.setrecursionlimit(before)


class TypedPass:
    """The base of the classes that `typed_pass` makes passes of."""

    def __call__(self, module: Any) -> Any:
        """The module that the pass makes of `module`, which stays as it is."""
        try:
            return tvm.ir.transform.ModulePass.__call__(self, module)
        except Exception as error:
            raise_lack_of_memory(error)
            raised = vars(vars(self)["_inst"]).pop("raised", None)
            if raised is not None:
                raise raised from None
            raise


def typed_pass(described: Any) -> Any:
    """`described`, a `TypedPass` with a `transform_module`, as a TVM module pass called `npu_memplan.<its name>`."""
    transform = described.transform_module

    def transform_module(self: Any, module: Any, context: Any) -> Any:
        try:
            with module_walk():
                return transform(self, module, context)
        except NpuMemplanError as error:
            self.raised = error
            raise

    described.transform_module = transform_module
    made = tvm.ir.transform.module_pass(opt_level=0, name=f"npu_memplan.{described.__name__}")(described)
    made.__qualname__, made.__call__ = described.__qualname__, TypedPass.__call__
    return made
