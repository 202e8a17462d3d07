"""Several networks in one memory: `joint` is the planning problem of all, `networks` compiles and places them,
`writing` makes the directory of an application (`artifact.files`).

Invariant: a network's program, addresses aside, is what `compile` makes of it; what one network keeps between its runs
shares bytes with nothing of another.
"""
