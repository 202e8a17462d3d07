"""Runs every single-operator model, and real models, on all configurations; writes docs/npu_model_coverage.md.

Usage: python -m benchmarks.npu_model_sweep [--models FOLDER] [--output FILE.md] [--only TEXT]

Invariant: every cell of the table comes from a run of this script with all checks on, compared element by
element with tflite-micro's reference kernels. Exit code 1 when something differs that is not a known case.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
from collections import Counter
from pathlib import Path

from fvp_runner.reference import Reference
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.vela import VelaOptions, compile_tflite
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

# What is not exact and why: faults of the compiler or limits of the reference, none of the model's.
KNOWN = {
    "pack_axis3": "the legacy core packs only the last of the outer axes",
    "bilinear_half": "the legacy core emits a BLOCKDEP that lets DEPTHWISE read rows of the POOL before it; reported",
    "tf2_mobilenet_v2_1.0_224_ptq": "the legacy core emits BLOCKDEP 3 between the classifier's CONV and the softmax's "
    "POOL, whose first block needs the last 1001 - 896 channels; reported",
    "micro_speech_quantized": "the legacy core rounds a DMA's length up to 16 bytes on U65 and so reads 8 bytes that "
    "nobody wrote, behind the input; reported",
}


def cell(trial: Trial | NpuMemplanError) -> str:
    """The table's text for one trial."""
    if isinstance(trial, NpuMemplanError):
        return type(trial).__name__
    if not trial.npu_operations:
        return f"CPU ({', '.join(sorted(set(trial.on_cpu)))})"
    rest = f" + CPU ({', '.join(sorted(set(trial.on_cpu)))})" if trial.on_cpu else ""
    return f"exact{rest}" if not trial.wrong else f"{trial.wrong} of {trial.elements} differ{rest}"


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
            if not cells[-1].startswith(("exact", "CPU")):
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


def real_models(folder: Path, only: str) -> tuple[list[str], int]:
    """Lines of the table of real networks: exact runs of all runs, for each core."""
    lines = ["| network | regor, Performance | regor, Size | legacy, Performance |", "|---|---|---|---|"]
    unexpected = 0
    for path in sorted(folder.glob("*.tflite")):
        if only not in path.stem:
            continue
        model = path.read_bytes()
        reference = Reference(model, path.stem)
        inputs = random_inputs(reference, 1)
        expected = reference.run(inputs)
        cells = []
        for core, optimise in (("regor", "Performance"), ("regor", "Size"), ("legacy", "Performance")):
            exact = runs = 0
            problems: Counter[str] = Counter()
            for accelerator, mode in MODES:
                runs += 1
                options = VelaOptions(accelerator, memory_mode=mode, optimise=optimise, core=core)
                try:
                    trial = try_model(compile_tflite(model, options, path.stem), reference, inputs, expected)
                    text = cell(trial)
                except NpuMemplanError as error:
                    text = type(error).__name__
                exact += text.startswith("exact")
                if not text.startswith("exact"):
                    problems[text] += 1
                    known = core == "legacy" and path.stem in KNOWN
                    unexpected += not known
                    print(f"{path.stem} {accelerator} {mode} {core} {optimise}: {text}", flush=True)
            more = "".join(f"; {n} x {text}" for text, n in problems.items())
            cells.append(f"{exact} of {runs} exact{more}")
        lines.append(f"| `{path.stem}` | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return lines, unexpected


def main() -> int:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "npu_model_coverage.md")
    parser.add_argument("--only", default="", help="only models whose name contains this text; writes nothing")
    options = parser.parse_args()
    singles, bad = single_operators(options.only)
    reals, bad_reals = real_models(options.models, options.only) if options.models.is_dir() else ([], 0)
    page = [
        "# What the NPU model is tried on",
        "",
        "Written by `python -m benchmarks.npu_model_sweep`; do not edit. Every run executes Vela's command stream with",
        "all checks on and compares every output element with tflite-micro's reference kernels. *exact*: no element",
        "differs. *CPU*: Vela left the operator (or a part) to the host, where tflite-micro itself runs it.",
        "",
        "## What is not exact, and why",
        "",
        *(f"* `{name}` (legacy core only): {cause}." for name, cause in KNOWN.items()),
        "* Not tried, for want of a reference: uint8 average pooling (it rounds unlike its int8 twin), int8 EXP.",
        "* No compiler emits LRELU, rounding TRUNCATE, 2D and 3D DMA, CLZ of 0 and FP16 accumulators. The first four",
        "  follow their description and are tested on streams written by hand; FP16 is refused as an illegal value.",
        "",
        "## Real networks",
        "",
        f"Configurations: {', '.join(f'{a} {m}' for a, m in MODES)}.",
        "",
        *reals,
        "",
        "## Single operators",
        "",
        *singles,
        "",
    ]
    if not options.only:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text("\n".join(page), encoding="utf-8")
    print("\n".join(singles[:1]))
    print(f"{bad + bad_reals} unexpected results")
    return 1 if bad + bad_reals else 0


if __name__ == "__main__":
    sys.exit(main())
