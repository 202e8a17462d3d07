"""`compile` tries what it claims: differences are found, named and replaced; what is not tried says so."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npu_memplan as nm
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import NOT_REQUESTED, CheckResult, CheckVerdict, FirstDifference, Operator
from npu_memplan.checking import claims, other_outputs
from npu_memplan.checking import claims as checking
from npu_memplan.checking.judge import (
    CheckMode,
    CheckModeError,
    check_mode,
    is_right,
    likely_kinds,
    with_result,
    work_of,
)
from npu_memplan.checking.sampling import draw_sample, works_of
from npu_memplan.ethosu import weight_codec
from npu_memplan.exactness import Claim, Exactness
from npu_memplan.frontend.tflite import description
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from npu_memplan.process.incidents import STRICT
from npu_memplan.report.text.compile_result import result_texts
from tests.exactness.test_doubts import select_of_reshaped
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY
from tests.support.saving import save
from tests.support.sliced_batch import split_then
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator
from tests.support.torch_digits import needs_torch, quantised_program

KWS = REPOSITORY / "tests" / "models" / "kws_ref_model.tflite"


@pytest.fixture
def wrong_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose stream by Vela is wrong, and nothing that keeps it from Vela."""
    monkeypatch.setattr(description, "DOUBTED", ())
    path = save(tmp_path / "wrong.tflite", split_then("CONV_2D", batch=2))
    return path


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults are told, not raised."""
    monkeypatch.setenv(STRICT, "0")


def test_a_right_program_is_checked_on_two_inputs(tmp_path: Path) -> None:
    made = nm.compile(KWS, tmp_path / "out", check=True)
    check = made.check
    assert check.verdict is CheckVerdict.EQUAL
    assert check.inputs == ("random:0", "extreme")
    assert (check.elements, check.mismatches, check.given_up) == (24, 0, ())
    assert check.reference == "tflite-micro"
    assert check.reference_version
    assert result_texts(made)[0].endswith("checked on 2 inputs (NPU model and host C)")
    assert Artifact.load(tmp_path / "out") == made


def test_the_same_model_gives_the_same_bytes(wrong_stream: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        nm.compile(wrong_stream, tmp_path / name, check=True)
    for file in ("plan.json", "memory.txt"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_other_producer_replaces_a_wrong_stream(wrong_stream: Path, tmp_path: Path) -> None:
    made = nm.compile(wrong_stream, tmp_path / "out", check=True)
    assert made.check.verdict is CheckVerdict.EQUAL
    assert made.target.npu_compiler == "tvm"
    (gone,) = made.check.given_up
    assert gone.flags == ("--npu-compiler", "vela")
    assert gone.difference.kind == "CONV_2D"
    assert gone.difference.operator == 1
    assert gone.difference.mismatches > 0
    (note,) = (note for note in made.notes if "was taken" in note)
    assert note.startswith("--npu-compiler tvm was taken: in the program of --npu-compiler vela operator 1 CONV_2D")
    assert Artifact.load(tmp_path / "out") == made
    again = nm.compile(wrong_stream, tmp_path / "again", check=True, npu_compiler="tvm")
    sources = sorted((tmp_path / "again" / "src").iterdir())
    assert [p.name for p in sources] == sorted(p.name for p in (tmp_path / "out" / "src").iterdir())
    assert all(p.read_bytes() == (tmp_path / "out" / "src" / p.name).read_bytes() for p in sources)
    assert again.check.given_up == ()


def test_a_named_producer_is_kept_and_the_operator_goes_to_the_host(wrong_stream: Path, tmp_path: Path) -> None:
    made = nm.compile(wrong_stream, tmp_path / "out", check=True, npu_compiler="vela")
    assert made.check.verdict is CheckVerdict.EQUAL
    assert (made.target.npu_compiler, made.target.host_ops) == ("vela", ("CONV_2D",))
    assert [o.agent.value for o in made.operators if o.kind == "CONV_2D"] == ["host"]


def test_an_unproven_operator_that_is_wrong_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is claimed of Vela's SELECT_V2, but a result that is right is better."""
    monkeypatch.setattr(description, "DOUBTED", ())
    path = save(tmp_path / "model.tflite", select_of_reshaped(1))
    made = nm.compile(path, tmp_path / "out", accelerator="ethos-u85-256", check=True)
    assert (made.check.verdict, made.target.npu_compiler) == (CheckVerdict.EQUAL, "tvm")
    assert made.check.given_up[0].difference.kind == "SELECT_V2"


