"""Module passes whose errors reach the caller as they were raised.

Invariant: TVM makes text of every error that leaves a pass; called by itself, a pass raises the `NpuMemplanError` that
it meant. Inside a `Sequential` TVM's error with the same text is what there is.
"""

from __future__ import annotations

from typing import Any

import tvm

from ..errors import NpuMemplanError
from ..process.ending import raise_outside_cause


class TypedPass:
    """What classes that `typed_pass` makes passes of inherit."""

    def __call__(self, module: Any) -> Any:
        """The module that the pass makes of `module`, which stays as it is."""
        try:
            return tvm.ir.transform.ModulePass.__call__(self, module)
        except Exception as error:
            raise_outside_cause(error)
            raised = vars(vars(self)["_inst"]).pop("raised", None)
            if raised is not None:
                raise raised from None
            raise


def typed_pass(described: Any) -> Any:
    """`described`, a `TypedPass` with a `transform_module`, as a TVM module pass called `npu_memplan.<its name>`."""
    transform = described.transform_module

    def transform_module(self: Any, module: Any, context: Any) -> Any:
        try:
            return transform(self, module, context)
        except NpuMemplanError as error:
            self.raised = error
            raise

    described.transform_module = transform_module
    made = tvm.ir.transform.module_pass(opt_level=0, name=f"npu_memplan.{described.__name__}")(described)
    made.__qualname__, made.__call__ = described.__qualname__, TypedPass.__call__
    return made
