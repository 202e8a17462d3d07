"""Model files as data, one reader a format: TFLite, Vela's container and raw output, TOSA, ExecuTorch, ONNX, PyTorch.

Invariant: a reader says what a file holds and depends on neither NPU nor IR; faults of the file are reported here, so
callers of a reader get nothing out of range. Only files of Vela's are read with the NPU's language (`ethosu.stream`).
TVM is not imported; ONNX and PyTorch are, by the call that reads such a file. `frontend` makes modules of what is read.
"""
