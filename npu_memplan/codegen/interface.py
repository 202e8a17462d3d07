"""The interface of a compiled model: its pools, and where its tensors are in them, as the caller sees them.

Invariant: every name that ends up in C is a C identifier and carries the model's name, so
that the sources of two models link into one program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..artifact.model import Artifact, TensorSlot
from ..ethosu.arch import ACCELERATORS, Architecture
from ..names import c_identifier
from . import CodegenError

C_LINKAGE = ('#ifdef __cplusplus\nextern "C" {\n#endif\n', "#ifdef __cplusplus\n}\n#endif\n")
"""What surrounds functions that C++ may call, with an empty line after each."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool of the plan: `size_bytes` is what the plan uses, not what the memory has."""

    name: str
    size_bytes: int
    alignment: int = 16  # of the base address, bytes
    region: int = 1  # base pointer of the NPU that addresses it


@dataclass(frozen=True, slots=True)
class NpuTarget:
    """The facts that a driver must know of the NPU that a model was compiled for."""

    accelerator: str
    config: int  # bits of the register CONFIG that count
    region_config: int  # the register REGIONCFG


@dataclass(frozen=True, slots=True)
class Interface:
    """Pools in the order of `<name>_run`'s argument, and the tensors at their planned offsets."""

    name: str
    pools: tuple[PoolSpec, ...]
    inputs: tuple[TensorSlot, ...] = ()
    outputs: tuple[TensorSlot, ...] = ()
    states: tuple[TensorSlot, ...] = ()
    constant_pools: tuple[PoolSpec, ...] = ()  # the read-only ones: arrays of the generated code
    constants_passed: bool = False  # those are the caller's too, after the other pools
    symbols: Mapping[str, int] = field(default_factory=dict)  # shape symbols -> greatest values; further arguments
    npu: NpuTarget | None = None
    payloads: bool = False  # streams follow the header that Arm's driver expects
    incbin: bool = False  # large constants are files next to the C
    host_kernels: str = ""  # the option of that name
    converts: bool = False  # the caller converts floats: the network's own conversions at its ends were left out
    source_sha256: str = ""  # of the model's file; empty: it was made from none

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Interface:

        def pool_specs(*, read_only: bool) -> tuple[PoolSpec, ...]:
            return tuple(
                PoolSpec(pool.name, artifact.pool_bytes(pool.name), pool.alignment, region)
                for pool, region in zip(artifact.problem.pools, artifact.regions, strict=True)
                if pool.read_only is read_only
            )

        tensors = (artifact.inputs, artifact.outputs, artifact.states)
        pools = pool_specs(read_only=False), *tensors, pool_specs(read_only=True)
        payloads = artifact.target.launch == "arm-core-driver"
        return cls(
            c_identifier(artifact.name),
            *pools,
            npu=npu_target(artifact),
            payloads=payloads,
            incbin=artifact.target.incbin,
            host_kernels=artifact.target.host_kernels,
            converts=artifact.target.io == "int8",
            source_sha256=artifact.source_sha256,
        )

    @property
    def parameter_text(self) -> str:
        return ", ".join(["uint8_t *const pools[]", *(f"int64_t {name}" for name in self.symbols)])

    @property
    def argument_text(self) -> str:
        """The names of the parameters, as arguments of an inner call."""
        return ", ".join(["pools", *self.symbols])

    @property
    def npu_context(self) -> str:
        """C variable that is given to the launch function as it is."""
        return f"{self.name}_npu_context"

    def constant_expressions(self) -> dict[str, str]:
        """Name of a read-only pool -> its C expression."""
        return {
            pool.name: f"pools[{len(self.pools) + index}]" if self.constants_passed else self.constants_array(pool)
            for index, pool in enumerate(self.constant_pools)
        }

    def constants_array(self, pool: PoolSpec) -> str:
        """C name of a read-only pool's array in the generated code, e.g. `kws_flash_constants`."""
        return f"{self.name}_{c_identifier(pool.name)}_constants"

    def pool_index(self, pool: str) -> int:
        """Position of `pool` in the run function's argument; `CodegenError` when there is none."""
        for index, candidate in enumerate(self.pools):
            if candidate.name == pool:
                return index
        raise CodegenError(
            f"model {self.name}: a tensor lies in pool {pool!r}, but the plan has: "
            f"{', '.join(p.name for p in self.pools) or 'no pools'}"
        )


def npu_target(artifact: Artifact) -> NpuTarget | None:
    """The NPU of an artifact; None when it uses none."""
    npu = ACCELERATORS.get(artifact.target.accelerator)
    if npu is None or not artifact.npu_operations:
        return None
    pools = dict(zip(artifact.regions, (pool.name for pool in artifact.problem.pools), strict=True))
    return NpuTarget(npu.name, npu.config_word, region_config(npu, pools))


def region_config(npu: Architecture, pools: Mapping[int, str]) -> int:
    """REGIONCFG: constants through AXI1; pools through AXI0, but off-chip ones through AXI1 where it can.

    Where AXI1 cannot write (U55), no pool may use it. Two bits a region: 0 and 1
    are limits of AXI0, 2 and 3 of AXI1. `pools`: their names by region.
    """
    value = 3  # region 0
    for region in range(1, 8):
        value |= (2 if pools.get(region) == "dram" and npu.axi1_writes else 0) << 2 * region
    return value


def c_files(artifact: Artifact) -> tuple[str, ...]:
    pools = any(pool.read_only for pool in artifact.problem.pools)
    library = ("_cmsis_nn",) if artifact.target.host_kernels else ()
    parts = ("", "_host", "_npu", *(("_constants",) if pools else ()), *library)
    return tuple(f"{c_identifier(artifact.name)}{part}.c" for part in parts)
