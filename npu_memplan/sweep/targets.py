"""The targets of a sweep: every board or accelerator with every set of further options, as `compile` reads them.

Invariant: there is no option of a sweep's own: each target is a command line of `compile`, so that what `compile`
learns, sweeps can do.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Sequence

from ..ethosu.arch import ACCELERATORS
from ..options import NO_NPU, CompileOptions
from ..target_data import Board, accelerator_system, board_names, load_board
from .case import SweepError

Parse = Callable[[Sequence[str]], CompileOptions]


def targets(accelerators: str, boards: str, options: Sequence[str], parse: Parse) -> list[CompileOptions]:
    """The options of every target. `accelerators` and `boards`: names with commas between them, or "all"; `options`:
    words of `compile`, one text a set; `parse` is `compile`'s own."""
    names = accelerator_names(accelerators)
    if boards:
        first = [words for board in _boards(boards) for words in _on_board(board, names)]
        if not first:
            raise SweepError(f"none of the boards has one of: {', '.join(names)}; leave --accelerator or --boards out")
    else:
        first = [("--accelerator", name) for name in names or [CompileOptions().accelerator]]
    sets = [tuple(shlex.split(text)) for text in options or [""]]
    return [parse((*words, *more)) for words, more in itertools.product(first, sets)]


def accelerator_names(text: str) -> list[str]:
    """`u55-128,none` or `all`: full names; what is unknown is left for `compile` to refuse."""
    if text == "all":
        return list(ACCELERATORS)
    short = [name.strip().lower() for name in text.split(",") if name.strip()]
    return [name if name == NO_NPU or name.startswith("ethos-") else f"ethos-{name}" for name in short]


def _boards(text: str) -> list[Board]:
    names = board_names() if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    return [load_board(name) for name in names]


def _on_board(board: Board, accelerators: Sequence[str]) -> list[tuple[str, ...]]:
    """The command lines of a board: each of its accelerators, with the sizes of the memories that its pools go to."""
    found = []
    for name in board.accelerators:
        if accelerators and name not in accelerators:
            continue
        placement = board.placement(accelerator_system(name).memory_mode)
        sizes = {pool: board.memory(memories[0]).size_bytes for pool, memories in placement.pools.items() if memories}
        pools = [word for pool, size in sizes.items() for word in ("--pool", f"{pool}={size}")]
        found.append(("--accelerator", name, *pools))
    return found
