"""Which weights are copied to faster memory, when, and into which bytes that are free then.

Invariant: a program with copies computes what it computed without; its kernels read the same constants from another
place. `reads` finds who reads which constants (and forgets copies that were there), `room` knows the free bytes over
time, `course` runs a program with some copies through the estimate's clock, `greedy` sends each piece when the port is
idle, `trials` sends some otherwise, `search` makes the most of that, `exhaustive` looks at all of a few, `slices` cuts
convolutions, `resliced` looks for better cuts, `insert` puts the copies into the program; `tables` loads look-up tables
early. `travel.h` and its C sources are clock, room, rule and trials once more for `search`, which `flat` calls; a test
holds them to the same schedules, bit by bit.
"""
