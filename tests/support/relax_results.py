"""What a Relax module computes on this machine, planned or not, as bytes to compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from npu_memplan.transform import pipeline


def build_for_host(module: Any) -> Any:
    """An executable through the pipeline that never plans memory itself."""
    return tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False))


def results(executable: Any, inputs: Iterable[Any]) -> list[bytes]:
    """The bytes of every tensor that `main` gives for these arrays, last one first."""
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(x).reshape(np.shape(x))) for x in inputs]
    stack, found = [relax.VirtualMachine(executable, tvm.cpu())["main"](*arguments)], []
    while stack:
        value = stack.pop()
        if hasattr(value, "numpy"):
            found.append(value.numpy().tobytes())
        else:
            stack.extend(value)
    return found


def used_bytes(planned: Any) -> int:
    """Bytes of all pools of a planned `main` whose sizes are known."""
    return sum(int(size) for _, size in planned["main"].attrs["npu.pools"])
