"""IRModule to planning problem.

Invariant: `extract` finds every buffer of the program - tensors between calls, allocations inside
PrimFuncs, graph inputs and outputs, constants where they have a pool - with exact lifetimes over
one order of points: call i of main, and inside it statement j. It changes nothing; `rewrite` finds
the same buffers again by walking the same module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem import Pool, Problem
from ..vocabulary import STATES
from .build import Options, build
from .errors import ExtractionError
from .lower import prepare
from .program import Program
from .relax_walk import walk

__all__ = ["STATES", "ExtractionError", "Options", "extract", "extract_program", "prepare"]


def extract(
    module: Any,
    pools: Sequence[Pool],
    *,
    function: str = "main",
    io_in_pools: bool = True,
    overlaps: bool = True,
    reuse_inputs: bool = True,
    alignment: int = 16,
    constant_pools: Sequence[Pool] = (),
) -> Problem:
    """The planning problem of the Relax function called `function` in `module`.

    `module` holds call_tir'ed PrimFuncs (host ones of any form, NPU ones of `ethosu.program.primfunc`).
    `Options` says what the other parameters mean. Raises `ExtractionError` when the module has
    no such function or a value cannot be given a storage.
    """
    options = Options(io_in_pools, overlaps, reuse_inputs, alignment, tuple(constant_pools))
    return extract_program(module, pools, options, function)[0]


def extract_program(
    module: Any, pools: Sequence[Pool], options: Options, function: str = "main"
) -> tuple[Problem, Program]:
    """As `extract`, with the program that the problem was read from; its steps carry their points."""
    program = walk(prepare(module), function, constants=bool(options.constant_pools))
    return build(program, pools, options)[0], program
