"""What layers are made of, and a graph of them to NPU operations.

Invariant: nothing here depends on a kind of layer but `fold` and `im2col`; those are `ethosu.layers`. `tensors`,
`layer`, `record` and `graph` say what a layer is; `emit_context`, `emit`, `operands`, `views`, `scaling` and `tables`
are what its emitter writes with; `storage` gives every tensor its place, and `lower` does it all.
"""
