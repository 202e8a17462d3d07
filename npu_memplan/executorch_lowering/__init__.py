"""Lowering to Ethos-U inside ExecuTorch's export.

Invariant: importing it imports neither TVM, PyTorch nor ExecuTorch.
"""

from .partitioner import PartitionerError, ethos_u_partitioner

__all__ = ["PartitionerError", "ethos_u_partitioner"]
