"""Passes over TVM modules: `PlanMemory`, and the pipeline that builds what it made.

Invariant: these are ordinary `tvm.ir.transform` passes; nothing but the module goes in and out.
"""

from __future__ import annotations

from .config import (
    ConfigError,
    ConstantMemoryPools,
    ConstantPoolInfo,
    PlanOptions,
    PoolInfoProperties,
    WorkspaceMemoryPools,
    WorkspacePoolInfo,
    config,
    pass_context,
)
from .legalize import Legalize
from .pipeline import pipeline, write_c
from .plan_memory import PlanMemory
from .verification.memory import MemoryPlanError
from .verification.module import VerifyMemoryPlan, memory_plan_faults
from .workspace import (
    AllocateWorkspaces,
    KeptPools,
    Place,
    Workspace,
    WorkspaceError,
    map_inputs,
    map_outputs,
    pool_sizes,
)

__all__ = [
    "AllocateWorkspaces",
    "ConfigError",
    "ConstantMemoryPools",
    "ConstantPoolInfo",
    "KeptPools",
    "Legalize",
    "MemoryPlanError",
    "Place",
    "PlanMemory",
    "PlanOptions",
    "PoolInfoProperties",
    "VerifyMemoryPlan",
    "Workspace",
    "WorkspaceError",
    "WorkspaceMemoryPools",
    "WorkspacePoolInfo",
    "config",
    "map_inputs",
    "map_outputs",
    "memory_plan_faults",
    "pass_context",
    "pipeline",
    "pool_sizes",
    "write_c",
]
