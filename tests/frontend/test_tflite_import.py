"""A TFLite file becomes one module that says everything about its model."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu_memplan.ethosu.program.primfunc import from_primfunc
from npu_memplan.exactness import Claim, Exactness
from npu_memplan.frontend.attributes import HostOpsError, SourceOperator, operators_of, quantised_tensors
from npu_memplan.frontend.tflite.description import refusal_reasons, unsupported_reason, with_omitted_inputs
from npu_memplan.frontend.tflite.lifted import Imported, import_host_only, import_tflite
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.frontend.tflite.main_builder import MainBuilder
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.names import Names, legal_name
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela.worker import VelaError
from npu_memplan.vocabulary import is_npu
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

tvm = pytest.importorskip("tvm")
relax = tvm.relax

Shared = Callable[[str], Path]


def _calls(module: Any) -> list[str]:
    """Functions that main calls, in order; views by their operator's name."""
    found = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, tvm.ir.Call):
                name = value.op.name
                found.append(value.args[0].name_hint if name == "relax.call_tir" else name)
    return found


def _kinds(imported: Imported) -> list[str]:
    module = imported.module
    return ["npu" if is_npu(module[n]) else n for n in _calls(module) if not n.startswith("relax.")]


def test_a_model_wholly_on_the_npu_is_one_call(digits: Path) -> None:
    imported = import_tflite(digits, VelaOptions("ethos-u55-128"))
    source = read_network(digits.read_bytes())
    main = imported.module["main"]
    assert _kinds(imported) == ["npu"]
    assert [tuple(int(d) for d in p.ty.shape.values) for p in main.params] == [source.tensors[source.inputs[0]].shape]
    (given,) = quantised_tensors(main, "input")
    tensor = source.tensors[source.inputs[0]]
    assert (given.name, given.scale, given.zero_point) == (tensor.name, tensor.scale, tensor.zero_point)
    assert quantised_tensors(main, "state") == ()
    assert [(o.kind, o.on_npu) for o in operators_of(main)] == [(o.name, True) for o in source.cpu_operators]
    assert imported.vela is not None
    assert list(imported.vela.arena_bytes) == ["sram"]


def test_the_module_survives_its_text(digits: Path) -> None:
    imported = import_tflite(digits, host_ops=["SOFTMAX"])
    again = tvm.script.from_source(imported.module.script(show_meta=True))
    tvm.ir.assert_structural_equal(again, imported.module)
    assert quantised_tensors(again["main"], "output") == quantised_tensors(imported.module["main"], "output")


def test_operators_forced_to_the_host_say_so(shared_model: Shared) -> None:
    imported = import_tflite(shared_model("kws_ref_model"), host_ops=["softmax", "FULLY_CONNECTED"])
    assert _kinds(imported) == ["npu", "fully_connected", "softmax"]
    on_host = [(o.kind, o.reason) for o in operators_of(imported.module["main"]) if not o.on_npu]
    assert on_host == [
        ("FULLY_CONNECTED", "kept on the CPU by --host-ops"),
        ("SOFTMAX", "kept on the CPU by --host-ops"),
    ]


def test_host_operators_between_npu_calls_make_several_programs(shared_model: Shared) -> None:
    imported = import_tflite(shared_model("pretrainedResnet_quant"), host_ops=["ADD"])
    assert _kinds(imported) == ["npu", "add", "npu", "add_1", "npu", "add_2", "npu"]
    programs = [from_primfunc(imported.module[n]) for n in _calls(imported.module) if n.startswith("npu")]
    assert all(p.buffers[0].name == "input0" for p in programs)
    # A tensor that two consumers read is passed to both.
    arguments = [list(b.value.args[1].fields) for b in imported.module["main"].body.blocks[0].bindings
                 if isinstance(b.value, tvm.ir.Call)]  # fmt: skip
    assert len({a.name for group in arguments for a in group if isinstance(a, tvm.ir.Var)}) >= 7


def test_states_are_parameters_of_main(shared_model: Shared) -> None:
    imported = import_tflite(shared_model("trained_lstm_int8"))
    main = imported.module["main"]
    states = [str(s) for s in main.attrs["npu.states"]]
    assert [p.name for p in main.params][1:] == states
    assert [(s.name, s.zero_point) for s in quantised_tensors(main, "state")] == [
        ("tfl.pseudo_qconst", 0), ("tfl.pseudo_qconst1", 0)]  # fmt: skip
    assert [p.ty.dtype for p in main.params] == ["int8", "int8", "int16"]


