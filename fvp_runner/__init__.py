"""Runs a compiled program and compares it with its reference: in this process, in an emulator, on Arm's FVP.

Invariant: these names are all that `npu_memplan` uses of the runner, and each is imported when it is read, so that the
package itself costs nothing. The runner imports data of `npu_memplan`: what it imports never imports the runner.
"""

# ruff: noqa: F401
# mypy: implicit-reexport
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import RunCheckError, RunOptions, RunOutputs, RunTimeoutError, wants_sanitizer
    from .checked_run.facts import FACTS, FAULT, PHASE, PROGRAM, REFERENCE, InputFacts, RunFacts, RunRequest
    from .emulators.arm_runner import find_application, run_in_arm_runner, run_network
    from .emulators.fvp_command import install_models, run_model
    from .emulators.own_elf import run_own_elf
    from .emulators.qemu import qemu_version
    from .executorch.check import FirmwarePools, check_program
    from .executorch.commands import ProgramOptions, compare_programs, compile_program, run_program
    from .firmware_build.project import build_commands, steps_to_do, write_project
    from .fvp import HINT, find_binary
    from .host.application import ApplicationRunner
    from .layers import run_layers
    from .npu_model.errors import NpuModelError
    from .npu_model.network import LayerRecorder, LayerReport, NetworkModel, NetworkRun, compare_layers, trace_json
    from .npu_model.spec.u85 import unconfirmed_features
    from .process import read_output
    from .references.base import FrameworkReference
    from .references.interpreters import CutError, cut_part
    from .references.kernels import TFLiteReference, describe_disagreements, find_disagreements
    from .references.opened import open_reference
    from .result import Array, OperatorResult, RunResult, Verdict, compare_outputs
    from .runner import RUNNERS, create, missing
    from .steps import reference_steps, run_steps
    from .vela_check import FirmwareFacts, Level, Remark, check_memories, check_network

_NAMES = {  # by module
    "base": "RunCheckError RunOptions RunOutputs RunTimeoutError wants_sanitizer",
    "checked_run.facts": "FACTS FAULT InputFacts PHASE PROGRAM REFERENCE RunFacts RunRequest",
    "emulators.arm_runner": "find_application run_in_arm_runner run_network",
    "emulators.fvp_command": "install_models run_model",
    "emulators.own_elf": "run_own_elf",
    "emulators.qemu": "qemu_version",
    "executorch.check": "FirmwarePools check_program",
    "executorch.commands": "ProgramOptions compare_programs compile_program run_program",
    "firmware_build.project": "build_commands steps_to_do write_project",
    "fvp": "HINT find_binary",
    "host.application": "ApplicationRunner",
    "layers": "run_layers",
    "npu_model.errors": "NpuModelError",
    "npu_model.network": "LayerRecorder LayerReport NetworkModel NetworkRun compare_layers trace_json",
    "npu_model.spec.u85": "unconfirmed_features",
    "process": "read_output",
    "references.base": "FrameworkReference",
    "references.interpreters": "CutError cut_part",
    "references.kernels": "TFLiteReference describe_disagreements find_disagreements",
    "references.opened": "open_reference",
    "result": "Array OperatorResult RunResult Verdict compare_outputs",
    "runner": "RUNNERS create missing",
    "steps": "reference_steps run_steps",
    "vela_check": "FirmwareFacts Level Remark check_memories check_network",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
