"""Model files as data, one reader a format: TFLite, what Vela writes (its container, its raw output), ONNX, PyTorch.

Invariant: a reader says what a file holds and depends on neither NPU nor IR; what is wrong with the file is reported
here, so callers of a reader meet nothing out of range. Only what Vela wrote is read with the NPU's language
(`ethosu.stream`). TVM is not imported; ONNX and PyTorch are, by the call that reads such a file. `frontend` makes
modules of what is read.
"""
