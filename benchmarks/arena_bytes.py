"""The table of arena bytes in docs/reference.md, by a sweep: every model by each compiler, legacy TVM and Vela.

    python -m benchmarks.arena_bytes [MODEL.tflite ...] [-o FOLDER] [--jobs 2]

FOLDER keeps the results (default: build/arena_bytes), so that a second call prints at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_memplan import sweep
from npu_memplan.command_line import show_progress
from npu_memplan.options import CompileOptions
from npu_memplan.sweep.case import target_name
from npu_memplan.sweep.table import TableRow

REPOSITORY = Path(__file__).resolve().parent.parent
# TVM v0.14 with ethos-u-vela 3.8.0, ethos-u55-256, measured: pool by hill_climb, pool by the cascader with striping
LEGACY = {
    "kws_ref_model": (22080, 17104),
    "ad01_int8": (768, 1120),
    "hello_world_int8": (32, 544),
    "micro_speech_quantized": (5056, 6112),
    "str_ww_ref_model": (26496, 6144),
    "pretrainedResnet_quant": (69312, 50144),
    "vww_96_int8": (74480, 74880),
    "person_detect": (75680, 74464),
    "mobilenet_v2_pt2tflite_int8": (1509728, 668656),
}
COLUMNS = {
    "lifted": CompileOptions(npu_compiler="vela", objective="bytes"),
    "native lowering": CompileOptions(npu_compiler="tvm", objective="bytes"),
    "in stripes": CompileOptions(npu_compiler="tvm", stripes=True),
    "host only": CompileOptions(accelerator="none"),
}


def table(rows: dict[tuple[str, str], TableRow]) -> str:
    """Markdown of `rows` by (network, name of target); `-` where something does not compile."""
    lines = [f"| model | legacy TVM | Vela 5.2 | {' | '.join(COLUMNS)} |", "|---|" + "--:|" * (len(COLUMNS) + 2)]
    for network in dict.fromkeys(network for network, _ in rows):
        found = [rows[network, target_name(options)] for options in COLUMNS.values()]
        legacy = LEGACY.get(network, (None,))[0]
        cells = (legacy, found[0].result.vela_bytes or None, *(row.ram_bytes for row in found))
        lines.append(f"| {network} | {' | '.join('-' if cell is None else f'{cell:,}' for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "build" / "arena_bytes")
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args()
    models = given.models or sorted((REPOSITORY / "tests" / "models").glob("*.tflite"))
    every = sweep.cases(models, list(COLUMNS.values()))
    with sweep.local_executor(given.jobs) as executor, show_progress("sweep") as shown:
        swept = sweep.run(every, executor, store=given.output / "results.jsonl", progress=shown.show_part)
    print(table({(row.label.network, row.label.target): row for row in swept.table().rows}))


if __name__ == "__main__":
    main()
