"""The arithmetic of TFLite's quantised multipliers on numbers known when compiling, for host operators and lowering.

Invariant: pure; the NPU model keeps its own, so that the two check each other. What runs on the host when the model
does is `frontend.host_ops.fixed_tir`.
"""
