"""TOSA files to IRModules, by Vela or by native lowering.

Invariant: a TOSA graph is one NPU call; nothing of it runs on the host.
"""
