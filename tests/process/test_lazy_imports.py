"""A lazy import has the same names as an ordinary one in the end."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from npu_memplan.process.programs import python_child

_PROGRAM = """
import json, sys
if sys.argv[1] == "lazily":
    from npu_memplan.process.lazy_imports import import_schema_lazily
    import_schema_lazily()
import tflite
facts = {"finders": [type(finder).__name__ for finder in sys.meta_path]}
early = [tflite.Model.__name__, tflite.TensorType.INT8, tflite.Model.GetRootAsModel.__name__]
from tflite.SubGraph import SubGraph  # it imports modules of classes, which the package then has
early += [tflite.Tensor.__name__, tflite.SubGraph is SubGraph, hasattr(tflite, "absent")]
facts["early"] = early
facts["all"] = {name: type(value).__name__ for name, value in vars(tflite).items() if not name.startswith("_")}
facts["version"] = tflite.__version__
modules = sum(name.startswith("tflite.") for name in sys.modules)
print(json.dumps([facts, modules]))
"""


def read_facts(how: str) -> tuple[dict[str, Any], int]:
    """What an interpreter has of `tflite`."""
    done = subprocess.run(python_child(_PROGRAM, how), capture_output=True, text=True, check=True)
    facts, modules = json.loads(done.stdout)
    return facts, modules


def test_tflite_has_the_same_names_in_the_end() -> None:
    assert read_facts("lazily") == read_facts("at once")


def test_a_network_is_read_by_a_few_modules_of_tflite() -> None:
    program = """
import sys
from npu_memplan.process.lazy_imports import import_schema_lazily
import_schema_lazily()
import tflite
tflite.Model.GetRootAsModel, tflite.BuiltinOperator.ADD, tflite.TensorType.INT8
print(sum(name.startswith("tflite.") for name in sys.modules))
"""
    done = subprocess.run(python_child(program), capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20


def test_a_module_is_executed_when_it_is_used() -> None:
    program = """
import sys
from npu_memplan.process.lazy_imports import import_lazily
import_lazily({"email.charset"})
import email.charset
from email import charset
assert "CHARSETS" not in vars(charset)
print(charset.CHARSETS["us-ascii"], "CHARSETS" in vars(charset), type(sys.modules["email.charset"]).__name__)
"""
    done = subprocess.run(python_child(program), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["(None,", "None,", "None)", "True", "module"]


_CLASSES = """
import sys
if sys.argv[1] == "lazily":
    from npu_memplan.process.lazy_imports import compile_methods_late
    compile_methods_late()
from dataclasses import FrozenInstanceError, dataclass, replace

@dataclass(frozen=True, slots=True)
class Point:
    "A point."
    x: int
    y: tuple = ()

@dataclass
class Other(Point.__base__):
    "It changes."
    x: int

    def __eq__(self, other):
        return "own"

def say_error(act):
    try:
        act()
    except Exception as error:
        return type(error).__name__, str(error)

print(say_error(Point), say_error(lambda: Point(1, z=2)))
one, two = Point(1, (2,)), Point(x=1, y=(2,))
for _ in range(2):  # a first call, and one of the method that it made
    print(one == two, one == Point(3), one != two, one == 1, hash(one) == hash(two), {one: 5}[two], repr(one), str(two))
    print(say_error(lambda: setattr(one, "x", 2)), say_error(lambda: delattr(one, "y")))
print(replace(one, x=7), Other(1) == Other(2), say_error(lambda: hash(Other(1))), repr(Other(3)))
print([getattr(Point, name).__qualname__ for name in ("__eq__", "__hash__", "__setattr__", "__repr__", "__init__")])
"""


def test_late_methods_of_dataclasses_do_the_same() -> None:
    said = [
        subprocess.run(python_child(_CLASSES, how), capture_output=True, text=True, check=True).stdout
        for how in ("lazily", "at once")
    ]
    assert said[0] == said[1]
    assert "Point(x=1, y=(2,))" in said[0]
