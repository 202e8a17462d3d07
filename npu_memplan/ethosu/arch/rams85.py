"""The RAMs inside an Ethos-U85, which decide what blocks fit, and how its weights are filled up.

Invariant: numbers only. Source: Arm's published optimiser (ethos-u-vela 5.2.0, Apache-2.0: regor's `ethos_u85.cpp` and
`ethos_u85_weight_encoder.cpp`).
"""

from __future__ import annotations

from .architecture import BlockRams, Shape


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
