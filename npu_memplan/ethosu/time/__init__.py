"""Time: how many cycles a command stream takes on an NPU and its memories, and what bounds it.

Invariant: an estimate is a function of (stream, `Architecture`, `MemoryMap`) and of nothing else, never less than what
its memories need for the bytes it moves, never used for results. It is held to cycle counts of Arm's FVPs that others
published (docs/time.md). `systems` and `boards` read the memories, `work` the registers; `compute` and `traffic` say
what an operation needs, `cost` of which memory, `timeline` when, `estimate` why; `lanes` draws it.
"""

from .assumptions import ALONE as ALONE
from .assumptions import JUDGED as JUDGED
from .assumptions import MODELS as MODELS
from .assumptions import NOMINAL as NOMINAL
from .assumptions import SEARCHED as SEARCHED
from .assumptions import Assumptions as Assumptions
from .assumptions import printed_models as printed_models
from .boards import Needs as Needs
from .boards import board_map as board_map
from .boards import constants_home as constants_home
from .boards import homes as homes
from .cost import ResourceUse as ResourceUse
from .cost import ResourceUseCache as ResourceUseCache
from .cost import resource_use as resource_use
from .estimate import Bound as Bound
from .estimate import Cause as Cause
from .estimate import Estimate as Estimate
from .estimate import Share as Share
from .estimate import cycles_in_a_row as cycles_in_a_row
from .estimate import estimate as estimate
from .estimate import sum_bounds as sum_bounds
from .lanes import Described as Described
from .lanes import lanes as lanes
from .lanes import name_event as name_event
from .memory import Direction as Direction
from .memory import Memory as Memory
from .memory import MemoryMap as MemoryMap
from .memory import Pulse as Pulse
from .memory import Requester as Requester
from .memory import Traffic as Traffic
from .memory import served_in_turn as served_in_turn
from .span import counts_around as counts_around
from .span import cycles_by_model as cycles_by_model
from .span import milliseconds_between as milliseconds_between
from .span import models_text as models_text
from .span import printed_cycles as printed_cycles
from .systems import System as System
from .systems import SystemDataError as SystemDataError
from .systems import default_memory_map as default_memory_map
from .systems import fvp_system as fvp_system
from .systems import load_system as load_system
from .systems import similar_memory_mode as similar_memory_mode
from .systems import writable_systems as writable_systems
from .timeline import TimingModel as TimingModel
from .timeline import in_a_row as in_a_row
from .timeline import timeline as timeline
from .vela_ini import board_ini as board_ini
