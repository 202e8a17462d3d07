"""The table "The files that a model passes" of docs/architecture.md is the way that a compile takes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import npu_memplan

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "architecture.md"
MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"
MOST_FILES = 14
BACK = {("search_programs", "extract_from"), ("search_programs", "plan")}  # for each program that the search makes


def listed_way() -> list[tuple[str, str]]:
    """The (file, function) pairs of the table, in its order."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## The files that a model passes") :].split("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", section, re.M)


def test_a_compile_passes_the_listed_functions_downwards(tmp_path: Path) -> None:
    way = listed_way()
    place = {(str(REPOSITORY / file), function): index for index, (file, function) in enumerate(way)}
    called: dict[int, None] = {}
    back = set()

    def place_of(frame: FrameType) -> int | None:
        return place.get((frame.f_code.co_filename, frame.f_code.co_name))

    def note_call(frame: FrameType, event: str, _: Any) -> None:
        index = place_of(frame)
        if event != "call" or index is None:
            return
        called.setdefault(index)
        caller = frame.f_back
        while caller is not None and place_of(caller) is None:
            caller = caller.f_back
        above = None if caller is None else place_of(caller)
        if above is not None and above > index:
            back.add((way[above][1], way[index][1]))

    sys.setprofile(note_call)
    try:
        npu_memplan.compile(
            MODEL, tmp_path / "made", accelerator="ethos-u55-128", pools={"sram": "64KiB"}, effort="quick", check=False
        )
    finally:
        sys.setprofile(None)
    assert [*called] == [*range(len(way))]
    assert back == BACK
    assert len({file for file, _ in way}) == len(way) <= MOST_FILES
