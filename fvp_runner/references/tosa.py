"""The reference of TOSA files: the reference model of the specification, from the package tosa-tools.

Invariant: it runs as a program of its own on the file as it is; tosa-tools wants other versions of numpy and
flatbuffers than the rest may have, so it may live in an environment of its own (`tool`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.exactness import TOSA
from npu_memplan.files.owned_folder import scratch_folder
from npu_memplan.models.tosa import read_tosa
from npu_memplan.process.programs import run_program

from .base import ReferenceRunError
from .framework import FrameworkReference

VARIABLE = "NPU_MEMPLAN_TOSA_TOOLS"  # a folder with the programs of tosa-tools
_TIMEOUT_S = 600


def tool(name: str) -> Path | None:
    """A program of tosa-tools: in $NPU_MEMPLAN_TOSA_TOOLS, next to this Python, in its `tosa-tools`, or on PATH."""
    own = Path(sys.prefix)
    folders = [os.environ.get(VARIABLE, ""), str(own / "bin"), str(own / "tosa-tools" / "bin")]
    search = os.pathsep.join([*filter(None, folders), os.environ.get("PATH", "")])
    found = shutil.which(name, path=search)
    return Path(found) if found else None


class TosaReference(FrameworkReference):
    """A TOSA file in the reference model. Integers are to be equal bit for bit."""

    what = TOSA
    package = "tosa-tools"

    def __init__(self, model: bytes, name: str) -> None:
        self._network, self._model = read_tosa(model, name), model
        tensors = self._network.tensors
        super().__init__(name, [(t.name, t.shape, t.dtype) for t in (tensors[i] for i in self._network.inputs)])
        program = tool("tosa_reference_model")
        if program is None:
            raise ReferenceRunError(
                f"{TOSA}, which {name} is compared with, is not installed: pip install 'npu_memplan[tosa]', or "
                f"tosa-tools into an environment of its own, whose bin folder {VARIABLE} names"
            )
        self._program = program

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Outputs for `inputs`; numbers without axes go in and come out as [1], as everywhere here."""
        shapes = [self._network.tensors[i].shape for i in self._network.inputs]
        fitted = [v.reshape(()) if s == () and v.shape == (1,) else v for v, s in zip(inputs, shapes, strict=False)]
        return tuple(value.reshape(value.shape or (1,)) for value in super().run([*fitted, *inputs[len(fitted) :]]))

    def _compute(self, inputs: Sequence[NDArray[Any]]) -> list[_Array]:
        tensors = self._network.tensors
        given = [tensors[i].name for i in self._network.inputs]
        made = [tensors[i] for i in self._network.outputs]
        files = [f"output{i}.npy" for i in range(len(made))]
        description = {
            "tosa_file": "model.tosa",
            "ifm_name": given,
            "ifm_file": [f"input{i}.npy" for i in range(len(given))],
            "ofm_name": [tensor.name for tensor in made],
            "ofm_file": files,
            "expected_failure": False,
        }
        with scratch_folder("tosa") as folder:
            (folder / "model.tosa").write_bytes(self._model)
            (folder / "desc.json").write_text(json.dumps(description), encoding="utf-8")
            for place, value in enumerate(inputs):
                np.save(folder / f"input{place}.npy", value)
            self._run(folder)
            return [_Array(np.load(folder / file), t.dtype) for file, t in zip(files, made, strict=True)]

    def _run(self, folder: Path) -> None:
        command = [str(self._program), "--test_desc", str(folder / "desc.json"), "--output_dir", str(folder)]
        try:
            done = run_program(command, folder, _TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReferenceRunError(f"{TOSA} did not run on {self.name}: {error}") from error
        if done.returncode:
            output_lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise ReferenceRunError(f"{TOSA} refuses {self.name}: {' / '.join(output_lines[:3])}")


class _Array:
    """A result, as frameworks hand them out."""

    def __init__(self, value: NDArray[Any], dtype: str) -> None:
        self._value = value.astype(dtype)

    def numpy(self) -> NDArray[Any]:
        return self._value