def _table_then(images: int) -> bytes:
    """LOGISTIC, whose table by Vela is a step off, a split, a convolution, whose stream is wrong for two images."""
    b, rng = ModelBuilder(), np.random.default_rng(1)
    shape = (images, 6, 8, 16)
    x, y = b.tensor(shape, "int8", 1 / 128), b.tensor(shape, "int8", 1 / 256, -128)
    b.operator("LOGISTIC", [x], [y])
    parts = [b.tensor((*shape[:3], 8), "int8", 1 / 256, -128) for _ in range(2)]
    b.operator("SPLIT", [b.constant(np.array(3, np.int32)), y], parts, "SplitOptions", NumSplits=2)
    weights = b.constant(rng.integers(-127, 128, (3, 1, 3, 8)).astype(np.int8), 0.01, axis=0)
    z = b.tensor((*shape[:3], 3), "int8", 0.01, -5)
    bias = b.constant(np.zeros(3, np.int32), 0.01 / 256)
    window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    b.operator("CONV_2D", [parts[1], weights, bias], [z], "Conv2DOptions", **window)
    return b.made([x], [z]).finish()


@pytest.mark.parametrize(("images", "given_up"), [(1, []), (2, ["CONV_2D"])])
def test_what_is_behind_a_claimed_difference_is_judged(
    images: int, given_up: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that LOGISTIC claims does not excuse the convolution behind it."""
    monkeypatch.setattr(description, "DOUBTED", ())
    path = save(tmp_path / "m.tflite", _table_then(images))
    made = nm.compile(path, tmp_path / "out", check=True, npu_compiler="vela")
    assert made.check.verdict is CheckVerdict.AS_CLAIMED
    assert made.check.first is not None
    assert made.check.first.kind == "LOGISTIC"
    assert [gone.difference.kind for gone in made.check.given_up] == given_up


@pytest.mark.usefixtures("lenient")
def test_where_nothing_is_right_nothing_is_written(
    wrong_stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_TRIED", 0)
    what = r"NOT exact: .* first in operator 1 CONV_2D 't4' .*; nothing is written"
    with pytest.raises(nm.InternalError, match=what):
        nm.compile(wrong_stream, tmp_path / "out", check=True)
    assert not (tmp_path / "out").exists()
    made = nm.compile(wrong_stream, tmp_path / "out", check=False)  # as the message says
    found = checking.check_results(tmp_path / "out", made, wrong_stream)
    assert found.verdict is CheckVerdict.DIFFERS
    assert found.first is not None
    assert (found.first.kind, found.first.name, found.first.input) == ("CONV_2D", "t4", "random:0")


@pytest.mark.usefixtures("lenient")
def test_at_last_all_operators_go_to_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NPU has more kinds than programs are tried."""
    _spoil_scales(monkeypatch)
    monkeypatch.setattr(claims, "_TRIED", 1)
    model = save(tmp_path / "conv.tflite", split_then("CONV_2D", batch=1))
    made = nm.compile(model, tmp_path / "out", check=True, npu_compiler="tvm")
    assert made.check.verdict is CheckVerdict.EQUAL
    assert made.npu_operations == 0
    assert len(made.check.given_up) == 1


def test_programs_that_are_all_wrong_are_named() -> None:
    operators = (Operator("y", "CONV_2D", Agent.NPU, claim=Claim(Exactness.EXACT)),)
    first = FirstDifference("random:0", 0, "CONV_2D", "y", 4, 1, 2.0, "LSB")
    wrong = CheckResult(CheckVerdict.DIFFERS, reference="tflite-micro", elements=4, mismatches=1, first=first)

    def made(options: CompileOptions) -> claims.CheckedProgram[str]:
        return claims.CheckedProgram("", options, options.npu_compiler, operators, wrong)

    options = CompileOptions()
    with pytest.raises(
        nm.InternalError, match=r"nor is that of --npu-compiler tvm, --npu-compiler vela --host-ops CON"
    ):
        claims.right_program(made(replace(options, npu_compiler="vela")), options, made)
    own = replace(options, operators=("own.py",))
    with pytest.raises(claims.WrongOperatorError, match="CONV_2D 'y': 1 of 4 elements differ"):
        claims.right_program(made(replace(own, npu_compiler="vela")), own, made)


@pytest.mark.parametrize(
    ("agent", "exactness", "most", "right"),
    [
        (Agent.NPU, Exactness.UNPROVEN, 106.0, False),
        (Agent.NPU, Exactness.UNPROVEN, 1.0, True),
        (Agent.NPU, Exactness.STEP, 106.0, True),
        (Agent.HOST, Exactness.UNPROVEN, 106.0, True),
    ],
)
def test_where_operators_cannot_be_told_apart_any_of_them_may_be_wrong(
    agent: Agent, exactness: Exactness, most: float, right: bool
) -> None:
    """A network with variables is not divided: its difference has no operator."""
    operators = (
        Operator("v", "ASSIGN_VARIABLE", agent, claim=Claim(exactness)),
        Operator("y", "ADD", Agent.NPU, claim=Claim(Exactness.EXACT)),
    )
    first = FirstDifference("random:0", elements=52, mismatches=7, max_abs_diff=most, unit="LSB")
    found = CheckResult(CheckVerdict.AS_CLAIMED, reference="tflite-micro", elements=52, mismatches=7, first=first)
    assert is_right(operators, found) is right


def _spoil_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shift in the scale tables of native lowering is one too small."""
    encode = weight_codec.encode_scales
    monkeypatch.setattr(
        weight_codec, "encode_scales", lambda biases, scales, shifts: encode(biases, scales, [s - 1 for s in shifts])
    )


@pytest.mark.usefixtures("lenient")
def test_a_sabotaged_lowering_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil_scales(monkeypatch)
    model = save(tmp_path / "conv.tflite", split_then("CONV_2D", batch=1))
    made = nm.compile(model, tmp_path / "out", check=True, npu_compiler="tvm")
    assert made.check.verdict is CheckVerdict.EQUAL
    assert made.target.host_ops == ("CONV_2D",)
    assert [gone.difference.kind for gone in made.check.given_up] == ["CONV_2D"]


def test_an_operation_that_the_npu_model_refuses_goes_to_the_host(tmp_path: Path) -> None:
    """Vela's clamp of uint8 has a least value above its greatest: the operation, and so the operator, is known."""
    first = FirstDifference("random:0", stopped="operation 3 (POOL ...): ...", operator=0, kind="RELU", name="y")
    made = nm.compile(_relu(tmp_path), tmp_path / "out", npu_compiler="vela")
    assert likely_kinds(made.operators, first) == ("RELU",)
    assert likely_kinds(made.operators, replace(first, operator=-1)) == ("RELU",)
    told = with_result(made, CheckResult(CheckVerdict.DIFFERS, reference="tflite-micro", first=first))
    assert told.operators[0].claim.exactness is Exactness.DIFFERS
    assert "NOT exact: the run on input random:0 was stopped: operation 3" in result_texts(told)[0]


def test_no_check_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu_memplan.checking.judge.run_in_worker", lambda *_: pytest.fail("it was run"))
    done = invoke("compile", KWS, "-o", tmp_path / "out", "--no-check")
    text = " ".join(done.stdout.split())
    assert "13 operators, all expected exact (not run) against tflite-micro: the check is off" in text
    check = Artifact.load(tmp_path / "out").check
    assert (check.verdict, check.reason) == (CheckVerdict.NOT_CHECKED, "the check is off")


def _reason(tmp_path: Path, model: Path, **options: Any) -> str:
    made = nm.compile(model, tmp_path / "not_checked", check=True, **options)
    assert made.check.verdict is CheckVerdict.NOT_CHECKED
    assert made.check.reason in result_texts(made)[0]
    return made.check.reason


def test_what_cannot_be_checked_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "RELU" in _reason(tmp_path / "external", _relu(tmp_path), external={"RELU": None}, accelerator="none")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "no C compiler found" in _reason(tmp_path / "compiler", KWS)


def test_a_reference_that_is_not_installed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    hidden = tmp_path / "hidden" / "tflite_micro"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setattr(sys, "path", [str(hidden.parent), *sys.path])
    assert "pip install 'npu_memplan[reference]'" in _reason(tmp_path, KWS)


@pytest.mark.usefixtures("lenient")
def test_c_that_ends_its_process_does_not_end_the_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = checking.write_artifact

    def crashing(compiled: Any, folder: Path) -> Artifact:
        made = write(compiled, folder)
        source = folder / "src" / f"{made.name}.c"
        text = source.read_text()
        body = text.index("{", text.index(f"int32_t {made.name}_run(")) + 1
        source.write_text("#include <stdlib.h>\n" + text[:body] + " abort();" + text[body:])
        return made

    monkeypatch.setattr(checking, "write_artifact", crashing)
    with pytest.raises(nm.InternalError, match="was stopped: the compiled C ended with SIGABRT; nothing is written"):
        nm.compile(_relu(tmp_path), tmp_path / "out", check=True, accelerator="none")


def _relu(tmp_path: Path) -> Path:
    x, y = TensorSpec((1, 8), "int8", 0.1, 3), TensorSpec((1, 8), "int8", 0.1, 3)
    path = save(tmp_path / "relu.tflite", single_operator("RELU", [x], [y]).finish())
    return path


def test_much_work_is_not_done_unasked(tmp_path: Path) -> None:
    made = nm.compile(KWS, tmp_path / "out")
    work = work_of(made)
    assert work.too_much(2) == ""
    found = work.units_of_work(2)
    assert work.units_of_work(1) < found
    assert f"{found:,} work units" in work.too_much(2, limit=found - 1)
    unasked = checking.check_results(tmp_path / "out", made, KWS, CheckMode.AUTO, limit=1)
    assert unasked.verdict is CheckVerdict.NOT_CHECKED
    assert "--check does it" in unasked.reason
    less = checking.check_results(tmp_path / "out", made, KWS, CheckMode.AUTO, limit=found - 1)
    assert less.inputs == ("random:0",)


def _limit_to_samples(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setenv("NPU_MEMPLAN_CHECK", "auto")
    for name, module in itertools.product(("LIMIT", "LIMIT_OF_SEARCHES"), (claims, other_outputs)):
        monkeypatch.setattr(module, name, limit)


def test_of_a_network_that_is_too_much_work_a_sample_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(tmp_path / "convs.tflite", _convolutions((8, 8, 16, 4)))
    for accelerator, work in (("ethos-u55-256", "MACs in 3 NPU operations"), ("none", "3 host calls of about")):
        options = {"accelerator": accelerator, "npu_compiler": "tvm"}
        whole = nm.compile(model, tmp_path / "whole", check=False, force=True, **options)
        _limit_to_samples(monkeypatch, work_of(whole).units_of_work(1) // 2)
        made = nm.compile(model, tmp_path / "out", force=True, **options)
        assert made.check.verdict is CheckVerdict.NOT_CHECKED
        assert work in made.check.reason
        sample = (
            r"--check does it; 1 of 3 operators, compiled as a network of their own, equal tflite-micro on random:0"
        )
        assert re.search(sample, made.check.reason), made.check.reason


def test_a_sample_may_lack_what_is_kept_on_the_host(tmp_path: Path) -> None:
    model = save(tmp_path / "convs.tflite", _convolutions((8, 8, 16, 4), folded=True))
    made = nm.compile(model, tmp_path / "out", check=False, npu_compiler="tvm", host_ops=("ADD",))
    found = checking.check_results(tmp_path / "out", made, model, CheckMode.AUTO, limit=10)
    assert "3 of 4 operators, compiled as a network of their own, equal tflite-micro" in found.reason


def test_a_sample_has_the_largest_operators_of_each_kind_that_fit(tmp_path: Path) -> None:
    made = nm.compile(KWS, tmp_path / "out")
    data, whole = KWS.read_bytes(), work_of(made).units_of_work(2)
    found = [draw_sample(data, works_of(made), 2, limit) for limit in (0, whole // 4, whole // 2, 2 * whole)]
    assert found[0] is None
    taken = [sample.operators for sample in found if sample is not None]
    assert 0 < len(taken[0]) < len(taken[1]) < len(taken[2])
    kinds = {made.operators[i].kind for i in taken[1]}
    assert kinds >= {"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D"}
    macs = {layer.operator: layer.macs for layer in made.layers if layer.kind == "CONV_2D"}
    convolutions = [i for i in taken[0] if i in macs]
    assert max(macs.values()) in [macs[i] for i in convolutions]


@pytest.mark.usefixtures("lenient")
def test_a_sabotaged_lowering_is_found_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil_scales(monkeypatch)
    model = save(tmp_path / "convs.tflite", _convolutions((8, 8, 16, 4), folded=True))
    whole = nm.compile(model, tmp_path / "whole", npu_compiler="tvm", check=False)
    _limit_to_samples(monkeypatch, work_of(whole).units_of_work(1) - 1)
    made = nm.compile(model, tmp_path / "out", npu_compiler="tvm")
    assert (made.check.verdict, made.target.host_ops) == (CheckVerdict.EQUAL, ("CONV_2D",))
    (gone,) = made.check.given_up
    largest = max(whole.layers, key=lambda layer: layer.macs).operator
    assert (gone.difference.kind, gone.difference.name) == ("CONV_2D", whole.operators[gone.difference.operator].name)
    assert gone.difference.operator <= largest


@pytest.mark.parametrize(("compiler", "operators"), [("tvm", 4), ("vela", 5)])  # Vela reads those of constants, too
def test_of_a_large_file_for_tflite_micro_a_sample_is_checked(
    compiler: str, operators: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(tmp_path / "convs.tflite", _convolutions((8, 8, 16, 4), folded=True))
    options = CompileOptions(npu_compiler=compiler)
    _limit_to_samples(monkeypatch, 7)
    made = other_outputs.emit_checked(model, options)
    assert made.check.verdict is CheckVerdict.NOT_CHECKED
    sample = f"3 of {operators} operators, compiled as a network of their own, equal tflite-micro"
    assert sample in made.check.reason
    assert other_outputs.emit_checked(model, options, CheckMode.NEVER).check.reason == NOT_REQUESTED.reason


@pytest.mark.usefixtures("lenient")
def test_a_sabotaged_lowering_is_found_by_a_sample_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil_scales(monkeypatch)
    model = save(tmp_path / "convs.tflite", _convolutions((8, 8, 16, 4), folded=True))
    _limit_to_samples(monkeypatch, 7)
    made = other_outputs.emit_checked(model, CompileOptions(npu_compiler="tvm"))
    (gone,), kinds = made.check.given_up, [operator.kind for operator in made.operators_of_model]
    assert (made.check.verdict, gone.difference.kind) == (CheckVerdict.EQUAL, "CONV_2D")
    assert kinds[gone.difference.operator] == "CONV_2D"


def _convolutions(depths: Sequence[int], folded: bool = False) -> bytes:
    """Convolutions one behind the other, from each depth to the next; `folded`: behind an operator of constants."""
    b, rng = ModelBuilder(), np.random.default_rng(1)
    tensors = [b.tensor((1, 6, 5, depth), "int8", 0.1, 3) for depth in depths]
    given = tensors[:1]
    if folded:
        added, given = b.tensor((1, 1, 1, 8), "int8", 0.1, 3), [b.tensor((1, 6, 5, 8), "int8", 0.1, 3)]
        b.operator("QUANTIZE", [b.constant(np.arange(8, dtype=np.int8).reshape(1, 1, 1, 8), 0.2)], [added])
        b.operator("ADD", [*given, added], tensors[:1], "AddOptions")
    for x, y, read, made in zip(tensors, tensors[1:], depths, depths[1:], strict=False):
        weights = b.constant(rng.integers(-127, 128, (made, 3, 3, read)).astype(np.int8), 0.01)
        bias = b.constant(np.zeros(made, np.int32), 0.001)
        window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
        b.operator("CONV_2D", [x, weights, bias], [y], "Conv2DOptions", **window)
    return b.made(given, tensors[-1:]).finish()


def test_the_environment_speaks_where_the_call_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_MEMPLAN_CHECK", "always")
    assert check_mode() is CheckMode.ALWAYS
    assert check_mode(False) is CheckMode.NEVER
    monkeypatch.delenv("NPU_MEMPLAN_CHECK")
    assert check_mode() is CheckMode.AUTO
    monkeypatch.setenv("NPU_MEMPLAN_CHECK", "yes")
    with pytest.raises(CheckModeError, match="auto, always, never"):
        check_mode()


def test_the_extreme_input_has_the_ends_of_its_type_in_range() -> None:
    from npu_memplan.artifact.model import TensorSlot
    from npu_memplan.files.arrays import read_inputs

    def made(dtype: str, scale: float, zero_point: int = 0) -> np.ndarray:
        (array,) = read_inputs("m", [TensorSlot("x", dtype, (4, 5), "p", 0, 20, scale, zero_point)], ["extreme"])
        assert (array.dtype.name, array.shape) == (dtype, (4, 5))
        return np.unique(array)

    assert made("int8", 0.1, 7).tolist() == [-128, 7, 127]
    assert made("int16", 0.1).tolist() == [-32768, 0, 32767]
    assert made("int32", 0.0).tolist() == [0, 1]
    assert made("float32", 0.0).tolist() == [-100, 0, 100]


def test_other_frameworks_are_checked_by_their_own_references(tmp_path: Path) -> None:
    """A float ONNX model claims nothing; TVM's unplanned machine gives the same bits all the same."""
    pytest.importorskip("onnx")
    from tests.support.onnx_graph import Graph

    g = Graph()
    g.node("Relu", ["image"], "out")
    model = g.save(tmp_path / "relu.onnx", (1, 5))
    made = nm.compile(model, tmp_path / "out", check=True, accelerator="none")
    assert made.check.verdict is CheckVerdict.EQUAL
    assert made.check.reference == "TVM's Relax VM, without a plan"
    assert made.check.runner == "host C"


def test_differences_of_real_numbers_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of ONNX claim a step: the outputs may be as far away as steps in every layer take them, no further."""
    pytest.importorskip("onnx")
    from tests.support.onnx_graph import Graph

    g = Graph()
    x = g.stored("image", "x", 0.05, 3)
    y = g.stored(g.conv(x, "c", (4, 3, 3, 3), 0.05), "y", 0.1, -2)
    g.stored(g.conv(y, "d", (2, 4, 1, 1), 0.1), "out", 0.02, 5)
    model = g.save(tmp_path / "m.onnx", (1, 3, 8, 8), result=(1, 2, 8, 8))
    _limited(model, tmp_path, monkeypatch, 5 * 0.02)


@needs_torch
def test_differences_of_pytorch_programs_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1)).eval()
    program = quantised_program(net, [torch.rand(1, 3, 8, 8) for _ in range(4)], per_channel=True)
    torch.export.save(program, tmp_path / "m.pt2")
    _limited(tmp_path / "m.pt2", tmp_path, monkeypatch, 0.05)


def _limited(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: float) -> None:
    """A right program is within its limits, one whose sums are twice as large is further away than `further`."""
    made = nm.compile(model, tmp_path / "out", check=True, npu_compiler="tvm")
    assert made.check.verdict in (CheckVerdict.EQUAL, CheckVerdict.AS_CLAIMED)
    _spoil_scales(monkeypatch)
    wrong = nm.compile(model, tmp_path / "wrong", check=False, npu_compiler="tvm")
    result = checking.check_results(tmp_path / "wrong", wrong, model)
    assert result.verdict is CheckVerdict.DIFFERS
    assert result.max_abs_diff is not None
    assert result.max_abs_diff > further
