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
from ..target_data import board_names, load_board
from .case import SweepError

Parse = Callable[[Sequence[str]], CompileOptions]


def targets(accelerators: str, boards: str, options: Sequence[str], parse: Parse) -> list[CompileOptions]:
    """The options of every target. `accelerators` and `boards`: names with commas between them, or "all"; `options`:
    words of `compile`, one text a set; `parse` is `compile`'s own."""
    names = accelerator_names(accelerators)
    if boards:
        first = [words for board in _boards(boards) for words in _on_board(board, names)]
        if not first:
            raise SweepError(f"no board of {boards} has one of: {', '.join(names)}; leave one of the two out")
    else:
        first = [("--accelerator", name) for name in names] or [()]
    sets = [tuple(shlex.split(text)) for text in options or [""]]
    return [parse((*words, *more)) for words, more in itertools.product(first, sets)]


def accelerator_names(text: str) -> list[str]:
    """`u55-128,none` or `all`: full names; what is unknown is left for `compile` to refuse."""
    if text == "all":
        return list(ACCELERATORS)
    short = [name.strip().lower() for name in text.split(",") if name.strip()]
    return [name if name == NO_NPU or name.startswith("ethos-") else f"ethos-{name}" for name in short]


def _boards(text: str) -> list[str]:
    return list(board_names()) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]


def _on_board(board: str, accelerators: Sequence[str]) -> list[tuple[str, ...]]:
    """The command lines of a board: with its own accelerator, or with each of `accelerators` that it can have."""
    known = load_board(board).accelerators
    chosen = [("--accelerator", name) for name in accelerators if name in known]
    return [("--board", board, *words) for words in (chosen if accelerators else [()])]
