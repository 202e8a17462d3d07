"""Whole Vela-compiled networks on the model: run, operators left on the CPU, comparison by layer, trace.

Invariant: the model of the NPU does not depend on this folder.
"""