def test_states_of_host_operators_too(shared_model: Shared) -> None:
    imported = import_tflite(shared_model("keyword_scrambled_8bit"))
    main = imported.module["main"]
    assert len(main.attrs["npu.states"]) == 7
    assert [s.zero_point for s in quantised_tensors(main, "state")] == [-50, -13, 25, -1, 37, 10, -10]
    kinds = _kinds(imported)
    assert kinds.count("npu") == 6
    assert kinds[-1] == "quantize"
    reasons = {o.kind: o.reason for o in operators_of(main) if not o.on_npu}
    assert reasons["SVDF"] == "Unsupported opType"
    assert reasons["QUANTIZE"].startswith("Unsupported dataType Int32")


def test_a_network_that_vela_has_compiled_is_imported_as_it_is(digits: Path) -> None:
    compiled = compile_tflite(digits.read_bytes(), VelaOptions("ethos-u65-256")).network
    imported = import_tflite(compiled, VelaOptions("ethos-u55-32"))
    assert imported.vela is None
    (name,) = [n for n in _calls(imported.module) if n.startswith("npu")]
    assert from_primfunc(imported.module[name]).accelerator.name == "ethos-u65-256"


def test_everything_on_the_host(digits: Path) -> None:
    imported = import_host_only(digits)
    assert not any(is_npu(f) for f in imported.module.functions.values())
    assert not any(o.on_npu for o in operators_of(imported.module["main"]))


def test_reshapes_on_the_host_are_views() -> None:
    b = ModelBuilder()
    x, y, z = b.tensor((1, 8), "int8", 0.5, 3), b.tensor((2, 4), "int8", 0.5, 3), b.tensor((2, 4), "int8", 0.5, 3)
    b.operator("RESHAPE", [x, b.constant(np.array([2, 4], np.int32))], [y])
    b.operator("ADD", [y, y], [z], "AddOptions")
    assert _calls(import_host_only(b.made([x], [z]).finish()).module) == ["relax.reshape", "add"]


def test_several_inputs_and_outputs() -> None:
    b = ModelBuilder()
    x, w = b.tensor((1, 4, 4, 8), "int8", 0.5), b.tensor((1, 4, 4, 8), "int8", 0.25)
    s, d = b.tensor((1, 4, 4, 8), "int8", 0.75), b.tensor((1, 4, 4, 8), "int8", 0.75)
    b.operator("ADD", [x, w], [s], "AddOptions")
    b.operator("SUB", [s, w], [d], "SubOptions")
    imported = import_tflite(b.made([x, w], [s, d]).finish())
    main = imported.module["main"]
    assert [q.scale for q in quantised_tensors(main, "output")] == [0.75, 0.75]
    assert len(main.params) == 2
    assert len(main.ret_ty.fields) == 2
    assert _kinds(imported) == ["npu"]


# --- errors ---------------------------------------------------------------------------------


def _float_model() -> bytes:
    b = ModelBuilder()
    x, y, z = b.tensor((1, 4), "float32"), b.tensor((1, 4), "float32"), b.tensor((1, 4), "float32")
    w = b.constant(np.ones((4, 4), np.float32))
    bias = b.constant(np.ones(4, np.float32))
    b.operator("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions")
    b.operator("EXP", [y], [z], "ExpOptions")
    return b.made([x], [z]).finish()


@pytest.mark.parametrize("read", [import_tflite, build_module])
def test_a_float_model_is_host_code_and_a_note(read: Callable[..., Imported]) -> None:
    imported = read(_float_model(), name="f.tflite")
    note = "f.tflite computes in floating point throughout: quantise it to int8 for the NPU"
    assert imported.notes == (note,)
    told = operators_of(imported.module["main"])
    assert [(o.kind, o.on_npu, o.claim.exactness) for o in told] == [
        ("FULLY_CONNECTED", False, Exactness.EXACT),
        ("EXP", False, Exactness.ULPS),
    ]


