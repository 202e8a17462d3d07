"""Which weights are copied to faster memory, when, and into which bytes that are free then.

Invariant: a program with copies computes what it computed without; its kernels read the same constants from another
place. `copies` says which bytes are free, has the data of a schedule and puts its copies into the program;
`timed_program` runs a program with some copies through the estimate's clock. `prefetch.h` and its C sources are that
clock, the greedy rule and a local search; `search` calls them, and looks for better slices of convolutions. Tests hold
C to a rule in Python, bit by bit.
"""
