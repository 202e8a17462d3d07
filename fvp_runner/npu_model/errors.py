"""What can be wrong with a command stream or its memory, one type for each.

Invariant: every fault the NPU model finds is an `NpuModelError`; a malformed stream never
surfaces as an error of numpy or of Python itself.
"""

from __future__ import annotations

from npu_memplan.errors import NpuMemplanError


class NpuModelError(NpuMemplanError):
    """The stream cannot be executed, or breaks a rule that hardware does not check."""


class MalformedStreamError(NpuModelError):
    """The words are no command stream."""


class UnsetRegisterError(NpuModelError):
    """An operation needs a register that the stream never set."""


class IllegalValueError(NpuModelError):
    """A register holds a value, or several hold a combination, that means nothing."""


class OutOfRegionError(NpuModelError):
    """An address range is outside its region, or the region is not there."""


class UninitialisedReadError(NpuModelError):
    """An operation reads bytes that were never written."""


class WeightStreamError(NpuModelError):
    """A compressed weight stream or a scale table is damaged."""


class WeightStreamShortError(WeightStreamError):
    """A weight stream (or scale table) ends before the operation has all it needs."""


class WeightStreamLongError(WeightStreamError):
    """A weight stream holds more than the operation consumes."""


class AccumulatorOverflowError(NpuModelError):
    """A sum does not fit the accumulator format (32 or 40 bits)."""


class MissingWaitError(NpuModelError):
    """A kernel or a DMA may start before one that it depends on has finished."""


class BlockDependencyError(NpuModelError):
    """BLOCKDEP lets a kernel read output blocks that the kernel before it may not have written."""


class SelfOverwriteError(NpuModelError):
    """An operation writes over input that it is still reading."""


class ScheduleError(NpuModelError):
    """Two legal completion orders give different results."""


class ModelFaultError(NpuModelError):
    """The model itself failed on a stream: a fault of the model, not of the stream."""
