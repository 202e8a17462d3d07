"""Compiles Model Library Format trees with the system's compiler and runs them, NPU calls on the NPU model."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "npu_model"))  # the model writer
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "pipeline"))  # the ONNX export
