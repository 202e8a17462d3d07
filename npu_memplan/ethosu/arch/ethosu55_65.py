"""The configurations of Ethos-U55 and Ethos-U65.

Invariant: numbers only. Sources: micro-blocks, SHRAM granules, queues and cycles are those of Arm's published
optimiser (ethos-u-vela 5.2.0, Apache-2.0: `architecture_features.py` and regor's `ethos_u55.cpp`, `ethos_u65.cpp`,
`ethos_u55_performance.cpp`); identification words are those of the Ethos-U driver's headers; `launch_cycles` was chosen
after looking at published counts (docs/time_validation.md).
"""

from __future__ import annotations

from functools import partial

from .architecture import Architecture, Granules, OutputKind, Product, Rates, Shape

_KINDS = tuple(OutputKind)[:7]


def _rates(
    output: tuple[float, ...], lookup: float, clamp: float, start: int, acc40: int, doubles: bool = True
) -> Rates:
    return Rates(dict(zip(_KINDS, output, strict=True)), lookup, clamp, start, acc40, doubles)


_GRANULES_64 = Granules(2, 2, 4, 4, 8)
_GRANULES_256 = Granules(8, 8, 16, 16, 20)
_LAUNCH_CYCLES = 80
_u55 = partial(
    Architecture,
    launch_cycles=_LAUNCH_CYCLES,
    product=Product.U55,
    cores=1,
    port_bytes=8,
    address_bits=32,
    max_outstanding_dma=1,
    axi1_writes=False,
    id_word=0x10104001,  # architecture 1.1.0: at least what Vela writes into its payloads
    part_number=0x580,
)
_u65 = partial(
    Architecture,
    launch_cycles=_LAUNCH_CYCLES,
    product=Product.U65,
    ofm_micro=Shape(2, 2, 8),
    shram_kib=48,
    granules=_GRANULES_256,
    port_bytes=16,
    address_bits=40,
    max_outstanding_dma=2,
    axi1_writes=True,
    parallel=True,
    id_word=0x10066001,  # architecture 1.0.6
    part_number=0x58B,
)
_RATES_256 = _rates((1.125, 0.625, 0.5, 0.375, 0.75, 0.125, 0.25), 1.0, 0.25, 2, 2)

ETHOS_U55_65 = (
    _u55(
        32,
        Shape(1, 1, 4),
        16,
        Granules(2, 2, 4, 4, 4),
        _rates((3.0, 2.0, 3.0, 3.0, 6.0, 1.0, 2.0), 1.0, 1.0, 3, 7, doubles=False),
    ),
    _u55(64, Shape(1, 1, 8), 16, _GRANULES_64, _rates((1.5, 1.0, 1.5, 1.5, 3.0, 0.5, 1.0), 1.0, 1.0, 2, 3)),
    _u55(
        128,
        Shape(1, 2, 8),
        24,
        Granules(4, 4, 8, 8, 12),
        _rates((1.25, 0.75, 0.75, 0.75, 1.5, 0.25, 0.5), 1.0, 0.5, 2, 3),
    ),
    _u55(256, Shape(2, 2, 8), 48, _GRANULES_256, _RATES_256),
    _u65(macs=256, cores=1, rates=_RATES_256),
    _u65(macs=512, cores=2, rates=_rates((0.5625, 0.3125, 0.25, 0.1875, 0.375, 0.0625, 0.125), 0.5, 0.125, 2, 2)),
)
