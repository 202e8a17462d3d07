"""What may go wrong between two operations that run at once, and what prevents it.

Invariant: judged from the bytes that operations touch at their final addresses, never from where a stream came from.
`hazards` says which operations touch the same bytes, `waits` and `blockdep` put the weakest wait and block dependency
that orders them, `inplace` says by how many bytes an operation may write over what it still reads. The NPU model checks
all of it by means of its own.
"""
