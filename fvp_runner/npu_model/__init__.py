"""A functional Ethos-U55/U65: executes register command streams, bit exactly, on the caller's memory."""

from .errors import (
    AccumulatorOverflowError,
    BlockDependencyError,
    IllegalValueError,
    MalformedStreamError,
    MissingWaitError,
    ModelFaultError,
    NpuModelError,
    OutOfRegionError,
    ScheduleError,
    SelfOverwriteError,
    UninitialisedReadError,
    UnsetRegisterError,
    WeightStreamError,
    WeightStreamLongError,
    WeightStreamShortError,
)
from .model import NpuModel, Observer, RunStats
from .network.network import NetworkModel, NetworkRun

__all__ = [
    "AccumulatorOverflowError",
    "BlockDependencyError",
    "IllegalValueError",
    "MalformedStreamError",
    "MissingWaitError",
    "ModelFaultError",
    "NetworkModel",
    "NetworkRun",
    "NpuModel",
    "NpuModelError",
    "Observer",
    "OutOfRegionError",
    "RunStats",
    "ScheduleError",
    "SelfOverwriteError",
    "UninitialisedReadError",
    "UnsetRegisterError",
    "WeightStreamError",
    "WeightStreamLongError",
    "WeightStreamShortError",
]
