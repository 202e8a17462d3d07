"""What the tests of firmware and runners share: skips with a reason, and hand-made artifacts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import need
from tests.support.real_data import Models


@pytest.fixture(scope="session")
def arm_gcc() -> None:
    need("arm-none-eabi-gcc")


@pytest.fixture(scope="session")
def qemu(arm_gcc: None) -> None:
    need("qemu-system-arm")


@pytest.fixture(scope="session")
def unicorn_engine(arm_gcc: None) -> None:
    if importlib.util.find_spec("unicorn") is None:
        pytest.skip("needs the Python package unicorn (pip install 'npu_memplan[unicorn]')")


@pytest.fixture(scope="session")
def kws_by_hand(tmp_path_factory: pytest.TempPathFactory, shared_model: Models) -> tuple[Path, Any]:
    """(directory, artifact) of the keyword spotter at Vela's own addresses."""
    from tests.support.plain_artifacts import vela_artifact

    directory = tmp_path_factory.mktemp("kws") / "kws"
    return directory, vela_artifact(shared_model("kws_ref_model"), directory, "kws")
