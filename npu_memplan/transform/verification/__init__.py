"""What `VerifyMemoryPlan` does: it walks a planned module as a machine that tracks, for each byte, its owner.

Invariant: nothing here uses the analysis that made a plan (`extract`, `planners`, `rewrite`): who owns which
bytes, and what a statement touches in which order, is worked out anew from the module's own text; nothing
of it is shared, sizes and values of expressions included. One concept a file: `numbers` (what expressions come to),
`memory` (owners of bytes), `trace` (accesses of a loop nest, one by one), `order` (the same in closed form), `kernel`
(one call of a PrimFunc),
`function` (one Relax function), `module` (all of them, and the pass).
"""
