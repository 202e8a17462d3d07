"""A network compiled, run and compared in several ways, and what that came to.

Invariant: whatever is neither right, nor announced as inexact, nor refused by name is a fault; an error that only a
defect of the package can raise is no refusal.
"""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.base import RunOptions
from fvp_runner.checked_run.compare import compare_operators
from fvp_runner.checked_run.facts import InputFacts, RunFacts
from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.kernels import TFLiteReference
from fvp_runner.result import OutputComparison, compare_output, compare_outputs
from fvp_runner.result import Verdict as RowVerdict
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import CheckResult, CheckVerdict
from npu_memplan.checking.claims import compile_checked
from npu_memplan.checking.judge import CheckMode, judge_run
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.exactness import MICRO, Claim, Exactness
from npu_memplan.frontend.attributes import HostOpsError
from npu_memplan.frontend.host_ops.operator import UnsupportedOperatorError
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError
from npu_memplan.process.incidents import raise_faults
from npu_memplan.report.text.compile_result import difference_text
from npu_memplan.vela.lift import LiftError
from npu_memplan.vela.worker import VelaError

# What says of a network that it is not taken; every other error of a compile or a run is a defect.
REFUSALS = (
    UnsupportedModelError,
    UnsupportedOperatorError,
    HostOpsError,
    PlanningError,
    VelaError,
    LiftError,
)
SANITIZED = RunOptions(sanitize=True)
_FOLDED = Claim(Exactness.EXACT, MICRO)  # an operator of constants, which the program does not have any more
SAME_PROGRAM = "the program of another way"
_NPUS = ("ethos-u55-256",) * 4 + ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512")
_U65 = ("ethos-u65-256", "ethos-u65-512")
_U85 = tuple(a.name for a in ETHOS_U85)


class Verdict(Enum):
    """Of one network compiled one way."""

    EXACT = "exact"
    ANNOUNCED = "announced"  # other than the reference, and said to be
    REFUSED = "refused"
    NO_REFERENCE = "no reference"  # compiled and run, with nothing to compare with
    FAULT = "FAULT"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a network came to; `message` is the error, or what differs."""

    verdict: Verdict
    message: str = ""


def ways(seed: int, sram_bytes: int = 32768) -> dict[str, CompileOptions]:
    """The options of each way; the NPU, and the pool's size near `sram_bytes`, are drawn by the seed."""
    rng = np.random.default_rng([seed, 7])
    npu = _NPUS[int(rng.integers(len(_NPUS)))]
    u85 = _U85[int(np.random.default_rng([seed, 8]).integers(len(_U85)))]
    size = max(16, int(sram_bytes * rng.uniform(0.5, 1.5)))
    return {
        "default": CompileOptions(npu),
        "vela": CompileOptions(npu, npu_compiler="vela"),
        "tvm": CompileOptions(npu, npu_compiler="tvm"),
        "none": CompileOptions("none"),
        "stripes": CompileOptions(npu, stripes=True),
        "pool": CompileOptions(npu, pools={"sram": size}),
        "u85": CompileOptions(u85),
        "u85-tvm": CompileOptions(u85, npu_compiler="tvm"),
        "u85-bytes": CompileOptions(u85, npu_compiler="tvm", objective="bytes"),
        "u85-stripes": CompileOptions(u85, stripes=True),
        "stripes-bytes": CompileOptions(npu, stripes=True, objective="bytes"),
        "u85-stripes-bytes": CompileOptions(u85, stripes=True, objective="bytes"),
        "u65": CompileOptions(_U65[seed % 2]),
        "bytes": CompileOptions(npu, objective="bytes"),
        "none-bytes": CompileOptions("none", objective="bytes"),
    }


def random_inputs(network: Network, seed: int) -> list[np.ndarray]:
    """Inputs over the whole range of quantised types, or at its ends; plain numbers are small."""
    found = []
    for tensor in (network.tensors[i] for i in network.inputs):
        rng = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
        if tensor.dtype in ("int8", "uint8", "int16"):
            limits = np.iinfo(tensor.dtype)
            values = rng.integers(limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True)
            if seed % 2:
                ends = np.array([limits.min, limits.max, np.clip(tensor.zero_point, limits.min, limits.max)])
                values = ends[rng.integers(0, 3, tensor.shape)].astype(tensor.dtype)
        elif tensor.dtype == "bool":
            values = rng.integers(0, 2, tensor.shape).astype(bool)
        elif tensor.dtype == "float32":
            values = (rng.standard_normal(tensor.shape) * 3).astype(np.float32)
        else:
            values = rng.integers(-40, 41, tensor.shape).astype(tensor.dtype)
        found.append(values)
    return found


