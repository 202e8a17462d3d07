"""Micro-streams: small NPU programs whose cycles depend on one mechanism that no published measurement decides.

Invariant: a stream is a function of the accelerator and its memories alone; what it must compute is worked out by numpy
from the same weights, never by the NPU model.
"""

from .artifact import micro_artifact as micro_artifact
from .artifact import micro_options as micro_options
from .catalogue import MICRO_STREAMS as MICRO_STREAMS
from .catalogue import build_micro as build_micro
from .stream import MicroStream as MicroStream
