"""Files with random damage: models, ExecuTorch's programs, plans and problems.

Invariant: what is made follows from the sound files and the generator alone.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_WORDS = (0, 1, 2, 3, 4, 7, 16, 127, 255, 65535, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e30)


def damaged_bytes(data: bytes, rng: random.Random, find: Callable[[bytes], list[tuple[int, int]]]) -> bytes:
    """A file with some of its tables, numbers or bytes changed, or its end cut off; seldom only weights."""
    spans = find(data)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        low, high = rng.choices(spans, [b - a for a, b in spans])[0]
        at = rng.randrange(low, high)
        kind = rng.randrange(8)
        if kind < 2:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at] = rng.randrange(256)
        elif kind < 5:
            _put(changed, at & ~3, struct.pack("<I", rng.choice(_WORDS)))
        elif kind == 5:
            _put(changed, at & ~3, struct.pack("<f", rng.choice(_FLOATS)))
        elif kind == 6:
            _put(changed, at & ~1, struct.pack("<H", rng.choice((0, 1, 4, 6, 8, 300, 65535))))
        elif rng.randrange(4) == 0:
            return bytes(changed[: rng.randrange(len(changed))])
        else:
            other = rng.choice(spans)[0]
            _put(changed, at & ~3, bytes(changed[other : other + rng.choice((4, 8, 32))]))
    return bytes(changed)


def _put(data: bytearray, at: int, value: bytes) -> None:
    data[at : min(at + len(value), len(data))] = value[: max(0, len(data) - at)]


def _program_parts(data: bytes) -> list[tuple[int, int]]:
    """A `.pte` without the middles of its constants, where damage only changes weights."""
    from npu_memplan.models.executorch.program import read_program

    spans, at = [], 0
    for method in read_program(data).methods:
        for delegate in sorted(method.delegates, key=lambda d: d.file_offset):
            blocks = bytes(delegate.data)
            start = blocks.find(b"weight_data")
            length = int.from_bytes(blocks[start + 16 : start + 20], "little") if start >= 0 else 0
            if length > 64:
                begin = delegate.file_offset + start + 48
                spans.append((at, begin))
                at = begin + length - 32
    return [(a, b) for a, b in [*spans, (at, len(data))] if b > a]


def _tables(data: bytes, largest: int = 256) -> list[tuple[int, int]]:
    """The file without the middles of its large buffers, where damage only changes weights."""
    import tflite

    spans, model = [], tflite.Model.GetRootAsModel(data, 0)
    for i in range(model.BuffersLength()):
        length = model.Buffers(i).DataLength()
        if length > largest:
            table = model.Buffers(i)._tab
            start = table.Vector(table.Offset(4))
            spans.append((start + 16, start + length - 16))
    result, at = [], 0
    for start, end in sorted(spans):
        result.append((at, start))
        at = end
    return [(a, b) for a, b in [*result, (at, len(data))] if b > a]


_ODD: tuple[object, ...] = (
    None, True, -1, 0, 1, 1.5, 1 << 31, (1 << 60) - 1, 1 << 60, 1 << 70, -(1 << 63), 1e300, "", "x", "[/nope]", "../x",
    "\u0000", "é", [], {}, [1, 10**9, 5], [[]], ["x"], {"x": 1}, "object", "npu", "sram", "optimal",
)  # fmt: skip


def damaged_json(text: str, rng: random.Random) -> str:
    """A JSON document with values changed, moved, repeated or left out, or damaged as text."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # it was damaged before
        return text
    kind = rng.randrange(20)
    if kind == 0:
        return text[: rng.randrange(len(text))]
    if kind == 1:
        at = rng.randrange(len(text))
        return text[:at] + chr(rng.randrange(1, 300)) + text[at + 1 :]
    if kind == 2:
        odd = ("NaN", "-Infinity", "9" * 5000, '"\\ud800"', "[" * 200_000, "[" * 500 + "]" * 500, "1e999")
        numbers = list(re.finditer(r"(?<=[\s:,\[])-?\d+(?=[,\]}\s])", text))
        found = rng.choice(numbers)
        return text[: found.start()] + rng.choice(odd) + text[found.end() :]
    return json.dumps(_changed(content, rng))


