"""Options of the compiler with which a pool needs fewer bytes, as one table.

Invariant: `explain` and the error of a model that does not fit take what they name from here; a knob is changes of
`CompileOptions`, and the flags to type follow from them. What a compile of all backends tries itself is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import NpuMemplanError
from .models.frameworks import is_onnx, is_torch
from .options import AUTO, NO_NPU, CompileOptions
from .target_data import accelerator_system

Changes = Mapping[str, object]  # of `CompileOptions`, by field name
_SECOND = "Dedicated_Sram"
_ALIGNMENT = 16
ON_HOST: Changes = {  # and none of an NPU compiler's options
    "accelerator": NO_NPU,
    "host_ops": (),
    "npu_compiler": "vela",
    "optimise": "Performance",
    "arena_cache_size_bytes": None,
    "stripes": False,
}


def with_changes(options: CompileOptions, changes: Changes) -> CompileOptions:
    """`options` with other values of the fields that `changes` names."""
    return replace(options, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TuningKnob:
    """One option to try. `changes(options, budget_bytes)` is empty where it would change nothing or is not possible."""

    does: str
    changes: Callable[[CompileOptions, int], Changes]
    of_backends: bool = False  # a compile that compares all backends tries it, or needs no more without it

    def apply_to(self, options: CompileOptions, budget_bytes: int) -> CompileOptions | None:
        """`options` with this one as well; None where that is nothing new, or does not go together with them."""
        if self.of_backends and options.has_rivals:
            return None
        changed = with_changes(options, self.changes(options, budget_bytes))
        try:
            resolved = changed.resolve_defaults()
        except NpuMemplanError:  # the board has no such memory mode, say
            return None
        return None if options in (changed, resolved) else resolved

    def flag_text(self, options: CompileOptions, budget_bytes: int) -> str:
        """The text that is added to the command line of `options`, and what to leave out of it."""
        changed = self.apply_to(options, budget_bytes)
        if changed is None:
            return ""
        before, after = options.to_cli_options(), changed.to_cli_options()
        given = " ".join(" ".join(option) for option in after if option not in before)
        named = {option[0] for option in after} | ({"--npu-compiler"} if changed.accelerator == NO_NPU else set())
        dropped = " ".join(" ".join(option) for option in before if option[0] not in named)
        return " ".join(filter(None, (given, dropped and f"(without {dropped})")))


def _vela_only(changes: Changes) -> Callable[[CompileOptions, int], Changes]:
    """The given changes, for programs of Vela's compiler only."""
    return lambda options, _: changes if options.npu_compiler == "vela" and options.accelerator != NO_NPU else {}


def _aim_at(options: CompileOptions, target_bytes: int) -> Changes:
    return _vela_only({"arena_cache_size_bytes": target_bytes})(options, target_bytes)


def _npu_only(changes: Changes) -> Callable[[CompileOptions, int], Changes]:
    return lambda options, _: {} if options.accelerator == NO_NPU else changes


def _second_memory(options: CompileOptions, budget_bytes: int) -> Changes:
    """A second memory to write to, of systems that are known to have one: those around NPUs that have it by default."""
    if options.accelerator == NO_NPU or options.memory_mode.startswith(_SECOND):
        return {}
    if not accelerator_system(options.accelerator).memory_mode.startswith(_SECOND):
        return {}
    aimed = {"optimise": "Performance", "arena_cache_size_bytes": budget_bytes}  # Vela's way to spill
    return {"memory_mode": _SECOND, **(aimed if options.npu_compiler == "vela" else {})}


def _all_backends(options: CompileOptions, budget_bytes: int) -> Changes:
    """The program of any backend; without a size that it is to fit, the smallest of those."""
    if options.accelerator == NO_NPU:
        return {}
    fewest = not options.has_size and options.effort != "quick"
    return {
        "npu_compiler": AUTO,
        "optimise": "Performance",
        "arena_cache_size_bytes": None,
        "stripes": False,
        "objective": "bytes" if fewest else options.objective,
    }


ALL_BACKENDS = TuningKnob("the program of any backend that needs the fewest bytes", _all_backends, of_backends=True)
SEARCH = TuningKnob(
    "a longer search for a place of the same buffers", lambda *_: {"planner": "optimal"}, of_backends=True
)
INPUTS = TuningKnob("inputs overwritten once they were read", lambda *_: {"reuse_inputs": True})
TARGET = TuningKnob("Vela aims at this many bytes", _aim_at, of_backends=True)
# Vela stops as soon as its own placement meets the target; below it, it cascades more
LOWER = TuningKnob(
    "Vela aims at fewer, and cascades more",
    lambda o, budget: _aim_at(o, budget * 3 // 4 // _ALIGNMENT * _ALIGNMENT),
    of_backends=True,
)
SIZE = TuningKnob("Vela saves bytes, not cycles", _vela_only({"optimise": "Size"}), of_backends=True)
VELA = TuningKnob("Vela's streams", _npu_only({"npu_compiler": "vela", "stripes": False}), of_backends=True)
OURS = TuningKnob(
    "this package's native lowering", _npu_only({"npu_compiler": "tvm", "stripes": False}), of_backends=True
)
STRIPES = TuningKnob(
    "operations in stripes of rows, layers in turn",
    _npu_only({"npu_compiler": "tvm", "stripes": True, "overlaps": True}),
    of_backends=True,
)
SECOND_MEMORY = TuningKnob("what gains least lies in a second, slower memory", _second_memory)
ROWS = TuningKnob(
    "operators of the CPU in turn, row by row",
    lambda o, _: {"objective": "bytes"} if o.accelerator == NO_NPU and not o.pools else {},
)
HOST = TuningKnob("nothing on the NPU", lambda *_: ON_HOST, of_backends=True)

ALL = (ALL_BACKENDS, SEARCH, INPUTS, TARGET, LOWER, SIZE, VELA, OURS, STRIPES, SECOND_MEMORY, ROWS, HOST)


def useful_knobs(options: CompileOptions, budget_bytes: int, source: str, *, searched: bool) -> tuple[TuningKnob, ...]:
    """The knobs that change something for `source`, made with `options`; `searched`: no smaller place exists."""
    return tuple(
        knob
        for knob in ALL
        if not (knob is SEARCH and searched)
        and (changed := knob.apply_to(options, budget_bytes)) is not None
        and _can_compile(changed, source)
    )


def _can_compile(options: CompileOptions, source: str) -> bool:
    """Whether there is a way from this kind of file: Vela reads TFLite only."""
    tflite = not is_onnx(path := Path(source)) and not is_torch(path)
    return tflite or options.npu_compiler != "vela" or options.accelerator == NO_NPU
