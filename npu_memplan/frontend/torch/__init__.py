"""Programs of torch.export (PT2E) to one IRModule, through TVM's frontend.

Invariant: nothing here imports PyTorch; `models.torch` does, when such a file is read.
"""
