"""The local runner: the artifact's C in this process, NPU calls on the NPU model.

Invariant: nothing here depends on a board, firmware or an emulator.
"""