class Trial:
    """A network with its inputs and what its reference makes of them, to be compiled in any way."""

    def __init__(self, model: bytes, seed: int = 0) -> None:
        self.model, self.network = model, read_network(model, "network")
        self.inputs = [random_inputs(self.network, 2 * seed + i) for i in range(2)]
        self._exact = set[str]()  # programs that were
        self.why = ""  # there is no reference
        self.expected: list[Sequence[Any]] = []
        try:
            reference = TFLiteReference(model, "network")
            self.expected = [reference.run(values) for values in self.inputs]
        except ReferenceRunError as error:
            self.why = str(error)

    def compile_and_run(
        self,
        options: CompileOptions,
        report_phase: Callable[[str], None] = lambda stage: None,
        strict: bool = False,
        run_options: RunOptions | None = None,
        check: CheckMode = CheckMode.AUTO,
    ) -> Outcome:
        """What came of one way; `report_phase` is told each stage, for those whose process may end in it.

        A program that another way made before, byte for byte, is not run again.
        """
        with tempfile.TemporaryDirectory() as temporary:
            path, folder = Path(temporary) / "network.tflite", Path(temporary) / "artifact"
            path.write_bytes(self.model)
            report_phase("compile")
            try:
                with raise_faults(strict):
                    artifact = compile_checked(path, options, folder, mode=check)
            except REFUSALS as error:
                return Outcome(Verdict.REFUSED, f"{type(error).__name__}: {error}")
            except Exception as error:
                return Outcome(Verdict.FAULT, f"compile: {_describe_error(error)}")
            program = _program(artifact, folder)
            if program in self._exact:
                return Outcome(Verdict.EXACT, SAME_PROGRAM)
            report_phase("run")
            try:
                runner = LocalRunner(folder, run_options)
                found = [runner.run(values).outputs for values in self.inputs]
            except Exception as error:
                return Outcome(Verdict.FAULT, f"run: {_describe_error(error)}")
            report_phase("compare")
            outcome = self._compared(artifact, runner, found)
        if outcome.verdict is Verdict.EXACT:
            self._exact.add(program)
        return outcome

    def try_unchecked(
        self,
        options: CompileOptions,
        report_phase: Callable[[str], None] = lambda stage: None,
        run_options: RunOptions = SANITIZED,
    ) -> Outcome:
        """`compile_and_run` without the check that `compile` makes, which costs more than all else: its claims are
        held against these inputs, every NPU and host access is checked, and every fault of ours is raised.

        What is wrong is tried as users have it: where the check notices an operator that is not ours, it is announced.
        """
        found = self.compile_and_run(options, report_phase, True, run_options, CheckMode.NEVER)
        if found.verdict is not Verdict.FAULT:
            return found
        again = self.compile_and_run(options, report_phase, True, run_options)
        if again.verdict is Verdict.FAULT:
            return again
        return Outcome(again.verdict, f"noticed by the check: {found.message}; {again.message}")

    def _compared(self, artifact: Artifact, runner: LocalRunner, found: list[Sequence[Any]]) -> Outcome:
        if not self.expected:
            return Outcome(Verdict.NO_REFERENCE, self.why)
        differing = self._differing(found, self.expected)
        if not differing:
            return Outcome(Verdict.EXACT, "; ".join(artifact.notes))
        faults = [text for index, one in differing.items() if (text := self._unannounced(artifact, index, one))]
        if faults:
            return Outcome(Verdict.FAULT, "wrong: " + "; ".join(faults))
        result, hidden = self._judged(artifact, runner, found)
        if result.verdict is CheckVerdict.DIFFERS:
            return Outcome(Verdict.FAULT, f"wrong: {difference_text(result)}")
        message = f"{sum(one.mismatches for one in differing.values())} elements, {hidden} operators not visible"
        return Outcome(Verdict.ANNOUNCED, message)

    def _judged(self, artifact: Artifact, runner: LocalRunner, found: list[Sequence[Any]]) -> tuple[CheckResult, int]:
        """What differs operator by operator, each on the inputs that it got, and how many were not seen whole."""
        reference = TFLiteReference(self.model, "network")
        names, runs = [slot.name for slot in artifact.outputs], list[InputFacts]()
        for number, (values, made) in enumerate(zip(self.inputs, found, strict=True)):
            outputs = compare_outputs("local", names, made, reference.run(values)).outputs
            rows = compare_operators(runner, reference, values) if any(o.mismatches for o in outputs) else ()
            runs.append(InputFacts(f"input {number}", outputs, operators=rows))
        hidden = max(sum(row.verdict is RowVerdict.HIDDEN for row in run.operators) for run in runs)
        return judge_run(artifact, RunFacts(reference=reference.what, runs=tuple(runs))), hidden

    def _differing(self, found: list[Sequence[Any]], expected: list[Sequence[Any]]) -> dict[int, OutputComparison]:
        """Tensor -> comparison, of the outputs that differ for one of the inputs."""
        differing = {}
        for made, wanted in zip(found, expected, strict=True):
            for index, ours, theirs in zip(self.network.outputs, made, wanted, strict=True):
                one = compare_output(self.network.tensors[index].name, ours, theirs.reshape(ours.shape))
                if one.mismatches:
                    differing[index] = one
        return differing

    def _unannounced(self, artifact: Artifact, output: int, one: OutputComparison) -> str:
        """Why an output that differs is a fault; empty where a claim says that it may."""
        claims = {operator.name: operator.claim for operator in artifact.operators}
        tensors, doubtful = self.network.tensors, set[int]()
        for operator in self.network.operators:
            if not operator.outputs:
                continue
            claim = claims.get(tensors[operator.outputs[0]].name, _FOLDED)
            before = doubtful.intersection(operator.inputs)
            if before or claim.exactness is not Exactness.EXACT:
                doubtful.update(operator.outputs)
            if output in operator.outputs:
                text = (
                    f"{one.mismatches} of {one.elements} elements of {operator.name} ({one.name}) by "
                    f"{one.max_abs_diff:g}, claimed {claim.exactness.value}"
                )
                step = claim.exactness is Exactness.STEP and not before and one.max_abs_diff > 1
                return text if output not in doubtful or step else ""
        return ""


def _program(artifact: Artifact, folder: Path) -> str:
    """A hash of what runs: the C, the constants, the plan and the NPU."""
    digest = hashlib.sha256(artifact.target.accelerator.encode() if artifact.npu_operations else b"")
    for path in sorted((folder / "src").iterdir()):
        digest.update(path.read_bytes())
    digest.update(repr((artifact.problem, artifact.plan)).encode())
    return digest.hexdigest()


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