def test_operators_that_neither_side_can_run_are_all_named() -> None:
    b = ModelBuilder()
    x, y, z = (b.tensor((1, 8), "int16", 0.5) for _ in range(3))
    b.operator("FLOOR", [x], [y])
    b.operator("RANDOM_UNIFORM", [y], [z], "RandomOptions")
    with pytest.raises(UnsupportedModelError) as caught:
        import_tflite(b.made([x], [z]).finish(), name="odd.tflite")
    text = str(caught.value)
    assert text.startswith("odd.tflite has 2 operators that neither the NPU nor the host can run:")
    for part in ("FLOOR", "for plain numbers only", "int16[1, 8]", "no host operator RANDOM_UNIFORM", "NPU: "):
        assert part in text


def test_operators_refused_for_one_reason_are_counted_and_details_have_them_all() -> None:
    b = ModelBuilder()
    tensors = [b.tensor((1, 8), "int16", 0.5) for _ in range(31)]
    for source, target in itertools.pairwise(tensors):
        b.operator("FLOOR", [source], [target])
    with pytest.raises(UnsupportedModelError) as caught:
        import_tflite(b.made([tensors[0]], [tensors[-1]]).finish(), name="odd.tflite")
    text = str(caught.value)
    assert "  30 x FLOOR: operators 0, 1, 2, 3, 4, 5, 6, 7 and 22 more\n    tensors of 0: " in text
    assert len(text.splitlines()) < 8
    assert "--verbose lists every operator" in text
    listed = [line.strip() for line in caught.value.details.splitlines() if "FLOOR" in line]
    assert listed == [f"operator {n} FLOOR" for n in range(30)]


@pytest.mark.parametrize(("name", "message"), [
    ("SOFTMIN", "--host-ops names 'SOFTMIN', but digits.tflite has no such operator; it has: "),
    ("LSTM", "--host-ops names 'LSTM', but digits.tflite has no such operator; it has: "),
])  # fmt: skip
def test_host_operators_that_the_model_lacks(digits: Path, name: str, message: str) -> None:
    with pytest.raises(HostOpsError) as caught:
        import_tflite(digits, host_ops=["SOFTMAX", name])
    assert str(caught.value).startswith(message)


def test_forcing_what_the_host_cannot_do_is_an_error() -> None:
    """Maxima of int16 along an axis are found on the NPU; no host operator does it."""
    x, y = TensorSpec((1, 4, 4, 8), "int16", 0.001), TensorSpec((1, 1, 1, 8), "int16", 0.001)
    model = single_operator("REDUCE_MAX", [x, constant([1, 2])], [y], "ReducerOptions", 2, KeepDims=True).finish()
    assert _kinds(import_tflite(model)) == ["npu"]
    with pytest.raises(UnsupportedModelError) as caught:
        import_tflite(model, host_ops=["REDUCE_MAX"], name="p")
    assert "NPU: kept on the CPU by --host-ops\n    host: " in str(caught.value)


def test_omitted_inputs_keep_their_positions(shared_model: Shared) -> None:
    """Vela drops the LSTM's nine omitted inputs when it leaves it to the CPU."""
    source = read_network(shared_model("trained_lstm_int8").read_bytes())
    options = VelaOptions(ignore_operators=("UNIDIRECTIONAL_SEQUENCE_LSTM",))
    compiled = read_network(compile_tflite(shared_model("trained_lstm_int8").read_bytes(), options).network)
    assert -1 not in compiled.operators[0].inputs
    restored = with_omitted_inputs(compiled, source).operators[0]
    original = source.operators[0]
    assert [i < 0 for i in restored.inputs] == [i < 0 for i in original.inputs]
    assert [compiled.tensors[i].name for i in restored.inputs if i >= 0] == [
        source.tensors[i].name for i in original.inputs if i >= 0
    ]


# --- small parts ------------------------------------------------------------------------------


def test_velas_reasons_are_found_in_what_it_prints() -> None:
    found = refusal_reasons(
        [
            "Warning (supported operators) operator: QUANTIZE, ofm: 'q'",
            "Reason: Unsupported dataType Int32",
            "32-bit feature-maps are not supported.",
            "Warning (supported operators) operator: SVDF, ofm: 'a_act'",
            "Reason: Unsupported opType",
            "Warning: something else",
            "not a reason",
        ]
    )
    assert found == {
        ("QUANTIZE", "q"): "Unsupported dataType Int32 32-bit feature-maps are not supported.",
        ("SVDF", "a_act"): "Unsupported opType",
    }
    assert unsupported_reason(found, "SVDF", "a") == "Unsupported opType"
    assert unsupported_reason(found, "QUANTIZE", "other") == found["QUANTIZE", "q"]
    assert unsupported_reason(found, "ADD", "q") == ""


