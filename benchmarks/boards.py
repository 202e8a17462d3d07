"""Where ten networks fit: writes docs/boards.md.

    python -m benchmarks.boards [--folder FOLDER]... [--output FILE.md] [--only TEXT]

Invariant: a cell is what `npu-memplan compile NETWORK --board all --objective bytes --effort quick` says; rows of
networks that --only leaves out stay as they stand on the page. Boards' names and figures are those of `targets/boards`
alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from npu_memplan.board_rows import BoardRow, on_boards
from npu_memplan.options import CompileOptions
from npu_memplan.target_data import board_names

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = (
    "hello_world_int8",
    "trained_lstm_int8",
    "micro_speech_quantized",
    "kws_ref_model",
    "str_ww_ref_model",
    "ad01_int8",
    "pretrainedResnet_quant",
    "person_detect",
    "vww_96_int8",
    "tf2_mobilenet_v2_1.0_224_ptq",
)
HEAD = """# Where networks fit

Written by `python -m benchmarks.boards`; do not edit. A row is `npu-memplan compile NETWORK --board all
--objective bytes --effort quick`, turned on its side: KiB of the memory that holds the planned pools / KiB of
constants and command streams, and estimated milliseconds, of Vela's stream planned for the least memory. **Bold**:
does not fit, and what is short. *Size*: fits with `--npu-compiler vela,Size`, whose figures these are. Where tensors
may lie in DRAM (Ethos-U65, Ethos-U85 of Corstone: Dedicated_Sram), the second figure has them, too.

Figures of boards are from public texts, each with its source in `targets/boards/*.toml`; `npu-memplan boards NAME`
prints them, and what is not known. **Of these boards, those of Corstone alone were run by us, on emulators;
milliseconds are estimates ([time.md](time.md))**. A program's own bytes are not counted. Corstone boards have no
clock of their own; theirs is that of Vela's system configuration.

"""


def cell(row: BoardRow) -> str:
    """`20.3/33.8, 0.216`, or what is short."""
    if row.fit is None:
        return "not compiled"
    (sram, _), (flash, _) = row.fit.bytes_of(constants=False), row.fit.bytes_of(constants=True)
    figures = f"{sram / 1024:.1f}" + (f"/{flash / 1024:.1f}" if flash else "")
    if row.milliseconds is not None:
        figures += f", {row.milliseconds:.3f}"
    if not row.fits:
        short = ", ".join(use.memory.name for use in row.fit.uses if use.headroom_bytes < 0)
        return f"**{short}** {figures}"
    return f"*Size* {figures}" if row.options.optimise == "Size" else figures


def line(name: str, rows: Sequence[BoardRow]) -> str:
    """The network's row of the table."""
    return f"| {name} | " + " | ".join(cell(row) for row in rows) + " |"


def main() -> None:
    """Write the page."""
    shared = ROOT.parent / "shared" / "models"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, action="append", default=[])
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "boards.md")
    parser.add_argument("--only", default="", help="only networks whose name contains this text")
    chosen = parser.parse_args()
    folders = [*chosen.folder, ROOT / "tests" / "models", shared]
    page = chosen.output.read_text(encoding="utf-8") if chosen.output.is_file() else ""
    kept = {text.split("|")[1].strip(): text for text in page.splitlines() if text.startswith("| ")}
    boards = board_names()
    lines = ["| network | " + " | ".join(boards) + " |", "|---" * (len(boards) + 1) + "|"]
    for name in NETWORKS:
        path = next((p for folder in folders if (p := folder / f"{name}.tflite").is_file()), None)
        if chosen.only in name and path is not None:
            kept[name] = line(name, on_boards(path, CompileOptions(objective="bytes", effort="quick")))
            print(kept[name], flush=True)
        if name in kept:
            lines.append(kept[name])
    chosen.output.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
