"""Quantised graphs of other frameworks (QDQ), ONNX's and PyTorch's alike: nodes with names, made into one IRModule.

Invariant: nothing here depends on the framework that a graph came from.
"""
