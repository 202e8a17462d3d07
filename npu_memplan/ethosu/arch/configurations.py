"""The configurations of Ethos-U55, U65 and U85, with the RAMs inside U85 that decide what blocks fit.

Invariant: numbers only. Micro-blocks, SHRAM granules, queues and cycles are those of Arm's published optimiser
(ethos-u-vela 5.2.0, Apache-2.0: `architecture_features.py` and regor's `ethos_u55.cpp`, `ethos_u65.cpp`,
`ethos_u55_performance.cpp`, `ethos_u85.cpp`, `ethos_u85_performance.cpp`, `ethos_u85_weight_encoder.cpp` and the
register descriptions in `ethos_u85_interface.hpp`); identification words are those of the Ethos-U driver's headers.
`launch_cycles`, and of U85 `command_fetch_bytes`, `awaits_response`, `input_bytes` and what 256 decodes and 1024 and
2048 have in flight, were chosen after looking at published counts (docs/time_validation.md).
"""

from __future__ import annotations

from functools import partial

from .architecture import Architecture, BlockRams, Channel, Granules, Language, OutputKind, Product, Rates, Shape

_KINDS_55_65 = tuple(OutputKind)[:7]


def _rates(
    output: tuple[float, ...], lookup: float, clamp: float, start: int, acc40: int, doubles: bool = True
) -> Rates:
    return Rates(dict(zip(_KINDS_55_65, output, strict=True)), lookup, clamp, start, acc40, doubles)


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
    core_bytes=8,
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


def _units(*units: tuple[int, int, int]) -> tuple[Shape, ...]:
    return tuple(Shape(*unit) for unit in units)


_SMALLEST = _units((1, 2, 1), (1, 1, 2), (1, 1, 2))
_SMALL = _units((2, 2, 1), (1, 2, 2), (1, 1, 4))
_SMALL_ROWS = _units((1, 4, 1), (1, 2, 2), (1, 1, 4))

RAMS = {
    128: BlockRams(8192, 8192, 2048, 768, _SMALLEST, _SMALLEST, depthwise_gaps=(0, 2)),
    256: BlockRams(16384, 16384, 2048, 1536, _SMALL, _SMALL_ROWS, depthwise_gaps=(0, 2)),
    512: BlockRams(16384, 32768, 4096, 3072, _SMALL, _SMALL_ROWS, depthwise_gaps=(2, 2)),
    1024: BlockRams(
        16384,
        65536,
        4096,
        6144,
        _units((2, 4, 1), (2, 2, 2), (1, 2, 4)),
        _units((2, 4, 1), (1, 4, 2), (1, 2, 4)),
        depthwise_gaps=(6, 6),
    ),
    2048: BlockRams(
        32768,
        131072,
        8192,
        12288,
        _units((4, 4, 1), (2, 4, 2), (2, 2, 4)),
        _units((4, 4, 1), (2, 4, 2), (1, 4, 4)),
        depthwise_gaps=(6, 6),
    ),
}
"""By multipliers."""


_STREAM_VERSION = 1
_KINDS_85 = tuple(OutputKind)[7:]
_BUFFERED = tuple(Channel)[:6]


def _u85_architecture(
    macs: int,
    cores: int,
    micro: tuple[Shape, ...],
    ports: tuple[int, int],  # log2 of the SRAM and of the external AXI ports
    output: tuple[float, ...],
    buffers: tuple[int, ...],  # words of 16 bytes, of the first readers of `Channel`, in its order
) -> Architecture:
    weights = cores.bit_length() - 1  # log2 of the weight decoders
    return Architecture(
        product=Product.U85,
        macs=macs,
        cores=cores,
        ofm_micro=micro[0],
        shram_kib=2,  # the LUT RAM; nothing else inside has an address
        granules=None,
        port_bytes=16,
        address_bits=40,
        max_outstanding_dma=4,
        axi1_writes=True,
        id_word=0x20007000,  # architecture 2.0.0
        part_number=0x582,
        rates=Rates(
            output=dict(zip(_KINDS_85, output, strict=True)),
            lookup=output[0],
            clamp=output[0],
            start=2,
            start_acc40=3 if macs == 128 else 2,
            turn=2 * output[0],  # at half the rate
        ),
        config_middle=_STREAM_VERSION | ports[0] << 4 | ports[1] << 6 | weights << 8,
        burst_bytes=128,
        language=Language.U85,
        in_flight_bytes={channel: 16 * words for channel, words in zip(_BUFFERED, buffers, strict=True)},
        in_flight_share=1.0 if ports[1] else 0.8,  # two ports answer in turn
        command_fetch_bytes=128,
        launch_cycles=10,
        awaits_response=True,
        pmu_base=0x1000,
        pmu_counters=8,
        max_blockdep=7,
        micro_blocks=micro,
        max_block=Shape(128, 128, 1024),
        decoded_weights=max(8 * cores, 16 if macs > 128 else 8),
        input_bytes=(32 if macs == 2048 else 16) * 1024,
        rams=RAMS[macs],
    )


ETHOS_U85 = (
    _u85_architecture(
        128, 1, (Shape(1, 2, 8), Shape(1, 1, 16)), (1, 0), (0.5, 0.5, 0.5, 1.0, 1.0, 1.0), (64, 64, 128, 128, 104, 16)
    ),
    _u85_architecture(
        256,
        1,
        (Shape(1, 2, 16), Shape(1, 4, 8), Shape(2, 2, 8)),
        (1, 0),
        (0.25, 0.25, 0.25, 0.5, 0.5, 0.5),
        (104, 104, 128, 128, 128, 16),
    ),
    _u85_architecture(
        512,
        2,
        (Shape(2, 2, 16), Shape(1, 4, 16)),
        (1, 0),
        (0.125, 0.125, 0.25, 0.5, 0.25, 0.25),
        (128, 128, 256, 256, 128, 16),
    ),
    _u85_architecture(
        1024,
        4,
        (Shape(2, 2, 32), Shape(1, 4, 32), Shape(2, 4, 16)),
        (1, 1),
        (0.0625, 0.125, 0.25, 0.5, 0.125, 0.25),
        (256, 256, 416, 208, 256, 16),
    ),
    _u85_architecture(
        2048,
        4,
        (Shape(2, 2, 64), Shape(1, 4, 64), Shape(4, 4, 16)),
        (2, 1),
        (0.03125, 0.0625, 0.125, 0.25, 0.0625, 0.125),
        (256, 256, 512, 256, 256, 16),
    ),
)
