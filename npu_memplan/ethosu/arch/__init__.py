"""The NPU configurations, and what of them shapes a command stream and its time: one `Architecture` each.

Invariant: a fact about hardware that differs between configurations is a field of `Architecture` and nowhere else.
"""

from __future__ import annotations

from ...errors import RefusalError
from .architecture import BANK_BYTES as BANK_BYTES
from .architecture import Architecture as Architecture
from .architecture import BlockRams as BlockRams
from .architecture import Channel as Channel
from .architecture import Language as Language
from .architecture import OutputKind as OutputKind
from .architecture import Product as Product
from .architecture import Shape as Shape
from .configurations import ETHOS_U55_65, ETHOS_U85


class AcceleratorError(RefusalError):
    """An accelerator name is not known."""


ACCELERATORS = {a.name: a for a in (*ETHOS_U55_65, *ETHOS_U85)}


def accelerator(name: str) -> Architecture:
    """Look up a configuration by name; `AcceleratorError` lists the known names."""
    try:
        return ACCELERATORS[name]
    except KeyError:
        raise AcceleratorError(f"unknown accelerator {name!r}; choose one of: {', '.join(ACCELERATORS)}") from None


def accelerator_of_config(word: int) -> Architecture:
    """The configuration that a COP1 configuration word describes."""
    product, log2_macs = word >> 28, word & 0xF
    for candidate in ACCELERATORS.values():
        if candidate.product.value == product and candidate.macs == 1 << log2_macs:
            return candidate
    raise AcceleratorError(
        f"configuration word {word:#010x} (product {product}, {1 << log2_macs} MACs) is no Ethos-U55, U65 or U85; "
        f"known: {', '.join(ACCELERATORS)}"
    )
