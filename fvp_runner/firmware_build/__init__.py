"""From an artifact and a board to one ELF: the layout, the generated C, the build, the ELF read back.

Invariant: nothing here runs firmware, and what is built depends on the artifact, the board and the options alone.
"""
