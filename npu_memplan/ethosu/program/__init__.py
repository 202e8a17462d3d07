"""A command stream's operations over separate buffers: what the planner may move, wherever it came from.

Invariant: nothing here holds an address. `program` are the operations and their buffers, `access` says which bytes of
them an operation touches, `overlap` finds the buffers of a stream that another compiler has planned and says which two
may share bytes, `hazards` says what may go wrong between operations that run at once and what prevents it, and
`primfunc` writes a program as TIR and reads it back.
"""
