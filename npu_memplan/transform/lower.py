"""The stage `lower`: the passes over a read module requested.

Invariant: each pass takes an IRModule and its options and gives an IRModule. What is cut into stripes stays only where
a plan of the whole program then needs fewer bytes.
"""

from __future__ import annotations

from dataclasses import replace

from ..request import Loaded
from .order import reorder
from .required import required_bytes


def lower(loaded: Loaded) -> Loaded:
    """`loaded` after its passes."""
    request = loaded.request
    if request.reorder:
        loaded = reorder(loaded)
    if request.stripes is None:
        return loaded
    if request.options.stream_input:
        from ..tuning.streamed_input import stream_input

        return stream_input(loaded, request.stripes)
    from ..tuning.cascades import stripe

    cut = replace(loaded, module=stripe(loaded.module, request.stripes))
    # a function has its own buffers only: what other calls need may make the peak anyway
    alone = len(loaded.module.functions) == 2  # main and one function
    return cut if alone or required_bytes(cut) < required_bytes(loaded) else loaded
