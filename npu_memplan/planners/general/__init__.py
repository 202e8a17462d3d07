"""General: searches over distances, for aliases, overlaps, fixed places, alignments and any conflicts alike.

The idea. Whatever a problem says about two items comes down to *zones*: open intervals that the distance between their
origins must not be in (`Model.zones`). Two plain buffers live together have one zone; an allowed overlap cuts a piece
out of it; views of an alias group make several. So a placement is a set of origins that breaks no zone, and a pair that
does is branched on: one branch for every range of distances between its zones.

Two searches share this idea.

`small.c`, for some dozens of items: a state is a set of difference constraints and its least solution; a pair that is
in its own way there is put into one of its ranges, the pair with fewest ranges first. It proves the plans of most real
models in milliseconds.

`distances.c`, for hundreds, keeps an interval of origins for every item and a range of distances for every pair, and
narrows both until nothing moves (`narrow.c`). The pair with least room is decided first, pairs that failed often before
others. `search.py` runs it: complete runs, half of them at the bound, alternate with local ones that keep the order of
all but a few items: those that carry what stands too high, and their neighbours. Runs mostly try the order of the best
placement first, so they repair it. It also takes over plain problems whose alignment leaves padding, after a share of
the budget: sections (`exact/`) do not see the padding that is still to come.
"""
