"""`new-firmware --cmsis-pack`: what the description names is there, builds, and computes what the reference does.

CMSIS-Toolbox is on no package index. The description is read here as its specification says: sources, include paths,
one header in front of all sources, conditions. `OPEN_CMSIS_PACK` names a folder with clones of Open-CMSIS-Pack-Spec and
devtools, whose schemas then hold the description and the layer.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from npu_memplan import compile as compile_model
from npu_memplan.target_data import load_board
from tests.firmware.test_new_firmware import DIGITS, U55, U65, call, expected

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("tools")]
SCHEMAS = os.environ.get("OPEN_CMSIS_PACK", "")


@dataclass(frozen=True)
class Pack:
    """A pack where a user unpacked it."""

    folder: Path
    root: ElementTree.Element

    @property
    def components(self) -> dict[tuple[str, ...], ElementTree.Element]:
        found = list(self.root.iter("component"))
        named = {tuple(part.attrib[key] for key in ("Cclass", "Cgroup", "Csub")): part for part in found}
        assert len(named) == len(found)
        return named

    def files(self, category: str) -> Iterator[Path]:
        for file in self.root.iter("file"):
            if file.attrib["category"] == category:
                yield self.folder / file.attrib["name"]

    def layer(self) -> str:
        (layer,) = self.root.iter("clayer")
        return (self.folder / layer.attrib["path"] / layer.attrib["file"]).read_text(encoding="utf-8")


def pack_for(board: str, tmp_path: Path) -> Pack:
    """Written, zipped as NAME.pack is, and unpacked elsewhere."""
    project = tmp_path / "fw"
    done = call("new-firmware", project, "--board", board, "--cmsis-pack")
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile(tmp_path / "the.pack", "w") as archive:
        for path in sorted(project.rglob("*")):
            archive.write(path, path.relative_to(project))
    with zipfile.ZipFile(tmp_path / "the.pack") as archive:
        archive.extractall(tmp_path / "unpacked")
    (description,) = (tmp_path / "unpacked").glob("*.pdsc")
    root = ElementTree.parse(description).getroot()
    vendor, name = (root.findtext(key) for key in ("vendor", "name"))
    assert description.name == f"{vendor}.{name}.pdsc"
    return Pack(tmp_path / "unpacked", root)


def compile_and_link(pack: Pack, cpu: str) -> Path:
    """Each component's sources by what the pack says alone; the flags are the layer's."""
    built = pack.folder / "built"
    built.mkdir()
    first = built / "Pre_Include_Global.h"
    first.write_text("\n".join(text.text or "" for text in pack.root.iter("Pre_Include_Global_h")) + "\n")
    includes = sorted({*pack.files("include"), *(path.parent for path in pack.files("header"))})
    flags = re.findall(r"^ +C: \[(.*)\]", pack.layer(), re.M)[0].split(", ")
    linked = re.findall(r"^ +Link: \[(.*)\]", pack.layer(), re.M)[0].replace('"', "").split(", ")
    gcc = ["arm-none-eabi-gcc", f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=hard", "-O2", "-std=c11"]
    objects = []
    for source in pack.files("source"):
        objects.append(built / f"{source.stem}.o")
        more = [*flags, "-Wall", "-Wextra", "-Werror", "-include", str(first), *(f"-I{path}" for path in includes)]
        run([*gcc, *more, "-c", str(source), "-o", str(objects[-1])])
    (script,) = pack.files("linkerScript")
    elf = built / "firmware.elf"
    run([*gcc, *linked, f"-T{script}", *map(str, objects), "-lm", "-o", str(elf)])
    return elf


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("board", [U55, U65])
def test_what_the_pack_says_builds_and_computes_what_the_reference_does(board: str, tmp_path: Path) -> None:
    pack = pack_for(board, tmp_path)
    elf = compile_and_link(pack, load_board(board).cpu)
    ran = call("run", "--elf", elf, "--board", board)
    assert ran.exit_code == 0, ran.output
    assert f"output {expected()}" in ran.output


def test_everything_that_is_named_is_there(tmp_path: Path) -> None:
    pack = pack_for(U55, tmp_path)
    named = {pack.folder / file.attrib["name"] for file in pack.root.iter("file")}
    assert len(named) > 15
    assert all(path.exists() for path in named)
    conditions = {condition.attrib["id"] for condition in pack.root.iter("condition")}
    assert {part.attrib["condition"] for part in pack.components.values()} == conditions
    for rule in pack.root.iter("require"):
        assert rule.attrib.get("condition") in (*conditions, None)
        if "Csub" in rule.attrib:
            assert tuple(rule.attrib[key] for key in ("Cclass", "Cgroup", "Csub")) in pack.components
    listed = re.findall(r"- component: NpuMemplan::(.*)", pack.layer())
    assert [tuple(text.split(":")) for text in listed] == list(pack.components)


def test_constants_as_files_are_refused(tmp_path: Path) -> None:
    compile_model(DIGITS, tmp_path / "model", board=U55, incbin=True)
    done = call("new-firmware", tmp_path / "fw", "--board", U55, "--cmsis-pack", "--model", tmp_path / "model")
    assert "leave out --incbin" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(not SCHEMAS, reason="OPEN_CMSIS_PACK names no clones of the schemas")
def test_the_schemas_hold(tmp_path: Path) -> None:
    xmlschema, jsonschema, yaml = (pytest.importorskip(name) for name in ("xmlschema", "jsonschema", "yaml"))
    pack = pack_for(U55, tmp_path)
    schema = xmlschema.XMLSchema(str(Path(SCHEMAS) / "Open-CMSIS-Pack-Spec" / "schema" / "PACK.xsd"))
    schema.validate(str(next(pack.folder.glob("*.pdsc"))))
    folder = Path(SCHEMAS) / "devtools" / "tools" / "projmgr" / "schemas"
    every = json.loads((folder / "common.schema.json").read_text())
    layer = yaml.safe_load(pack.layer())
    form = {"layer": {"$ref": "#/definitions/LayerDescType"}}
    jsonschema.validate(layer, {"definitions": every["definitions"], "properties": form, "required": ["layer"]})
