"""A plan for TFLite-Micro: the offsets that its allocator takes (`offline_plan`), put into the .tflite (`metadata`).

Invariant: the model's own bytes stay as they are.
"""
