"""The host runner: the artifact's C in this process, NPU calls on the NPU model.

Invariant: nothing here knows a board, firmware or an emulator.
"""
