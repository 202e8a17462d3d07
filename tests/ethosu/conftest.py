"""Helpers of the Ethos-U tests: model builder, hand-made streams, compiled real models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.real_data import Models

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@functools.lru_cache(maxsize=32)
def _compiled(path: Path, options: VelaOptions) -> bytes:
    return compile_tflite(path.read_bytes(), options, path.name).network


@pytest.fixture(scope="session")
def compiled(shared_model: Models) -> Callable[..., Network]:
    """`compiled("kws_ref_model", accelerator=...)` -> network; the name "digits" is the project's own model."""

    def compile_named(name: str, **options: str) -> Network:
        path = EXAMPLE if name == "digits" else shared_model(name)
        return read_network(_compiled(path, VelaOptions(**options)), name)

    return compile_named


@pytest.fixture(scope="session")
def compiled_bytes(shared_model: Models) -> Callable[..., bytes]:
    """Like `compiled`, but the file's bytes."""

    def compile_named(name: str, **options: str) -> bytes:
        return _compiled(EXAMPLE if name == "digits" else shared_model(name), VelaOptions(**options))

    return compile_named
