"""Streamed inputs: bytes and cycles against the whole input in memory, and whether random chunks are exact.

    python -m benchmarks.stream_input MODEL.tflite[:INPUT] ... [--accelerator NAME] [--steps 20]
    python -m benchmarks.stream_input MODEL.tflite ... --pool SIZE    # the fewest cycles in so much

A row a model, without INPUT of its first one: bytes of the pools and estimated cycles with `--stripes` and with
`--stream-input`, the rows that are kept, and the parts of the NPU's work; whether `--steps` inferences in chunks of
random sizes equal the reference kernels; notes of the compile, such as that the rows take no bytes of their own.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import npu_memplan
from benchmarks.resident import exact
from npu_memplan.models.tflite import read_network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--pool", default="")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    options: dict[str, Any] = {"accelerator": given.accelerator, "effort": given.effort, "check": False, "force": True}
    if given.pool:
        options["pools"] = {"sram": given.pool}
    for text in given.models:
        path, _, name = text.partition(":")
        model = Path(path)
        network = read_network(model.read_bytes(), model.name)
        first = network.tensors[network.inputs[0]]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "out")
            try:
                striped = npu_memplan.compile(model, folder, stripes=True, **options)
                streamed = npu_memplan.compile(model, folder, stream_input=name or first.name, **options)
            except npu_memplan.NpuMemplanError as error:
                print(f"{model.stem}: {str(error).splitlines()[0]}", flush=True)
                continue
            used = [", ".join(f"{u.pool} {u.used_bytes:,}" for u in one.plan.usage) for one in (striped, streamed)]
            assert streamed.stream is not None
            _, rows = streamed.stream
            print(
                f"{model.stem}: input {first.size_bytes:,}; stripes {used[0]}, {striped.estimated_cycles:,} cycles; "
                f"streamed {used[1]}, {streamed.estimated_cycles:,} cycles, {streamed.inputs[0].shape[1]} rows in all, "
                f"{streamed.inputs[0].size_bytes:,} bytes kept, {len(rows.feeds)} parts; "
                f"{given.steps} inferences: {exact(folder, model, 'local', given.steps)}",
                *(f"; {note}" for note in streamed.notes),
                flush=True,
            )


if __name__ == "__main__":
    main()
