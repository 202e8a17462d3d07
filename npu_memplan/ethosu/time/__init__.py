"""Time: how many cycles a command stream takes on an NPU and its memories, and what bounds it.

Invariant: an estimate is a function of (stream, `Architecture`, `MemoryMap`) and of nothing else, never less than what
its memories need for the bytes it moves, never used for results. It is held to cycle counts of Arm's FVPs that others
published (docs/time.md). `systems` and `boards` read the memories, `work` the registers; `compute` and `traffic` say
what an operation needs, `cost` of which memory, `timeline` when, `estimate` why; `lanes` draws it.
"""

from .boards import Needs, board_map, constants_home, homes
from .cost import Demand, Demands, demand
from .estimate import Bound, Cause, Estimate, Share, cycles_in_a_row, estimate
from .lanes import LANE_NAMES, lanes
from .memory import Direction, Memory, MemoryMap, Pulse, Traffic
from .systems import System, SystemDataError, default_memory_map, load_system, system_names
from .timeline import Clock, stream_words, timeline

__all__ = [
    "LANE_NAMES",
    "Bound",
    "Cause",
    "Clock",
    "Demand",
    "Demands",
    "Direction",
    "Estimate",
    "Memory",
    "MemoryMap",
    "Needs",
    "Pulse",
    "Share",
    "System",
    "SystemDataError",
    "Traffic",
    "board_map",
    "constants_home",
    "cycles_in_a_row",
    "default_memory_map",
    "demand",
    "estimate",
    "homes",
    "lanes",
    "load_system",
    "stream_words",
    "system_names",
    "timeline",
]
