"""Exact: a complete search for one pool whose conflicts are sets of items live together.

The idea. A *section* is a maximal set of items live at one point of time (or a clique of other conflicts). Each section
has a *floor*: nothing that is still to be placed in it can lie lower. Fill sections from below, under a ceiling: pick a
section whose candidates lie flat on its floor, and either place one of them there or raise the floor to where one could
next begin. Placements that leave gaps for no reason are never looked at, and a search that ends without a placement
proves that there is none under this ceiling.

Why it is fast enough for hundreds of items:

* floors rise to the least start of an item that still covers them, until nothing moves; a section whose floor and
  remaining bytes pass the ceiling ends the branch;
* where no remaining item crosses a point the state splits, and the parts are solved one after the other; one that fails
  returns to the choice made before the split;
* states that failed are remembered by the *headroom* above each floor, so one nogood holds for every ceiling (of equal
  phase under the alignments) and across restarts;
* of equal items only the first unplaced one is tried.

No order of items, and no rule for the next section, suits all problems. So `portfolio.py` interleaves short runs over
many, learns which placed most of the items on this very problem, and lets those come again with a little chance:
with little, a run meets what earlier ones refuted, and gets further. `least_height.py` chooses the ceilings (at the
bound, or a quarter of the way up to the best: tight ones prune more; what found a plan is tried again lower).

`sections.py` conflicts as sections; `search.py` calls of the C and what they prove; `fill.c` and its steps the search
itself; `portfolio.py`, `least_height.py` which call comes next.
"""
