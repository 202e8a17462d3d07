"""`link --emit vela-tflite`: a file for each network, for interpreters of TFLite Micro that share one arena.

Invariant: a file is what `compile` writes of its network alone, resident constants too. The planned part of the shared
arena is the largest of theirs: TFLite Micro's allocator reserves as much as the largest plan that it is given, and
every interpreter's tensors begin at its start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..models.tflite import read_network
from ..names import model_name
from ..options import CompileOptions
from ..sizes import counted
from .command import Make, summary
from .emit import EmitError, Emitted, emit
from .resident import assembly

FILE_NAME = "arena.json"


def write_files(models: Sequence[Path], options: CompileOptions, folder: Path, make: Make = emit) -> dict[str, Any]:
    """Write NAME.tflite of every model, and what their firmware needs, into an empty directory; the latter."""
    if options.resident not in ("none", "all"):
        raise EmitError(
            f"--resident {options.resident} would be of every network by itself; give --resident all, or compile each: "
            "compile --emit vela-tflite --resident SIZE"
        )
    made: dict[str, Emitted] = {}
    for model in models:
        name = model_name(model.stem)
        if model.is_dir():
            raise EmitError(f"{model} is an artifact; --emit vela-tflite takes models")
        if name in made:
            raise EmitError(f"two networks would be called {name}; rename the file {model}")
        made[name] = make(model, options)
        _check_states(made[name].content, model)
        (folder / f"{name}.tflite").write_bytes(made[name].content)
        if resident := made[name].resident:
            text = assembly(name, f"{name}.tflite", made[name].content, resident)
            (folder / f"{name}.S").write_text(text, encoding="utf-8")
    needs = _needs(made)
    (folder / FILE_NAME).write_text(json.dumps(needs, indent=1) + "\n", encoding="utf-8")
    return needs


def _check_states(content: bytes, model: Path) -> None:
    """`EmitError` where states are in the planned part, which the next interpreter overwrites."""
    states = [t.name for t in read_network(content, model.name).tensors if t.is_variable and t.arena_offset >= 0]
    if states:
        raise EmitError(
            f"{model.name} keeps {states[0]!r} in the planned part of the arena, which other interpreters overwrite; "
            "give its interpreter an arena of its own: compile --emit vela-tflite"
        )


def _needs(made: Mapping[str, Emitted]) -> dict[str, Any]:
    planned = [one.arena_bytes for one in made.values()]
    return {
        "planned_bytes": max(planned),
        "apart_bytes": sum(planned),
        "fast_memory_bytes": max(one.fast_bytes for one in made.values()),
        "resident_bytes": sum(len(one.resident) for one in made.values()),
        "operators": list(dict.fromkeys(operator for one in made.values() for operator in one.operators)),
        "networks": [{"file": f"{name}.tflite", **summary(one)} for name, one in made.items()],
    }


def format_needs(needs: Mapping[str, Any], output: Path) -> str:
    """What `write_files` gave, for people."""
    lines = [
        f"{output.name}: {counted(len(needs['networks']), 'network')}; one arena, "
        f"{needs['planned_bytes']:,} bytes planned ({needs['apart_bytes']:,} apart)",
        "           TFLite Micro adds its own structures of every interpreter, and the scratch of its kernels",
        *(
            f"  {one['file']}: {one['arena_bytes']:,} bytes ({one['status']}); {one['estimated_cycles']:,} cycles"
            for one in needs["networks"]
        ),
        f"operators  {', '.join(needs['operators'])}: the resolver has to know these",
    ]
    if needs["fast_memory_bytes"]:
        lines.append(f"driver     ethosu_init is to get at least {needs['fast_memory_bytes']:,} bytes of fast memory")
    if needs["resident_bytes"]:
        lines.append(
            f"resident   {needs['resident_bytes']:,} bytes of constants are to lie in fast memory: NAME.S of each"
        )
    return "\n".join([*lines, f"written to {output}"])
