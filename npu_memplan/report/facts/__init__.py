"""Facts from a plan and its streams: live bytes over time, kinds of bytes, what the NPU's operations do with them.

Invariant: figures only; how they are shown is decided elsewhere.
"""
