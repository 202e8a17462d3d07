"""Whole Vela-compiled networks on the model: run, operators left on the CPU, comparison by layer, trace.

Invariant: the model of the NPU knows nothing of this folder.
"""
