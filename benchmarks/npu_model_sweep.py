"""Runs every single-operator model, and real models, on all configurations; writes build/npu_model_coverage.md.

Usage: python -m benchmarks.npu_model_sweep [--folder FOLDER]... [--output FILE.md] [--only TEXT] [--section TITLE]...

Invariant: every cell of the tables comes from a run of this script with all checks on, compared element by element
with the reference (tflite-micro's reference kernels, LiteRT's where it has none). A section that is not requested
stays as it stands on the page, and so do rows of models that --only leaves out. Exit code 1 when something differs
or alarms that is not a known case.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.single_operators import all_cases
from tests.support.trial import Trial, random_inputs, try_case, try_model

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATIONS = (
    ("ethos-u55-32", "regor"),
    ("ethos-u55-64", "regor"),
    ("ethos-u55-128", "regor"),
    ("ethos-u55-256", "regor"),
    ("ethos-u65-256", "regor"),
    ("ethos-u65-512", "regor"),
    ("ethos-u55-256", "legacy"),
)
MODES = [(f"ethos-u55-{n}", mode) for n in (32, 64, 128, 256) for mode in ("Shared_Sram", "Sram_Only")]
MODES += [("ethos-u65-256", "Dedicated_Sram"), ("ethos-u65-512", "Dedicated_Sram")]
MEMORY_COLUMNS = (("regor", "Performance"), ("regor", "Size"), ("legacy", "Performance"))
DEFAULT_COLUMNS = (("regor", "Performance"), ("legacy", "Performance"))
U85_COLUMNS = (("regor", "Performance"), ("regor", "Size"))

# What is not exact or not clean, and why: faults of the compiler, none of the model's. Unless it says so, of the
# legacy core only.
_WIDE_MAXIMUM = (
    "BLOCKDEP 3 between the classifier's CONV and the softmax's POOL, whose only block takes the maximum of all 1001 "
    "channels, the last three blocks included: the core looks at the first 64 columns of a kernel only, the newer one "
    "at all of them"
)
BOTH_CORES = {
    "leaky_relu_int16": "Vela's own form of the network's int16 LEAKY_RELU rounds 1 of 2,560 elements otherwise than "
    "the reference",
    "ssd_traffic_uint8": "not run to its end: shapes of what TFLite_Detection_PostProcess makes are not in the file "
    "(NpuModelError)",
    "style_transfer_dynamic": "not run to its end: what the style network makes has shapes that are known only at run "
    "time, and no reference runs MIRROR_PAD of one of them alone (ReferenceRunError)",
}
KNOWN = BOTH_CORES | {
    "pack_axis3": "the core packs only the last of the outer axes",
    "bilinear_half": "relies on timing: a BLOCKDEP that lets DEPTHWISE read rows of the POOL before it (the core "
    "leaves out that the input is upscaled), were there not a wait for its weights between the two",
    "tf2_mobilenet_v2_1.0_224_ptq": _WIDE_MAXIMUM,
    "mobilenet_v1_025_128_uint8": _WIDE_MAXIMUM,
    "fingerprint": "relies on timing: a BLOCKDEP that lets a 42 x 42 DEPTHWISE read the last blocks of the CONV before "
    "it (the core looks at the first 32 rows of a kernel only), were there not a wait for its weights, 3,696 bytes, "
    "between the two",
}


def cell(trial: Trial | NpuMemplanError) -> str:
    """The table's text for one trial."""
    if isinstance(trial, NpuMemplanError):
        return type(trial).__name__
    if not trial.npu_operations:
        return f"CPU ({', '.join(sorted(set(trial.on_cpu)))})"
    rest = f" + CPU ({', '.join(sorted(set(trial.on_cpu)))})" if trial.on_cpu else ""
    rest += "; relies on timing" if trial.timing else ""
    if not trial.elements:
        return f"clean{rest}"
    return f"exact{rest}" if not trial.wrong else f"{trial.wrong} of {trial.elements} differ{rest}"


def is_fine(text: str) -> bool:
    """Whether a cell says nothing that needs a cause."""
    return text.startswith(("exact", "clean", "CPU")) and "timing" not in text


