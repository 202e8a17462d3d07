"""A functional Ethos-U55/U65: executes register command streams, bit exactly, on the caller's memory."""

from .errors import (
    AccumulatorOverflowError,
    BlockDependencyError,
    IllegalValueError,
    MalformedStreamError,
    MissingWaitError,
    NpuModelError,
    OutOfRegionError,
    ScheduleError,
    UninitialisedReadError,
    UnsetRegisterError,
    WeightStreamError,
    WeightStreamLongError,
    WeightStreamShortError,
)
from .model import NpuModel, RunStats

__all__ = [
    "AccumulatorOverflowError",
    "BlockDependencyError",
    "IllegalValueError",
    "MalformedStreamError",
    "MissingWaitError",
    "NpuModel",
    "NpuModelError",
    "OutOfRegionError",
    "RunStats",
    "ScheduleError",
    "UninitialisedReadError",
    "UnsetRegisterError",
    "WeightStreamError",
    "WeightStreamLongError",
    "WeightStreamShortError",
]
