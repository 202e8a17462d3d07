"""Models of the time of a program, which differ in what no published count decides; programs are compared under them.

Invariant: `NOMINAL` is what every figure is of unless it says otherwise; the others say by how much it may be off.
Programs are searched for under one of them, the best under all at once, and taken only where they are better under all.
Source of their figures: settings of an independent simulation that the counts of FVPs still allow
(docs/time_validation.md). `LEFT_OUT` is of printed ranges alone: an error of all programs chooses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..arch import Product


@dataclass(frozen=True, slots=True)
class Assumptions:
    """A model of how operations share a memory and begin."""

    name: str
    in_turn: bool = False  # a memory serves kernels and transfers one after the other; else both by halves
    alone: bool = False  # an operation has its memories to its end, and waits for the first byte of each block
    contention: float = 1.0  # times the cycles of a memory while kernels and transfers share it
    kernel_start: int = 0  # cycles before a kernel's first request
    transfer_start: int = 0  # cycles before a transfer's first request
    in_flight_share: float | None = None  # of what the NPU's buffers may have requested; None: the accelerator's


NOMINAL = Assumptions("shared by halves")
IN_TURN = Assumptions("memories in turn", in_turn=True)
CONTENDED = Assumptions("shared port 1.25, slow starts", contention=1.25, kernel_start=60, transfer_start=100)
MODELS = (NOMINAL, IN_TURN, CONTENDED)  # that programs are compared under
# Nothing overlaps that uses one memory: it differs in kind, and is slower than all published counts. No program is
# chosen for its cycles under it and no figure is of it, but none is taken that it puts above Vela's stream.
ALONE = Assumptions("one operation at a time", in_turn=True, alone=True)
JUDGED = (*MODELS, ALONE)
# For NPUs whose buffers are taken to have less than all under way (Ethos-U85 with one port).
_BUFFERS = (Assumptions("all of buffers under way", in_flight_share=1.0),)
# Published counts over estimates that saw no count of their network: their range, by family. Made without a network, it
# has nine of ten of that one's counts.
# Source: `benchmarks.time_left_out` (docs/time_validation.md).
LEFT_OUT: Mapping[Product, tuple[float, float]] = {
    Product.U55: (0.96, 1.05),
    Product.U65: (0.96, 1.05),
    Product.U85: (0.92, 1.05),
}
SEARCHED = CONTENDED  # programs are searched for under it: most of them gain least on Vela's program there


def printed_models(in_flight_share: float) -> tuple[Assumptions, ...]:
    """The models that a printed range is of, `NOMINAL` first; `in_flight_share` is the accelerator's."""
    return MODELS + (_BUFFERS if in_flight_share < 1 else ())
