"""TOSA files to IRModules, through Vela.

Invariant: a TOSA graph is one NPU call; nothing of it runs on the host.
"""
