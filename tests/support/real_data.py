"""Where real models and planning problems lie: some in the repository, the larger ones beside it.

Invariant: a test that asks for a real file that is not there skips and says where it looked; it never passes without.
Most tests ask for a network, for which a twin stands in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .twins import TWINS, twin_in

REPOSITORY = Path(__file__).resolve().parents[2]
Models = Callable[[str], Path]  # the file of a network, by its name
_OUTSIDE = Path(os.environ.get("NPU_MEMPLAN_SHARED") or REPOSITORY.parent / "shared")


def shared_folder(name: str) -> Path:
    """Folder of real test data beside the checkout, or under $NPU_MEMPLAN_SHARED."""
    return _OUTSIDE / name


def instances(name: str) -> Path:
    """Planning problems of the repository, or beside it: a folder or a file of it."""
    own = REPOSITORY / "tests" / "instances" / name
    return own if own.exists() else shared_folder("instances") / name


def real_model(name: str) -> Path:
    """Path of the real model `name`.tflite, which exists only when somebody has it."""
    own = REPOSITORY / "tests" / "models" / f"{name}.tflite"
    return own if own.is_file() else shared_folder("models") / own.name


def network(name: str) -> Path:
    """Path of the real model `name`.tflite where somebody has it, else of its twin, where it has one."""
    path = real_model(name)
    return path if path.is_file() or name not in TWINS else twin_in(REPOSITORY / "build" / "twins", name)
