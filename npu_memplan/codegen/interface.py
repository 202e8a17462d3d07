"""What the caller of a compiled model sees: its pools, and where its tensors lie in them.

Invariant: every name that ends up in C is a C identifier and carries the model's name, so
that the sources of two models link into one program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..artifact import Artifact, TensorSlot
from .errors import CodegenError


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool of the plan: `size_bytes` is what the plan uses, not what the memory has."""

    name: str
    size_bytes: int
    alignment: int = 16  # of the base address, bytes
    region: int = 1  # base pointer of the NPU that addresses it


@dataclass(frozen=True, slots=True)
class Interface:
    """Pools in the order of `<name>_run`'s argument, and the tensors at their planned offsets."""

    name: str
    pools: tuple[PoolSpec, ...]
    inputs: tuple[TensorSlot, ...] = ()
    outputs: tuple[TensorSlot, ...] = ()
    states: tuple[TensorSlot, ...] = ()

    @classmethod
    def of(cls, artifact: Artifact) -> Interface:
        """The interface that an artifact's plan describes."""
        pools = tuple(
            PoolSpec(pool.name, artifact.pool_bytes(pool.name), pool.alignment, region)
            for pool, region in zip(artifact.problem.pools, artifact.regions, strict=True)
        )
        return cls(identifier(artifact.name), pools, artifact.inputs, artifact.outputs, artifact.states)

    def pool_index(self, pool: str) -> int:
        """Position of `pool` in the run function's argument; `CodegenError` when there is none."""
        for index, candidate in enumerate(self.pools):
            if candidate.name == pool:
                return index
        raise CodegenError(
            f"model {self.name}: a tensor lies in pool {pool!r}, but the plan has: "
            f"{', '.join(p.name for p in self.pools) or 'no pools'}"
        )


def identifier(name: str) -> str:
    """`name` as a C identifier: every other character becomes `_`, a leading digit gets one in front."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    return f"_{text}" if text[0].isdigit() else text
