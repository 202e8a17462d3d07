"""A command stream's operations over separate buffers: what the planner may move, wherever it came from.

Invariant: nothing here holds an address. `program` are the operations and their buffers, `featuremap` and `access` say
which bytes of them an operation touches, `webs` and `lift` find the buffers of a stream that another compiler has
already planned, `overlap` says which two buffers may share bytes, and `primfunc` writes a program as TIR and reads it
back.
"""
