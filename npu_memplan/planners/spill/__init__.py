"""Spill: which items leave a pool that cannot hold them all, at the least cost.

The idea. Each item has a cost for each pool it may live in: bytes moved over bandwidth plus latency (bytes times rank
where pools state no speed). Choosing pools is a problem of its own; whether the chosen ones then pack is decided by the
other families. So the search is for assignments in order of cost, until one packs.

* Prices (`prices.py`). Charge rent for bytes at every point of a pool, more where it is overfull; improved by
  subgradients. Everyone then takes its cheapest pool, and the total is a bound on the cost; it also says what any
  deviation adds to it.
* A first assignment comes from the prices, others from evicting what harms least at the most overloaded point, under
  several rules; each is repaired until it packs and then takes back what still fits (`assign.py`). Exchanges follow.
* A sweep over time (`sweep.py`) keeps, for every way to assign the items that are live, the least cost of the past, cut
  by the prices' bound. Going back, it yields assignments in order of cost until one packs, which is then the cheapest.
  Sets that do not pack are shrunk and left out of what follows. Where too many states are live at once the likeliest
  are kept, without a claim.
* For some dozens of items a complete search below the bound (`branch.py`), where the sweep had to give up.

`assignment.py` is what all share: loads of the pools under an assignment, and the packing of single pools, with what
could neither be packed nor ruled out, so that a search that met it is not taken for a proof.
"""
