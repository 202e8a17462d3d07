"""From an IRModule to a planning problem.

Invariant: `extract` finds every buffer of the program - tensors between calls, allocations inside PrimFuncs, graph
inputs and outputs, constants where they have a pool - with exact lifetimes over one order of points: call i of main,
and inside it statement j. It changes nothing; `rewrite` finds the same buffers again by walking the same module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..options import NO_NPU, CompileOptions
from ..problem import Lifetime, Pool, Problem
from ..request import Request
from ..vocabulary import STATES
from .build import build, prepare
from .liveness import Storage
from .program import ExtractionError, Program
from .symbolic import Sample, middle_sample
from .tir import Outline
from .walk import walk

__all__ = ["STATES", "ExtractionError", "extract", "extract_from", "prepare"]


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
    `io_in_pools`: graph inputs, outputs and states are planned with the rest; otherwise they are the caller's.
    `overlaps`: in-place and partial overlaps that were proven safe are offered to the planner. `reuse_inputs`: a graph
    input's bytes may be reused after its last use. `alignment` is the least of every buffer, in bytes. `constant_pools`
    hold constants, in order of preference; one that is also in `pools` is shared with other buffers.

    Raises `ExtractionError` when the module has no such function or a value cannot be given a storage.
    """
    options = CompileOptions(NO_NPU, overlaps=overlaps, reuse_inputs=reuse_inputs)
    request = Request(
        options, tuple(pools), tuple(constant_pools), function=function, io_in_pools=io_in_pools, alignment=alignment
    )
    return extract_from(module, request)[0]


def extract_from(
    module: Any, requested: Request, outlines: dict[Any, Outline] | None = None
) -> tuple[Problem, Program, dict[Storage, tuple[Lifetime, ...]], Sample | None]:
    """The planning problem of one function, and the program that it was read from.

    With it come the lifetimes of all storages and the sample of shape symbols that sizes are of. The program's steps
    carry their points. `outlines` keeps what several functions of a module have in common.
    """
    constants = bool(requested.constant_pools)
    prepared = prepare(module, requested.function, outlines or ())
    program = walk(
        prepared, requested.function, constants=constants, worst_case=requested.worst_case, outlines=outlines
    )
    for tensor in program.kept if requested.kept else ():
        tensor.external = (
            tensor.external or "it may outlast the call, which the pools that the caller keeps do not allow"
        )
    sample = None
    if requested.run_time:
        sample = middle_sample(program, requested.pools, requested.constant_pools, requested.alignment)
    problem, lives = build(program, requested, sample)
    return problem, program, lives, sample
