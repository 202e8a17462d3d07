"""What layers are made of, and a graph of them to NPU operations.

Invariant: nothing here depends on a kind of layer; the kinds are in `ethosu.layers`. `layer` says what a layer and a
graph of layers are, and gives every tensor its place; `operands` has tensors, views of buffers and windows; `emit` and
`emit_u85` append operations to a program, with the numbers of `scaling` and `tables`; `languages` says them in the
registers of each family. `ethosu.lowering` calls all of these.
"""
