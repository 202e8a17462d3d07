"""What a command leaves out of TVM's import is left out of that alone."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from npu_memplan.process.programs import python_child

_PROGRAM = """
import json, sys
if sys.argv[1] == "command":
    from npu_memplan.frontend.start import _import_less_of_tvm
    _import_less_of_tvm()
import tvm
import tvm.relax
facts = {"attribute": tvm.runtime.disco is None, "kept": sorted(name for name, m in sys.modules.items() if m is None)}
try:
    import tvm.runtime.disco as disco
    facts["later"] = disco is not None
except Exception as error:
    facts["later"] = type(error).__name__
facts["functions"] = {
    name: sorted(vars(module)) for name, module in sys.modules.items()
    if name.startswith("tvm.") and name.endswith("_ffi_api") and "disco" not in name
}
add = tvm.ir.Op.get("relax.add")
facts["lazy"] = [add.get_attr("FLegalize") is None, "tvm.topi.nn" in sys.modules]
facts["lazy"].append("ml_dtypes._finfo" in sys.modules)
from tvm import relax
from npu_memplan.frontend.legalize import legalize_host
value = relax.Var("value", relax.TensorType((4,), "float32"))
builder = relax.BlockBuilder()
with builder.function("main", [value]):
    with builder.dataflow():
        result = builder.emit_output(builder.emit(relax.op.add(value, value)))
    builder.emit_func_output(result)
legal = legalize_host(builder.get(), {}, "model")
facts["constant"] = str(relax.const(1.0, "float32"))
facts["type"] = str(sys.modules["ml_dtypes"].bfloat16)
facts["calls"] = sorted(str(name) for name in legal.functions)
facts["rules"] = add.get_attr("FLegalize") is not None
facts["names"] = sorted(vars(tvm.topi))
facts["finders"] = [type(finder).__name__ for finder in sys.meta_path]
print(json.dumps(facts))
"""


def read_facts(whose: str) -> dict[str, Any]:
    """What an interpreter has of TVM."""
    done = subprocess.run(python_child(_PROGRAM, whose), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_command_and_the_library_have_the_same_tvm_in_the_end() -> None:
    command, library = read_facts("command"), read_facts("library")
    assert command["kept"] == []
    assert (command.pop("lazy"), library.pop("lazy")) == ([True, False, False], [False, True, True])
    functions = library.pop("functions")
    for module, names in command.pop("functions").items():  # those of lazy modules are not there yet
        assert names == functions[module]
    assert command == library
    assert command["rules"]
    assert len(command["calls"]) == 2
