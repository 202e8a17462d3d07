"""The reference for PT2E programs: PyTorch itself, running the exported program.

Invariant: nothing of this package but the reading of the file is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.models.torch import read_program

from .framework import RealReference

_QUANTISES = "quantized_decomposed.quantize_per_tensor"  # what such an operator is called


class TorchReference(RealReference):
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

    def _with_steps(self) -> Callable[[Sequence[NDArray[Any]], np.random.Generator], Any]:
        torch, module = self._torch, self._module

        class MovedByStep(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def __init__(self, rng: np.random.Generator) -> None:
                super().__init__(module)
                self.rng = rng

            def run_node(self, node: Any) -> Any:
                if not str(node.target).startswith(_QUANTISES) or node.args[0].op == "get_attr":
                    return super().run_node(node)
                (value, scale, *more), keywords = self.fetch_args_kwargs_from_env(node)
                steps = self.rng.choice(np.array((-1, 1), np.float32) * np.float32(scale), tuple(value.shape))
                return node.target(value + torch.from_numpy(np.asarray(steps)), scale, *more, **keywords)

        def compute(inputs: Sequence[NDArray[Any]], rng: np.random.Generator) -> Any:
            with torch.no_grad():
                return MovedByStep(rng).run(*(torch.from_numpy(value) for value in inputs))

        return compute
