"""A functional Ethos-U55/U65/U85: executes register command streams, bit exactly, on the caller's memory."""

from .model import NpuModel
from .network import NetworkModel

__all__ = ["NetworkModel", "NpuModel"]