def _changed(document: Any, rng: random.Random) -> Any:
    """A document with some of its values changed, moved, emptied, repeated or left out."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(document))
        holder, key = rng.choice(places)
        what = rng.randrange(9)
        if what == 0:
            del holder[key]
        elif what == 1:
            other, place = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[place])) if place in _keys(other) else None
        elif what == 2 and type(holder[key]) is int:
            holder[key] += rng.choice((-1, 1, 16, 1 << 20, -(1 << 20), 1 << 40))
        elif what > 6:  # of the same type, so that more than the schema sees it
            alike = [h[k] for h, k in places if type(h[k]) is type(holder[key])]
            holder[key] = json.loads(json.dumps(rng.choice(alike)))
        elif what == 6 and isinstance(holder[key], (list, dict, str)):
            holder[key] = type(holder[key])()
        elif what == 3 and isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(holder[key])))
        else:
            holder[key] = rng.choice(_ODD)
        if not document:
            break
    return document


def _keys(holder: object) -> Sequence[object]:
    return list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()


def _places(value: object) -> Iterator[tuple[object, object]]:
    for key in _keys(value):
        yield value, key
        yield from _places(value[key])  # type: ignore[index]


def damaged_models(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """`count` `.tflite` files made of `files` in turn."""
    yield from _damaged(files, count, rng, folder / "m.tflite", _tables)


def damaged_programs(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """`count` `.pte` files made of `files` in turn."""
    yield from _damaged(files, count, rng, folder / "m.pte", _program_parts)


def _damaged(
    files: Sequence[Path], count: int, rng: random.Random, path: Path, find: Callable[[bytes], list[tuple[int, int]]]
) -> Iterator[tuple[str, Path]]:
    sources = [(f.name, f.read_bytes()) for f in files]
    for i in range(count):
        name, data = sources[i % len(sources)]
        path.write_bytes(damaged_bytes(data, rng, find))
        yield f"{i} of {name}", path


def damaged_plans(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """Compiled models (folders) whose plan.json is damaged."""
    homes = []
    for number, source in enumerate(files):
        home = folder / f"artifact{number}"
        shutil.copytree(source, home)
        homes.append((home, (source / "plan.json").read_text(encoding="utf-8")))
    for i in range(count):
        home, text = homes[i % len(homes)]
        (home / "plan.json").write_text(damaged_json(text, rng), encoding="utf-8", errors="surrogatepass")
        yield f"{i} of {files[i % len(homes)].name}", home


_BYTES = (
    b"\xff\xfe",
    b"\0",
    b"\x1b[2K\x1b[1A",
    b"/*",
    b'"',
    b"{",
    b"\n" * 3,
    b"0x" + b"9" * 5000,
    b'#include "/etc/passwd"\n',
)


def damaged_artifacts(
    files: Sequence[Path], count: int, rng: random.Random, folder: Path
) -> Iterator[tuple[str, Path]]:
    """Compiled models whose files are damaged, gone, more, or no files; links lead to `victim`."""
    case = folder / "artifact"
    for i in range(count):
        source = files[i % len(files)]
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(source, case)
        done = " and ".join(_damage_folder(case, rng) for _ in range(rng.choice((1, 1, 2))))
        yield f"{i} of {source.name}: {done}", case


def _damage_folder(case: Path, rng: random.Random) -> str:
    names = sorted(str(path.relative_to(case)) for path in case.rglob("*") if path.is_file() and not path.is_symlink())
    name, kind = rng.choice([*names, "plan.json", "report.html", "buffers.csv"]), rng.randrange(12)
    path = case / name
    plain = path.is_file() and not path.is_symlink()
    if kind < 4 and plain:
        data = path.read_bytes()
        if name == "plan.json" and kind < 3:
            text = damaged_json(data.decode("utf-8", "replace"), rng)
            path.write_text(text, encoding="utf-8", errors="surrogatepass")
        else:
            at = rng.randrange(len(data) + 1)
            path.write_bytes(data[:at] + rng.choice((*_BYTES, b"")) + data[at + rng.choice((0, 1, 100, 1 << 20)) :])
        return f"damaged {name}"
    if kind == 4 and (plain or not os.path.lexists(path)):
        path.write_bytes(b"")
        return f"emptied {name}"
    if kind == 5:
        odd = rng.choice((b"m\xff.c", b"\x1b[2K", b"a\nb", "é.csv".encode(), b"-rf", b"$(id)"))
        with open(os.path.join(os.fsencode(case), odd), "wb") as file:
            file.write(b"x")
        return f"added {odd!r}"
    place = path if kind < 9 else case / rng.choice(("src", "firmware", "x", "report.html", "manifest.sha256"))
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    put = rng.randrange(5)
    if put == 0:
        os.mkfifo(place)
    elif put == 1:
        place.mkdir()
    elif put == 2:
        return f"removed {place.relative_to(case)}"
    else:
        place.symlink_to(rng.choice(("../victim", "/dev/zero", "plan.json", "..", "../nowhere")))
    return f"put {('a pipe', 'a folder', '', 'a link', 'a link')[put]} at {place.relative_to(case)}"


def damaged_boards(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """Boards with values changed, moved, emptied, repeated or left out, or damaged as text."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    path = folder / "b.toml"
    for i in range(count):
        source = files[i % len(files)]
        text = source.read_text(encoding="utf-8")
        if rng.randrange(10) == 0:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(("", "\u0000", "\x1b[2K", "\ud800", "9" * 5000, "[" * 2000)) + text[at + 1 :]
        else:
            text = _toml_text(_changed(toml.loads(text), rng))
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        yield f"{i} of {source.name}", path


def _toml_text(document: Mapping[str, object]) -> str:
    return "".join(
        f"{json.dumps(key)} = {_toml_value(value)}\n" for key, value in document.items() if value is not None
    )


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml_value(v)}' for k, v in value.items() if v is not None)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(one) for one in value if one is not None)}]"
    return json.dumps(value, ensure_ascii=False).replace("\\u0000", "\\u0001")  # TOML has no zero character


def damaged_problems(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """Problems as JSON, and as CSV where a file is one."""
    for i in range(count):
        source = files[i % len(files)]
        text = source.read_text(encoding="utf-8")
        path = folder / f"p{source.suffix}"
        if source.suffix == ".json":
            text = damaged_json(text, rng)
        else:
            cells = re.split(r"([,\n])", text)
            for _ in range(rng.choice((1, 1, 2))):
                cells[rng.randrange(len(cells))] = rng.choice(("", "-1", "9" * 5000, "x", "[/nope]", '"', "1e3", "\n"))
            text = "".join(cells)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        yield f"{i} of {source.name}", path
