"""The NPU configurations, and what of them shapes a command stream.

Invariant: everything here is derived from (product, MACs per cycle); nothing depends on
the network. Source: the configuration word of the COP1 container and the CONFIG register.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..errors import NpuMemplanError


class Product(Enum):
    """NPU family; the value is the product field of the configuration word."""

    U55 = 0
    U65 = 1


class AcceleratorError(NpuMemplanError):
    """An accelerator name is not known."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One NPU configuration."""

    product: Product
    macs: int  # multiply-accumulates per cycle over all cores

    @property
    def name(self) -> str:
        """Vela's and the user's name, e.g. `ethos-u55-256`."""
        return f"ethos-{self.product.name.lower()}-{self.macs}"

    @property
    def cores(self) -> int:
        """U65-512 is two cores of 256 MACs."""
        return 2 if self.macs == 512 else 1

    @property
    def shram_kib(self) -> int:
        """SHRAM of one core, KiB; the last two KiB hold the LUT slots."""
        return {32: 16, 64: 16, 128: 24}.get(self.macs, 48)

    @property
    def lut_address(self) -> int:
        """Byte address of LUT slot 0 inside SHRAM; slots are 256 bytes apart."""
        return (self.shram_kib - 2) * 1024

    @property
    def ofm_ublock_depth(self) -> int:
        """OFM channels of one micro-block (the IFM's is 8 throughout)."""
        return 4 if self.macs == 32 else 8

    @property
    def address_bits(self) -> int:
        """Width of an address register."""
        return 32 if self.product is Product.U55 else 40

    @property
    def max_outstanding_dma(self) -> int:
        """DMA transfers that may be unfinished at once before the next start blocks."""
        return 1 if self.product is Product.U55 else 2

    @property
    def config_word(self) -> int:
        """Configuration word: log2 MACs, stream version 0, SHRAM KiB of all cores, product."""
        return (self.macs.bit_length() - 1) | (self.shram_kib * self.cores) << 8 | self.product.value << 28


ACCELERATORS = {
    a.name: a
    for a in (
        Accelerator(Product.U55, 32),
        Accelerator(Product.U55, 64),
        Accelerator(Product.U55, 128),
        Accelerator(Product.U55, 256),
        Accelerator(Product.U65, 256),
        Accelerator(Product.U65, 512),
    )
}


def accelerator(name: str) -> Accelerator:
    """Look up a configuration by name; `AcceleratorError` lists the known names."""
    try:
        return ACCELERATORS[name]
    except KeyError:
        raise AcceleratorError(f"unknown accelerator {name!r}; choose one of: {', '.join(ACCELERATORS)}") from None


def accelerator_of_config(word: int) -> Accelerator:
    """The configuration that a COP1 configuration word describes."""
    product, log2_macs = word >> 28, word & 0xF
    for candidate in ACCELERATORS.values():
        if candidate.product.value == product and candidate.macs == 1 << log2_macs:
            return candidate
    raise AcceleratorError(
        f"configuration word {word:#010x} (product {product}, {1 << log2_macs} MACs) is no Ethos-U55/U65; "
        f"known: {', '.join(ACCELERATORS)}"
    )