def test_names_are_legal_and_unique() -> None:
    table = Names()
    wanted = [
        "a/b;model/dense/BiasAdd",
        "serving_default_x:0",
        "9lives",
        "",
        "lambda",
        "model/dense/BiasAdd",
        "ü",
        "model/depthwise_conv2d/BiasAdd/ReadVariableOp/resource1",
        "x" * 60,
    ]
    assert [table.unique_name(legal_name(w)) for w in wanted] == [
        "model_dense_BiasAdd", "serving_default_x_0", "lives", "tensor", "tensor_1",
        "model_dense_BiasAdd_1", "tensor_2", "conv2d_BiasAdd_ReadVariableOp_resource1", "x" * 48,
    ]  # fmt: skip


def test_operators_of_a_module_are_plain_data(digits: Path) -> None:
    imported = import_tflite(digits, host_ops=["SOFTMAX"])
    last = operators_of(imported.module["main"])[-1]
    assert last == SourceOperator(
        last.name, "SOFTMAX", False, "kept on the CPU by --host-ops", Claim(Exactness.EXACT, "tflite-micro")
    )


def test_the_command_compiles_what_the_library_compiles(digits: Path, tmp_path: Path) -> None:
    """The command starts Vela early and imports less of TVM: another process, the same bytes."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    compile_model(digits, CompileOptions(host_ops=("SOFTMAX",)), tmp_path / "library")
    command = [sys.executable, "-m", "npu_memplan.cli", "compile", str(digits), "--host-ops", "SOFTMAX"]
    environment = {k: v for k, v in os.environ.items() if k != "TVM_DEVICE_BACKEND_AUTOLOAD"}
    subprocess.run([*command, "-o", str(tmp_path / "command")], check=True, capture_output=True, env=environment)
    made = sorted(p.relative_to(tmp_path / "library") for p in (tmp_path / "library").rglob("*") if p.is_file())
    assert made
    for path in made:
        assert (tmp_path / "command" / path).read_bytes() == (tmp_path / "library" / path).read_bytes(), path


def test_an_error_in_the_middle_leaves_no_block_open(capfd: pytest.CaptureFixture[str]) -> None:
    """Else TVM warns on stderr, beside the refusal."""

    def refuse(_: object) -> None:
        raise UnsupportedModelError("an operator")

    network = read_network((Path(__file__).parents[1] / "models" / "hello_world_int8.tflite").read_bytes(), "hello")
    with pytest.raises(UnsupportedModelError):
        MainBuilder(network).build(refuse, {})
    gc.collect()
    assert capfd.readouterr().err == ""


def test_an_output_that_velas_stream_leaves_out_is_refused_by_name(tmp_path: Path) -> None:
    """Vela takes a padding into the convolution that reads it, though it is an output, too; `auto` lowers it itself."""
    b = ModelBuilder()
    x = b.tensor((1, 3, 6, 12), "int8", 0.06, -128)
    padded, y = b.tensor((1, 3, 12, 12), "int8", 0.06, -128), b.tensor((1, 3, 6, 36), "int8", 0.06, -128)
    b.operator("PAD", [x, b.constant(np.array([[0, 0], [0, 0], [6, 0], [0, 0]], np.int32))], [padded], "PadOptions", 2)
    weights = b.constant(np.ones((1, 1, 2, 36), np.int8), [0.01] * 36, axis=3)
    steps = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 6, "DilationHFactor": 1, "DepthMultiplier": 3}
    bias = b.constant(np.zeros(36, np.int32), [0.0006] * 36)
    b.operator("DEPTHWISE_CONV_2D", [padded, weights, bias], [y], "DepthwiseConv2DOptions", 3, Padding=1, **steps)
    model = b.made([x], [padded, y]).finish()
    with pytest.raises(VelaError, match="nothing in what Vela made of padded makes tensor 't1'"):
        import_tflite(model, VelaOptions("ethos-u65-256"), (), "padded")
