"""ExecuTorch programs: run on memory as their plan has it, and checked for a board.

Invariant: nothing here imports ExecuTorch or PyTorch.
"""
