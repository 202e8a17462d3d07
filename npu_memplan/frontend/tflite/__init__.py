"""TFLite models to one IRModule: lifted from the streams that Vela makes, or lowered by TVM's frontend and our own.

Invariant: both ways (`lifted`, `lowered`) build `main` with the same `MainBuilder` and describe it alike
(`described`), so nothing that uses this folder depends on which it was. What neither side can run is refused first
(`on_host`, where floats go, too).
"""