def single_operators(only: str) -> tuple[list[str], int]:
    """Lines of the table, and the number of unexpected results."""
    lines = ["| model | " + " | ".join(f"{a.removeprefix('ethos-')} {c}" for a, c in CONFIGURATIONS) + " |"]
    lines += ["|---" * (len(CONFIGURATIONS) + 1) + "|"]
    unexpected = covered = 0
    totals: Counter[str] = Counter()
    for case in all_cases():
        if only not in case.name:
            continue
        cells = []
        for accelerator, core in CONFIGURATIONS:
            try:
                trial: Trial | NpuMemplanError = try_case(case, accelerator, core, fuzz=2)
            except NpuMemplanError as error:
                trial = error
            cells.append(cell(trial))
            if not is_fine(cells[-1]):
                known = core == "legacy" and case.name in KNOWN
                unexpected += not known
                print(f"{case.name} {accelerator} {core}: {cells[-1]}{' (known)' if known else ''}", flush=True)
            totals["exact" if cells[-1].startswith("exact") else "other"] += 1
        covered += sum(c.startswith("exact") for c in cells) >= 4
        lines.append(f"| `{case.name}` | " + " | ".join(cells) + " |")
    head = [
        f"{len(lines) - 2} models; {covered} of them are exact on at least 4 configurations. "
        f"{totals['exact']} of {totals.total()} runs are exact, all with every check on and under 2 other completion "
        "orders.",
        "",
    ]
    return head + lines, unexpected


class Network:
    """A real network with its reference: compiled and run any number of times on the same inputs."""

    def __init__(self, path: Path) -> None:
        self.name, self.model = path.stem, path.read_bytes()
        self.reference = TFLiteReference(self.model, self.name)
        self.inputs = random_inputs(self.reference.network, 1)
        self.expected: tuple[Any, ...] = ()  # nothing to compare with: only the checks speak
        self.why = ""
        try:
            self.expected = self.reference.run(self.inputs)
        except ReferenceRunError as error:
            self.why = str(error).splitlines()[0]

    def row(self, columns: Sequence[tuple[str, str]], runs: Sequence[VelaOptions]) -> tuple[str, int]:
        """The table's row, a cell for each (core, optimise) of `columns`, and the number of unexpected results."""
        cells, unexpected = [], 0
        for core, optimise in columns:
            found: Counter[str] = Counter()
            for base in runs:
                options = replace(base, core=core, optimise=optimise)
                text = self._try(options)
                found[text] += 1
                if not is_fine(text) and text != "VelaError":
                    unexpected += self.name not in (KNOWN if core == "legacy" else BOTH_CORES)
                    print(f"{self.name} {options.accelerator} {options.memory_mode} {core}: {text}", flush=True)
            cells.append("; ".join(f"{n} of {len(runs)} {text}" for text, n in found.most_common()))
        return f"| `{self.name}` | " + " | ".join(cells) + " |", unexpected

    def _try(self, options: VelaOptions) -> str:
        try:
            compiled = compile_tflite(self.model, options, self.name)
            return cell(try_model(compiled, self.reference, self.inputs, self.expected))
        except NpuMemplanError as error:
            return type(error).__name__


