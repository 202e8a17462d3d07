"""TFLite models to one IRModule: lifted from the streams that Vela makes, or lowered by TVM's frontend and our own.

Invariant: both ways (`lifted`, `lowered`) build `main` with the same `MainBuilder` and describe it alike
(`description`), so nothing that uses this folder depends on which of the two made it. Operators that neither side can
run are refused first (`check_on_host`).
"""
