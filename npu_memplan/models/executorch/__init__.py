"""ExecuTorch's files without ExecuTorch: `.pte` programs, bundled programs, `.ptd` data.

Invariant: tables and slots are those of the public schemas `program.fbs`, `flat_tensor.fbs` and
`bundled_program_schema.fbs` of ExecuTorch 1.5. The bytes of a delegate are read by the reader of that backend's format:
`delegates` for Ethos-U.
"""
