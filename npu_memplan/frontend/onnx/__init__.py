"""ONNX models (QDQ exports) to one IRModule, through TVM's frontend.

Invariant: what TVM gets wrong is repaired here (`repairs`), so modules behind this folder are right.
"""
