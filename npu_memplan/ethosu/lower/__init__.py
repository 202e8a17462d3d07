"""What layers are made of, and a graph of them to NPU operations.

Invariant: nothing here knows a kind of layer but `fold`; those are `ethosu.layers`. `tensors`, `layer`, `record` and
`graph` say what a layer is; `emission`, `emit`, `operands`, `views`, `scaling`, `fixed` and `tables` are what its
emitter writes with; `storage` gives every tensor its place, and `lower` does it all.
"""
