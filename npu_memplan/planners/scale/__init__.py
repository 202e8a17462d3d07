"""Scale: thousands to millions of plain buffers, by many quick passes that learn.

The idea. With so many items nothing may grow with the number of conflicting pairs; a pass of first fit, compiled, is
affordable, a search is not. So passes are made good instead:

* items live where memory is fullest come first, so the peak is packed before anything can stand in its way;
* what ends above the bound in one pass moves to the front for the next;
* several orders alternate, each with what it learned; later ones with some chance;
* the *core*, the items live at nearly peak load, is settled by the exact search, and the rest is placed around it.

Three passes, from quick to good. `stack.c` puts each item on top of the highest in its time, by a tree over time:
O(n log n), no holes filled, and with items in the right order it is near the bound all the same. `scan.c` fills holes
by scanning what is placed in order of offset, in linked blocks; `pairs.c` does so from a list of pairs that meet, while
there are few enough of these pairs to be listed.

`passes.py` chooses orders and passes and keeps the best. It sorts with numpy (some 0.1 s to import), from `LARGE_ITEMS`
on.
"""
