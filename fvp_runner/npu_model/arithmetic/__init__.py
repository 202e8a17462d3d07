"""The NPU's numbers: rescaling, activation tables, the weight decoder and its order.

Invariant: values in, values out; nothing here depends on registers, regions or operations.
"""
