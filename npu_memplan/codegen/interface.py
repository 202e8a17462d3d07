"""What the caller of a compiled model sees: its pools, and where its tensors lie in them.

Invariant: every name that ends up in C is a C identifier and carries the model's name, so
that the sources of two models link into one program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..artifact import Artifact
from ..artifact.parts import TensorSlot
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
    """Pools in the order of `<name>_run`'s argument, and the tensors at their planned offsets.

    `constant_pools` are the read-only ones: arrays of the generated code, or with `constants_passed`
    the caller's too, behind the other pools. `symbols` are shape symbols with their greatest values:
    further arguments of the run function.
    """

    name: str
    pools: tuple[PoolSpec, ...]
    inputs: tuple[TensorSlot, ...] = ()
    outputs: tuple[TensorSlot, ...] = ()
    states: tuple[TensorSlot, ...] = ()
    constant_pools: tuple[PoolSpec, ...] = ()
    constants_passed: bool = False
    symbols: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, artifact: Artifact) -> Interface:
        """The interface that an artifact's plan describes."""

        def specs(*, read_only: bool) -> tuple[PoolSpec, ...]:
            return tuple(
                PoolSpec(pool.name, artifact.pool_bytes(pool.name), pool.alignment, region)
                for pool, region in zip(artifact.problem.pools, artifact.regions, strict=True)
                if pool.read_only is read_only
            )

        tensors = (artifact.inputs, artifact.outputs, artifact.states)
        return cls(identifier(artifact.name), specs(read_only=False), *tensors, specs(read_only=True))

    @property
    def parameters(self) -> str:
        """What every generated function takes."""
        return ", ".join(["uint8_t *const pools[]", *(f"int64_t {name}" for name in self.symbols)])

    @property
    def arguments(self) -> str:
        """The same, handed on."""
        return ", ".join(["pools", *self.symbols])

    def constant_expressions(self) -> dict[str, str]:
        """Name of a read-only pool -> what it is in C."""
        return {
            pool.name: f"pools[{len(self.pools) + index}]" if self.constants_passed else self.array(pool)
            for index, pool in enumerate(self.constant_pools)
        }

    def array(self, pool: PoolSpec) -> str:
        """C name of a read-only pool's array in the generated code, e.g. `kws_flash_constants`."""
        return f"{self.name}_{identifier(pool.name)}_constants"

    def pool_index(self, pool: str) -> int:
        """Position of `pool` in the run function's argument; `CodegenError` when there is none."""
        for index, candidate in enumerate(self.pools):
            if candidate.name == pool:
                return index
        raise CodegenError(
            f"model {self.name}: a tensor lies in pool {pool!r}, but the plan has: "
            f"{', '.join(p.name for p in self.pools) or 'no pools'}"
        )


def c_files(artifact: Artifact) -> tuple[str, ...]:
    """Names of the generated C files of an artifact."""
    pools = any(pool.read_only for pool in artifact.problem.pools)
    parts = ("", "_host", "_npu", *(("_constants",) if pools else ()))
    return tuple(f"{identifier(artifact.name)}{part}.c" for part in parts)


def identifier(name: str) -> str:
    """`name` as a C identifier: every other character becomes `_`, a leading digit gets one in front."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    return f"_{text}" if text[0].isdigit() else text
