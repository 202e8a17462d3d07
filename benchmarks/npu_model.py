"""Times one steady-state inference of the NPU model, next to tflite-micro's in the same run.

Usage: python -m benchmarks.npu_model [--models FOLDER] [--accelerator NAME] [--json FILE] [NAME ...]

One core: BLAS is held to one thread. Each figure is the fastest of several runs, taken in turns so that a
busy machine slows all of them alike. "first" includes decoding the stream and the weights.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.npu_model.spec.operations import DmaSpec
from fvp_runner.npu_model.spec.stream import DecodedStream
from fvp_runner.references.interpreters import Reference, invoke_once
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.trial import random_inputs

_SECONDS = 2.0  # per model and figure
_ROUNDS = 30


def clock(action: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def measure(path: Path, accelerator: str) -> dict[str, object]:
    """All figures of one network."""
    model = path.read_bytes()
    reference = Reference(model, path.stem)
    inputs = random_inputs(reference.network, 1)
    result = compile_tflite(model, VelaOptions(accelerator), path.stem)
    network = read_network(result.network)
    models = {checks: NetworkModel(network, result.network, checks=checks) for checks in (False, True)}
    first = {checks: clock(lambda npu=npu: npu.run(inputs)) for checks, npu in models.items()}
    reference.run(inputs)
    interpreter = reference._interpreter

    actions: dict[str, Callable[[], object]] = {
        "tflite_micro_ms": lambda: invoke_once(interpreter, path.stem),
        "checks_off_ms": lambda: models[False].run(inputs),
        "checks_on_ms": lambda: models[True].run(inputs),
    }
    best = dict.fromkeys(actions, float("inf"))
    deadline = time.perf_counter() + _SECONDS * len(actions)
    for _ in range(_ROUNDS):
        for name, action in actions.items():
            best[name] = min(best[name], clock(action))
        if time.perf_counter() > deadline:
            break
    steps = [s for c in network.npu_calls for s in DecodedStream.decode_words(c.words, c.accelerator).steps]
    macs = sum(s.spec.macs for s in steps if not isinstance(s.spec, DmaSpec))
    return {
        "network": path.stem,
        "million_macs": round(macs / 1e6, 2),
        "operations": len(steps),
        **{name: round(value, 2) for name, value in best.items()},
        "first_checks_off_ms": round(first[False], 1),
        "first_checks_on_ms": round(first[True], 1),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--models", type=Path, default=Path(__file__).resolve().parent.parent.parent / "shared" / "models"
    )
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"milliseconds on one core, {options.accelerator}; fastest of up to {_ROUNDS} runs")
    columns = ("tflite_micro_ms", "checks_off_ms", "checks_on_ms", "first_checks_off_ms", "first_checks_on_ms")
    titles = ("tflite-micro", "checks off", "checks on", "first off", "first on")
    print(f"{'network':34}{'M MAC':>8}{'ops':>6}" + "".join(f"{title:>14}" for title in titles))
    for path in sorted(options.models.glob("*.tflite")):
        if options.names and not any(name in path.stem for name in options.names):
            continue
        row = measure(path, options.accelerator)
        rows.append(row)
        figures = "".join(f"{row[column]:>14}" for column in columns)
        print(f"{row['network']:34}{row['million_macs']:>8}{row['operations']:>6}{figures}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
