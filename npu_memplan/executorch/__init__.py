"""What is planned, compiled and reported for ExecuTorch.

Invariant: `.pte` files are read without ExecuTorch (`models.executorch`); nothing here imports TVM.
"""
