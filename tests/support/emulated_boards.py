"""Boards that no hardware is, for emulators that have no machine of their own for an NPU."""

from __future__ import annotations

import re
from pathlib import Path

from npu_memplan.target_data import load_board


def ethos_u85_board(folder: Path) -> Path:
    """A board file in `folder`: Corstone-300's machine, which QEMU has, with an Ethos-U85 at the place of its NPU."""
    shipped = load_board("corstone-300-u65").path
    assert shipped is not None
    text = re.sub(r'name = "corstone-300-u65"', 'name = "stand-in"', shipped.read_text(encoding="utf-8"))
    text = re.sub(r"accelerators = .*", 'accelerators = ["ethos-u85-256"]', text)
    text = text.replace("base = 0x48102000\nsize_bytes = 0x1000", "base = 0x48102000\nsize_bytes = 0x2000")
    path = folder / "stand-in.toml"
    path.write_text(text, encoding="utf-8")
    return path
