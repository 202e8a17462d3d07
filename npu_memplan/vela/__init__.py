"""Vela's compiler and its results: models compiled in child processes, their calls lifted into NPU programs (`lift`).

Invariant: Vela's command streams are read, never edited; what is lifted is planned and encoded anew.
"""
