"""The NPU's numbers: rescaling, activation tables, the weight decoder and its order.

Invariant: values in, values out; nothing here knows registers, regions or operations.
"""
