"""The reference for PT2E programs: PyTorch itself, running the exported program.

Invariant: nothing of this package but the reading of the file is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from npu_memplan.models.torch import read_program

from .framework import FrameworkReference


class TorchReference(FrameworkReference):
    """A quantised program on PyTorch.

    PyTorch computes in float between quantisations, with its own libraries: results may differ from the NPU's by a
    step, and float ones in the last bits.
    """

    what = "PyTorch, running the exported program"
    package = "torch"

    def __init__(self, path: Path) -> None:
        program = read_program(path)
        given = program.graph_signature.user_inputs
        values = {node.name: node.meta["val"] for node in program.graph.nodes if node.name in given}
        slots = [(name, tuple(values[name].shape), str(values[name].dtype).removeprefix("torch.")) for name in given]
        super().__init__(path.name, slots)
        self._torch = importlib.import_module("torch")
        self._module = program.module()

    def _compute(self, inputs: Sequence[NDArray[Any]]) -> Any:
        with self._torch.no_grad():
            return self._module(*(self._torch.from_numpy(value) for value in inputs))
