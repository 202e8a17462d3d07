"""Which weights are copied to faster memory, when, and into which bytes that are free then.

Invariant: a program with copies computes what it computed without; its kernels read the same constants from another
place. `reads` finds the readers of constants (and forgets copies that were there), `free_space` keeps the free bytes
over time, `timed_program` runs a program with some copies through the estimate's clock, `greedy` sends each constant
when the port is idle, `local_search` sends some at other times, `search` makes the most of that, `exhaustive` looks at
all of a few, `slices` cuts convolutions, `retuned_slices` looks for better cuts, `insert` puts the copies into the
program; `tables` loads look-up tables early. `prefetch.h` and its C sources are the same clock, free space, rule and
local search in C, which `native_search` calls; a test holds them to the same schedules, bit by bit.
"""
