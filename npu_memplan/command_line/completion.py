"""What the shell completes in addition to choices and files: names of accelerators, boards, configurations, planners.

Invariant: nothing heavy is imported; a name that is not there is no error here: the option's reader reports it.
Click's own completion is switched on by the shell: `eval "$(_NPU_MEMPLAN_COMPLETE=bash_source npu-memplan)"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from ..ethosu.arch import ACCELERATORS
from ..options import NO_NPU
from ..target_data import board_names, memory_mode_names

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _of(names: Callable[[], Iterable[str]], files: bool = False) -> Completer:
    """Completes one of `names`, also the last of several with commas between; with `files`, paths where none fits."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = [CompletionItem(before + comma + name) for name in names() if name.startswith(last)]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return complete


def _planners() -> Iterable[str]:
    from ..planners import planner_names

    return ("auto", *planner_names())


accelerators = _of(lambda: (*ACCELERATORS, NO_NPU))
boards = _of(board_names, files=True)
memory_modes = _of(memory_mode_names)
planners = _of(_planners)
files = _of(tuple, files=True)
