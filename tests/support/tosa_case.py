"""One conformance test of TOSA, as the generator of tosa-tools writes it: compiled by Vela, simulated, compared.

Invariant: a test is "equal" only when every element of every output is what the reference model says, with all checks
of the NPU model on; any other end has a word of its own and a reason.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.npu_model.spec.u85 import operation_features
from fvp_runner.references.other_formats import TosaReference
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import Language
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.models.network import Network
from npu_memplan.models.tosa import read_tosa
from npu_memplan.vela.compiler import VelaError, VelaOptions, compile_tosa

EQUAL, DIFFERS, REFUSED, LARGE, FAILED = "equal", "differs", "refused by Vela", "too large", "not run"


@dataclass(frozen=True, slots=True)
class TosaTrial:
    """How one test ended."""

    name: str
    operator: str  # as TOSA calls it; of several, the one that the test is named after
    types: str  # of inputs and outputs
    kinds: frozenset[str]  # all types that the operator itself has, constants included
    outcome: str
    why: str = ""
    features: frozenset[str] = frozenset()  # of Ethos-U85's language that its stream uses


def try_case(folder: Path, accelerator: str, largest: int = 0) -> TosaTrial:
    """Run the test in `folder`; tensors of more elements than `largest` (0: any) are left out."""
    data = (folder / "test.tosa").read_bytes()
    source = read_tosa(data, folder.name)
    operator = _operator(folder, source)
    said = folder.name, operator, _types(source), _kinds(source, operator)
    if largest and max(max(t.shape, default=1) * 20 for t in source.tensors) > largest:
        return TosaTrial(*said, LARGE)
    if largest and max(math.prod(t.shape) for t in source.tensors) > largest:
        return TosaTrial(*said, LARGE)
    try:
        network = compile_tosa(data, VelaOptions(accelerator), folder.name).parsed
    except VelaError as error:
        return TosaTrial(*said, REFUSED, str(error))
    used = frozenset(f for c in _operations(network) if c.language is Language.U85 for f in operation_features(c))
    try:
        inputs = case_inputs(folder, source)
        expected = TosaReference(data, folder.name).run(inputs)
        made = NetworkModel(network, b"").run(inputs).outputs
    except NpuMemplanError as error:
        return TosaTrial(*said, FAILED, f"{type(error).__name__}: {error}", used)
    pairs = zip(made, expected, strict=True)
    wrong = sum(int(np.count_nonzero(got.reshape(want.shape) != want)) for got, want in pairs)
    return TosaTrial(*said, DIFFERS if wrong else EQUAL, f"{wrong} elements" if wrong else "", used)


def case_inputs(folder: Path, source: Network) -> list[Any]:
    """The arrays that the generator made for the graph's inputs, in their order and types."""
    description = json.loads((folder / "desc.json").read_text(encoding="utf-8"))
    files = dict(zip(description["ifm_name"], description["ifm_file"], strict=True))
    wanted = [source.tensors[i] for i in source.inputs]
    return [np.load(folder / files[t.name]).astype(t.dtype).reshape(t.shape) for t in wanted]


def _operations(network: Network) -> list[Operation]:
    calls = network.npu_calls
    return [c for call in calls for c in decode(call.words, call.accelerator.language) if isinstance(c, Operation)]


def _operator(folder: Path, source: Network) -> str:
    kinds = list(dict.fromkeys(o.name for o in source.cpu_operators))
    named = [kind for kind in kinds if folder.name.startswith(kind.lower())]
    return (named or kinds or ["CONST"])[0]


def _kinds(source: Network, operator: str) -> frozenset[str]:
    own = [o for o in source.cpu_operators if o.name == operator]
    return frozenset(source.tensors[i].dtype for o in own for i in (*o.inputs, *o.outputs))


def _types(source: Network) -> str:
    inputs, outputs = ([source.tensors[i].dtype for i in indices] for indices in (source.inputs, source.outputs))
    return f"{', '.join(dict.fromkeys(inputs)) or 'constants'} -> {', '.join(dict.fromkeys(outputs))}"
