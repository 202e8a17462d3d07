"""Local: lower a placement under a ceiling by ejecting what is in the way.

The idea. Above a few hundred items that begin and end in different sections a complete search drowns. This one keeps a
partial order of the placed items (which lies below which); it leaves each of them a least offset, above what is below
it, and a greatest one, below what is above it and under the ceiling. An item that has no place is put where those that
can neither sink nor rise out of its way have the least total penalty; they are ejected, and wait for a place in their
turn. Nothing else moves by hand: the order bends instead of breaking, all that is above moves up as far as there is
room.

Who found no free place becomes dearer to eject, so what is hard to place stays and what is easy makes way; what was
learned fades. It never proves anything, and it is at its best a few per cent above the bound, where the complete search
of `exact/` is lost.

`ejection.py` calls of the C, and what they found; `eject.c` the search, `order.c` the partial order and the offsets
that it leaves, `sort.c` sorting.
"""
