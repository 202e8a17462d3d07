"""The references that a run is compared with: other implementations of the same model.

Invariant: a reference reads the model's file alone and depends on neither a plan nor an artifact.
"""
