"""What the registers of each operation say, before any memory is there.

Invariant: every value was found set and legal when it was read; nothing here is executed or reads memory.
"""
