"""Cycles that no schedule of copies goes below."""

from .cycles import least_cycles, staying
from .needs import with_least_needs
from .work import least_work, port_cycles

__all__ = ["least_cycles", "least_work", "port_cycles", "staying", "with_least_needs"]
