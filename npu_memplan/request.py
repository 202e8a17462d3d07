"""The request of a compile, and the model that it is for, once read.

Invariant: the request is part of the value (`Loaded.request`); nothing is passed in addition to it. Pure data: nothing
heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .names import model_name
from .options import CompileOptions
from .problem import Pool

if TYPE_CHECKING:
    from .ethosu.time import MemoryMap


SELECTED = "selected: "  # a note that says which program was selected and why begins so
FASTER = "faster in more memory than Vela's: "  # begins the note of a program that was not selected
# ends the note of a model of floats
ONLY_FLOATS = "computes in floating point throughout: quantise it to int8 for the NPU"
_FEWEST = 3  # bindings, the last of which reads the others, have more orders than one


def short_selection(note: str) -> str:
    """What a note of the selection says of the program that was selected and of the best other one."""
    clauses = note.split("; ")[:2]
    clauses[0] = ", ".join(clauses[0].split(", ")[:2])  # without the least that its operations take
    return "; ".join(clauses)


def short_note(note: str) -> str:
    """`note`, of the selection its beginning alone."""
    return short_selection(note) if note.startswith(SELECTED) else note


@dataclass(frozen=True, slots=True)
class StripeOptions:
    """The memory that stripes are made for.

    `capacity_bytes` is what the pool of feature maps may hold; `io_in_pools`, `reuse_inputs`: whether inputs and
    outputs are in it, and whether inputs may be overwritten; `memory_map`: the memories around the NPU (None:
    its default system's).
    """

    capacity_bytes: int | None = None
    io_in_pools: bool = True
    reuse_inputs: bool = True
    memory_map: MemoryMap | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The options, of whichever command, and what follows from them."""

    options: CompileOptions  # resolved
    pools: tuple[Pool, ...]
    constant_pools: tuple[Pool, ...] = ()
    stripes: StripeOptions | None = None  # None: no stripes
    model_format: str = ""  # "tflite", "onnx" or "torch"; empty: by the file's name
    fast_region: int = -1  # the NPU region that feature maps prefer; -1: none
    function: str = "main"  # of the module
    io_in_pools: bool = True  # its inputs, outputs and states are planned with the rest
    alignment: int = 16  # the least of a buffer, in bytes
    seed: int = 0  # of the planner
    worst_case: bool = True  # sizes with bounds are the greatest ones
    run_time: bool = False  # what cannot be planned is allocated at run time; sizes may depend on shape symbols
    kept: bool = False  # the caller keeps the pools, so nothing that outlasts the call is there
    reorder: bool = True  # independent calls are put into the order that needs least memory
    sums_by_rows: bool = False  # sums over whole maps are made by rows, for stripes
    host_rows: bool = False  # without an NPU: operators run in turn, by rows, where that saves bytes

    def with_options(self, options: CompileOptions) -> Request:
        """The same for other options, with the sizes that those give to pools."""
        made = request(options)
        sizes = {pool.name: pool.size_bytes for pool in made.pools}
        pools = tuple(replace(pool, size_bytes=sizes.get(pool.name, pool.size_bytes)) for pool in self.pools)
        return replace(self, options=made.options, pools=pools, stripes=made.stripes)


def request(options: CompileOptions) -> Request:
    """The request that `options` of `npu-memplan compile` make; `OptionError` when they contradict each other."""
    options = options.resolve_defaults()
    options.check_memories()
    pools = options.planned_pools()
    stripes = None
    if options.stripes:
        # feature maps prefer the last pool; with two, inputs and outputs do not
        capacity, alone = pools[-1].size_bytes, len(pools) == 1
        if options.objective == "bytes":
            capacity = 0  # the fewest
        stripes = StripeOptions(capacity, alone, options.reuse_inputs, options.memory_map())
    return Request(
        options,
        pools,
        options.planned_constant_pools(),
        stripes,
        fast_region=len(pools) if len(pools) > 1 else -1,  # the last pool is then the NPU's own memory
    )


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model as a module, and what its NPU compiler would have used by itself: of `read`, and of `lower`."""

    request: Request
    path: Path
    data: bytes = field(repr=False)
    module: Any  # tvm.IRModule
    vela_arena_bytes: Mapping[str, int]  # empty when Vela did not run or counts other things
    notes: tuple[str, ...] = ()
    backend: str = ""  # of the NPU's operations, where several compete
    limit_bytes: Mapping[str, int] = field(
        default_factory=dict
    )  # by pool that has no size: what the tuning kept within
    vela_cycles: int = 0  # Vela's own estimate of the stream that it made; 0: there is none
    vela_stream_bounds: Mapping[str, int] = field(default_factory=dict)  # ours of the same, by cause
    vela_host_cycles: int | None = None  # what it leaves to the CPU, of the CPU's clock; None: that of this program
    vela_stream_cycles: tuple[int, ...] = ()  # ours of the same, under each of `ethosu.time.JUDGED`
    kept_from_vela: tuple[str, ...] = ()  # kinds of operators that were: its program is not what Vela makes by itself

    def with_selection(self, text: str) -> Loaded:
        """The same with a note of what was selected and why, in place of the one that it has."""
        others = (note for note in self.notes if not note.startswith(SELECTED))
        return replace(self, notes=(*others, f"{SELECTED}{text}"))

    @property
    def comparable_cycles(self) -> tuple[int, ...]:
        """Cycles of Vela's stream in its own arena, by model; empty where that counts other things than a plan."""
        return self.vela_stream_cycles if any(self.vela_arena_bytes.values()) else ()

    @property
    def may_reorder(self) -> bool:
        """Whether its function has enough calls to have several orders."""
        blocks = getattr(self.module[self.request.function].body, "blocks", ())
        return sum(len(block.bindings) for block in blocks) >= _FEWEST

    @classmethod
    def from_module(cls, request: Request, module: Any) -> Loaded:
        """A module that was read from no file of ours."""
        return cls(request, Path(), b"", module, {})

    @property
    def name(self) -> str:
        """The model's name in C."""
        return model_name(self.request.options.name or self.path.stem)
