"""What a plan and its streams say: live bytes over time, kinds of bytes, what the NPU's operations do with them.

Invariant: figures only, no word of how they are shown.
"""
