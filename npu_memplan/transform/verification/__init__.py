"""The check behind `VerifyMemoryPlan`: it walks a planned module as a machine that tracks, for each byte, its owner.

Invariant: nothing here uses the analysis that made a plan (`extract`, `planners`, `rewrite`): who owns which bytes, and
what a statement touches in which order, is worked out anew from the module's own text; nothing of it is shared, sizes
and values of expressions included. One concept a file: `memory` (owners of bytes), `accesses` (values of expressions,
and the accesses of a loop nest, one by one or in closed form), `kernel` (one call of a PrimFunc), `module` (Relax
functions, and the pass).
"""