def networks(
    folders: Sequence[Path], only: str, columns: Sequence[tuple[str, str]], runs: Sequence[VelaOptions]
) -> tuple[list[str], int]:
    """Lines of a table of real networks, and the number of unexpected results."""
    lines = ["| network | " + " | ".join(f"{core}, {optimise}" for core, optimise in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    unexpected, without = 0, []
    for path in sorted((p for folder in folders for p in folder.glob("*.tflite")), key=lambda p: p.stem):
        if only not in path.stem:
            continue
        try:
            network = Network(path)
        except NpuMemplanError as error:
            lines.append(f"| `{path.stem}` | not read: {str(error).splitlines()[0]} " + "| " * len(columns))
            continue
        line, more = network.row(columns, runs)
        unexpected += more
        lines.append(line)
        without += [f"* `{network.name}` has no reference here: {network.why}."] if network.why else []
        print(line, flush=True)
    return [*lines, "", *without] if without else lines, unexpected


def _cores(name: str) -> str:
    return "both cores" if name in BOTH_CORES else "legacy core only"


def introduction() -> list[str]:
    """The head of the page."""
    return [
        "# What the NPU model is tried on",
        "",
        "Written by `python -m benchmarks.npu_model_sweep`; do not edit. Every run executes Vela's command stream",
        "with all checks on and compares every output element with the reference: tflite-micro's reference kernels,",
        "LiteRT's where it has none. *exact*: no element differs. *clean*: no check alarms, and there is no reference.",
        "*CPU*: Vela left the operator (or a part) to the host, where tflite-micro itself runs it. *VelaError*: Vela",
        "does not compile it. *relies on timing*: see docs/npu_model.md.",
        "",
        "## What is not exact or not clean, and why",
        "",
        *(f"* `{name}` ({_cores(name)}): {cause}." for name, cause in KNOWN.items()),
        "* Not tried, for want of a reference: int8 EXP.",
        "* No compiler emits LRELU, rounding TRUNCATE, 2D and 3D DMA, CLZ of 0 and FP16 accumulators. The first four",
        "  follow their description and are tested on streams written by hand; FP16 is refused as an illegal value.",
        "",
    ]


def standing(page: Path) -> dict[str, list[str]]:
    """Title -> lines of each section that is on the page now."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return {title: body.strip("\n").splitlines() for title, body in zip(parts[::2], parts[1::2], strict=True)}


def merged(old: list[str], new: list[str]) -> list[str]:
    """`old` with the rows that are in `new` in place of its own; rows are ordered by name when some are added."""
    rows = {line.split("|")[1]: line for line in new if line.startswith("| `")}
    kept = [rows.pop(line.split("|")[1], line) if line.startswith("| `") else line for line in old or new]
    if not rows:
        return kept
    at = next(i for i, line in enumerate(kept) if line.startswith("|---")) + 1
    end = next((i for i in range(at, len(kept)) if not kept[i].startswith("|")), len(kept))
    return [*kept[:at], *sorted({*kept[at:end], *rows.values()}), *kept[end:]]


def main() -> int:
    """TimedRun what is requested and write the page."""
    shared = ROOT.parent / "shared"
    modes = [VelaOptions(a, memory_mode=m) for a, m in MODES]
    default = [VelaOptions(a) for a in dict.fromkeys(a for a, _ in MODES)]
    u85 = [VelaOptions(npu.name) for npu in ETHOS_U85]
    sections: dict[str, tuple[str, Callable[[list[Path], str], tuple[list[str], int]]]] = {
        "Real networks": (
            f"Runs of each: {', '.join(f'{a} {m}' for a, m in MODES)}.",
            lambda folders, only: networks(folders[:1], only, MEMORY_COLUMNS, modes),
        ),
        "Vela's default output": (
            f"Runs of each: {', '.join(o.accelerator for o in default)}, as Vela compiles by default.",
            lambda folders, only: networks(folders, only, DEFAULT_COLUMNS, default),
        ),
        "Ethos-U85": (
            f"Runs of each: {', '.join(o.accelerator for o in u85)}, as Vela compiles by default.",
            lambda folders, only: networks(folders, only, U85_COLUMNS, u85),
        ),
        "Single operators": ("", lambda _, only: single_operators(only)),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, action="append", default=[], help="of networks; repeat for more")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "npu_model_coverage.md")
    parser.add_argument("--only", default="", help="only models whose name contains this text; other rows stay")
    parser.add_argument("--section", action="append", choices=list(sections), default=[], help="default: all of them")
    options = parser.parse_args()
    folders = [f for f in options.folder or (shared / "models", shared / "zoo") if f.is_dir()]
    old, unexpected, page = standing(options.output), 0, introduction()
    for title, (runs, make) in sections.items():
        body = old.get(title, [])
        if not options.section or title in options.section:
            lines, bad = make(folders, options.only)
            made = [*([runs, ""] if runs else []), *lines]
            body = merged(body, made) if options.only else made
            unexpected += bad
        page += [f"## {title}", "", *body, ""]
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text("\n".join(page), encoding="utf-8")
    print(f"{unexpected} unexpected results")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
