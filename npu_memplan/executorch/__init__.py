"""Memory of ExecuTorch programs: planning, planning again, and reports.

Invariant: `.pte` files are read without ExecuTorch (`models.executorch`); nothing here imports TVM, and only a plan
that is being made imports ExecuTorch.
"""

from .planning import BankError, ExecutorchPlanner, PlannedGraph, memory_planning

__all__ = ["BankError", "ExecutorchPlanner", "PlannedGraph", "memory_planning"]
