"""ONNX models (QDQ exports) to one IRModule, through TVM's frontend.

Invariant: what TVM gets wrong is repaired here (`repairs`), so modules that leave this folder are right.
"""
