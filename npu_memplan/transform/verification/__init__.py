"""What `VerifyMemoryPlan` does: it walks a planned module as a machine that tracks, for each byte, its owner.

Invariant: nothing here uses the analysis that made a plan (`extract`, `planners`, `rewrite`): who owns which
bytes, and what a statement touches in which order, is worked out anew from the module's own text; shared are the
bytes of a type, the symbols of a signature and the values of index expressions (`extract.sizes`). One concept a file:
`memory` (owners of bytes), `trace` (accesses of a loop nest, one by one), `kernel` (one call of a PrimFunc),
`function` (one Relax function), `module` (all of them, and the pass).
"""
