"""Inputs of an artifact, as `npu-memplan run` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npu_memplan.artifact import Artifact
from npu_memplan.files.arrays import read_inputs


def load_inputs(artifact: Artifact, given: Sequence[str]) -> list[Any]:
    """Arrays for all inputs of `artifact`; see `read_inputs`."""
    return read_inputs(artifact.name, artifact.inputs, given)
