"""Which weights are copied to faster memory, when, and into which bytes that are free then.

Invariant: a program with copies computes what it computed without; its kernels read the same constants from another
place. `reads` finds the readers of constants (and forgets copies that were there), `free_space` says which bytes are
free, `timed_program` runs a program with some copies through the estimate's clock, `schedules` has the data of a
schedule. `prefetch.h` and its C sources are that clock, the greedy rule and a local search; `native_search` calls them,
and `search` makes the most of that. `slices` cuts convolutions, `slice_tuning` looks for better cuts, `insert` puts the
copies into the program; `tables` loads look-up tables early. Tests hold C to a rule in Python, bit by bit.
"""
