"""What a program of the zoo is: a module with inputs for its `main`, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Entry:
    """A module and sets of inputs for its `main`."""

    module: Any
    inputs: list[list[Any]]
    notes: str = ""
    slow: bool = False
    bounds: dict[str, int] = field(default_factory=dict)  # upper bounds of its shape symbols, where it has any


ZOO: dict[str, Callable[[], Entry | None]] = {}


def entry(build: Callable[[], Entry | None]) -> Callable[[], Entry | None]:
    """Registers a program under the name of its function."""
    ZOO[build.__name__] = build
    return build


def random(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    """Reproducible input values of any dtype."""
    generator = np.random.default_rng([seed, *shape])
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    if dtype == "bool":
        return np.array(generator.integers(0, 2, shape), dtype)
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def for_parameters(module: Any, count: int = 2) -> list[list[Any]]:
    """Random inputs for every parameter of `main`."""
    return [
        [
            random([int(e) for e in p.ty.shape.values], str(p.ty.dtype), seed * 100 + i)
            for i, p in enumerate(module["main"].params)
        ]
        for seed in range(count)
    ]
