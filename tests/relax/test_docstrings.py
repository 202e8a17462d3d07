"""Public transforms say in numpydoc form what each parameter is, what comes back and what is raised."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

pytest.importorskip("tvm")

from npu_memplan import transform
from npu_memplan.errors import NpuMemplanError


def is_described_elsewhere(public) -> bool:
    """Dataclasses are described by their fields, errors by their text."""
    return dataclasses.is_dataclass(public) or (isinstance(public, type) and issubclass(public, NpuMemplanError))


NAMES = [n for n in transform.__all__ if not is_described_elsewhere(getattr(transform, n))]


def sections(text: str) -> dict[str, list[str]]:
    """Title -> lines, of a numpydoc text."""
    lines = inspect.cleandoc(text).splitlines()
    found: dict[str, list[str]] = {}
    title = ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"}:
            assert len(below) == len(line)
            title = line
            found[title] = []
        elif title and set(line) != {"-"}:
            found[title].append(line)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_described(name):
    public = getattr(transform, name)
    own = [c for c in getattr(public, "__mro__", [public]) if c.__name__ == name]
    made = next((c.__init__ for c in own if isinstance(c, type) and "__init__" in vars(c)), public)
    within = inspect.getclosurevars(made).nonlocals.get("pass_cls")  # TVM wraps the class of a pass
    made = made if within is None else within.__init__
    wanted = [p for p in inspect.signature(made).parameters if p not in ("self", "args", "kwargs")]
    described = sections(public.__doc__ or "").get("Parameters", [])
    names = [line.split(" : ")[0].lstrip("*") for line in described if line and not line.startswith(" ")]
    assert names == wanted
    assert all(" : " in line or line.startswith("**") for line in described if line and not line.startswith(" "))
