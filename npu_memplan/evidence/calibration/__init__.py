"""Memories from measurements: named figures of a memory system fitted to the counters of a record.

Invariant: a figure is given only where the record decides it, to a twentieth, together with all others that are fitted.
"""

from .advice import explain_undecided as explain_undecided
from .fit import Calibration as Calibration
from .fit import Fitted as Fitted
from .fit import calibrate as calibrate
from .observations import CalibrationError as CalibrationError
from .observations import Observation as Observation
from .observations import observations as observations
from .parameters import Facts as Facts
from .parameters import Parameter as Parameter
from .parameters import parameters_of as parameters_of
from .system_ini import system_ini as system_ini
