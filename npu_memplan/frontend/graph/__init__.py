"""Quantised graphs of other frameworks (QDQ), ONNX's and PyTorch's alike: nodes with names, made into one IRModule.

Invariant: nothing here knows which framework a graph came from.
"""
