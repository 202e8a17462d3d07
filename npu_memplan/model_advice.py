"""Advice about a model: changes of its TFLite file, each with what it gains when the changed file is compiled.

Invariant: every figure is the difference of two compiles with the options of the artifact and `--effort quick`; nothing
is guessed. A change that gains less than 1 % of cycles and of bytes, or costs some of what the artifact was compiled
for, is no advice.
"""

from __future__ import annotations

import hashlib
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .artifact import Artifact
from .errors import NpuMemplanError
from .ethosu.stream.isa import BRICK_CHANNELS
from .models.edits import Edit, FloatEndError, read_source, resize_channels, stored_ends, with_edit
from .models.flatbuffer import read_file
from .models.network import CpuOperator, Network
from .models.tflite import read_network
from .options import CompileOptions, Objective
from .problem import Agent
from .report.facts.dearest import operator_times, short_names
from .sizes import count_text, percent_text

if TYPE_CHECKING:
    from .cache import ProgramCache

MOST_TRIED = 8  # changes that are compiled: those of the operators that take the most time
MOST_GIVEN = 5
_LEAST_GAIN = 0.01  # of the cycles or the bytes
_WIDTH = 100  # columns
_ACTIVATIONS = ("ELU", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "PRELU", "TANH")
_LAST = ("SOFTMAX", "LOG_SOFTMAX", "LOGISTIC")  # that keep the order of their inputs
_IN_ORDER = "the outputs are its inputs, in the same order of size"
_OTHER = "another function: train the network with it"


class AdviceError(NpuMemplanError):
    """There is no model that could be changed."""


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A change of a model, and what becomes of its results."""

    text: str
    results: str
    edit: Edit


@dataclass(frozen=True, slots=True)
class ModelAdvice:
    """A change with what it gains; negative: what it costs."""

    text: str
    results: str
    cycles_gained: int  # of NPU and CPU
    bytes_gained: int  # of all pools


@dataclass(frozen=True, slots=True)
class ModelAdvices:
    """The best changes of a model, the one that gains most first, and the compile that they are compared with."""

    model: str
    cycles: int
    bytes: int
    tried: int  # changes that were compiled
    advice: tuple[ModelAdvice, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "effort": "quick", "cycles_are_estimates": True}

    def to_text(self) -> str:
        tried = f"{count_text(self.tried, 'change')} of the model compiled with --effort quick"
        base = f"{self.cycles:,} cycles of NPU and CPU (estimated) and {self.bytes:,} bytes without them"
        lines = textwrap.wrap(f"{self.model}: {tried}; {base}", _WIDTH, break_on_hyphens=False)
        for number, one in enumerate(self.advice, 1):
            gain = f"{_gain_text(one.cycles_gained, self.cycles, 'cycles')}, "
            gain += _gain_text(one.bytes_gained, self.bytes, "bytes")
            text = f"{number}. {gain}: {one.text} ({one.results})"
            lines += textwrap.wrap(text, _WIDTH, subsequent_indent="   ", break_on_hyphens=False)
        if not self.advice:
            lines.append("nothing to advise" + (f": none gains {100 * _LEAST_GAIN:.0f} %" if self.tried else ""))
        return "\n".join(lines) + "\n"


def _gain_text(gained: int, of: int, unit: str) -> str:
    share = f" ({percent_text(abs(gained), of)})" if gained else ""
    return f"{abs(gained):,} {unit} {'more' if gained < 0 else 'fewer'}{share}"


def find_model(artifact: Artifact, directory: Path, named: Path | None) -> Path:
    """The file that `artifact` was compiled from: the one that is named, or of its name here or beside `directory`."""
    if not artifact.source.endswith(".tflite"):
        raise AdviceError(
            f"{directory} was compiled from {artifact.source}, and advice changes TFLite files alone; "
            f"npu-memplan explain {directory} lists the operators that take the most time"
        )
    places = [named] if named else [folder / artifact.source for folder in (Path(), directory, directory.parent)]
    for path in filter(Path.is_file, places):
        if hashlib.sha256(read_file(path)).hexdigest() == artifact.source_sha256:
            return path
        raise AdviceError(f"{path} is not the {artifact.source} that {directory} was compiled from; give it by --model")
    raise AdviceError(
        f"{artifact.source}, which {directory} was compiled from, is not at {' or '.join(map(str, places))}; "
        "advice changes and compiles it: give it by --model MODEL.tflite"
    )


def advise(
    artifact: Artifact,
    model: Path,
    report_progress: Callable[[str, int, int], None] = lambda *_: None,
    cache: ProgramCache | None = None,
) -> ModelAdvices:
    """Compile changes of the TFLite file `model`, which `artifact` was compiled from."""
    from .compiler import plan_model

    options = replace(artifact.target, effort="quick", time_limit_s=None)
    data = read_source(model, options.io)
    if data[4:8] != b"TFL3":
        raise AdviceError(f"advice changes TFLite files, and {model} is none")
    changes = find_changes(artifact, read_network(data, model.name))

    def measure(path: Path, wanted: CompileOptions) -> tuple[int, int]:
        made = plan_model(path, wanted, cache=cache).artifact
        return made.total_cycles or 0, sum(made.pool_bytes(pool.name) for pool in made.run_pools)

    cycles, size = measure(model, options)
    gains = []
    with tempfile.TemporaryDirectory() as folder:
        for number, change in enumerate(changes):
            report_progress(change.text, number, len(changes))
            path = Path(folder) / model.name
            path.write_bytes(with_edit(data, change.edit))
            try:
                found = measure(path, options)
            except NpuMemplanError:  # it cannot be compiled, or has no room
                continue
            gains.append(ModelAdvice(change.text, change.results, cycles - found[0], size - found[1]))
    for_bytes = options.resolved_objective in (Objective.BYTES, Objective.BYTES_IN_TIME)

    def gain(one: ModelAdvice) -> tuple[float, float]:
        """What counts first, then the other, as parts."""
        both = one.cycles_gained / max(1, cycles), one.bytes_gained / max(1, size)
        return both[::-1] if for_bytes else both

    best = sorted(gains, key=gain, reverse=True)
    useful = [one for one in best if max(gain(one)) >= _LEAST_GAIN and gain(one)[0] >= 0]
    return ModelAdvices(artifact.name, cycles, size, len(gains), tuple(useful[:MOST_GIVEN]))


def find_changes(artifact: Artifact, network: Network) -> list[ModelChange]:
    """The changes that are worth a compile: of operators that take time, the dearest first."""
    shares = {time.operator: time.share for time in operator_times(artifact)}
    names = short_names(artifact)
    on_cpu = {i for i, operator in enumerate(artifact.operators) if operator.agent is Agent.HOST}
    found = [*_changes_of_ends(network, names), *_other_operators(network, on_cpu), *_other_channels(network, names)]

    def share(change: ModelChange) -> float:
        return sum(shares.get(o.index, 0.0) for o in network.operators if change.edit.changes(o))

    return sorted(filter(share, found), key=lambda change: -share(change))[:MOST_TRIED]


def _changes_of_ends(network: Network, names: Sequence[str]) -> Iterator[ModelChange]:
    with suppress(FloatEndError):
        text = "compile with --io int8, which leaves out the conversion of float inputs and outputs"
        yield ModelChange(text, "the same results, as int8", stored_ends(network))
    read = {i for operator in network.operators for i in operator.inputs}
    for operator in network.cpu_operators:
        result = operator.outputs[0] if operator.outputs else -1
        if operator.name in _LAST and result in network.outputs and result not in read:
            outputs = [operator.inputs[0] if i == result else i for i in network.outputs]
            edit = Edit(frozenset((operator.index,)), (network.inputs, outputs))
            yield ModelChange(f"leave out {names[operator.index]}, the last operator", _IN_ORDER, edit)


def _other_operators(network: Network, on_cpu: set[int]) -> Iterator[ModelChange]:
    """Cheaper kinds in the place of all operators of one kind."""
    swished: dict[int, CpuOperator] = {}  # LOGISTIC -> the MUL of its result with its input, which alone reads it
    for gate in network.cpu_operators:
        readers = [o for o in network.cpu_operators if gate.name == "LOGISTIC" and gate.outputs[0] in o.inputs]
        if [o.name for o in readers] == ["MUL"] and {*readers[0].inputs} == {gate.inputs[0], gate.outputs[0]}:
            swished[gate.index] = readers[0]
    if swished:
        inputs = {o.index: network.operators[i].inputs[:1] for i, o in swished.items()}
        edit = Edit(frozenset(swished), kinds=dict.fromkeys(inputs, "HARD_SWISH"), inputs=inputs)
        yield ModelChange(f"HARD_SWISH in the place of {len(swished)} pairs of LOGISTIC and MUL", _OTHER, edit)
    groups: dict[str, list[CpuOperator]] = {}
    for operator in network.cpu_operators:
        is_last = operator.name in _LAST and {*operator.outputs} & {*network.outputs}
        if operator.inputs and len(operator.outputs) == 1 and operator.index not in swished and not is_last:
            groups.setdefault(operator.name, []).append(operator)
    for kind, group in groups.items():
        pairs = [(network.tensors[o.inputs[0]], network.tensors[o.outputs[0]]) for o in group]
        resizes = kind == "RESIZE_BILINEAR"
        if kind == "RELU" or any(a.dtype != b.dtype or (a.shape != b.shape and not resizes) for a, b in pairs):
            continue
        other = "RESIZE_NEAREST_NEIGHBOR" if resizes else "RELU"
        edit = Edit(
            kinds={o.index: other for o in group}, inputs={} if resizes else {o.index: o.inputs[:1] for o in group}
        )
        if resizes or kind in _ACTIVATIONS:
            yield ModelChange(f"{other} in the place of {len(group)} {kind}", _OTHER, edit)
        elif edit.kinds.keys() <= on_cpu and kind != "WHILE" and {a.dtype for a, _ in pairs} <= {"int8", "int16"}:
            text = f"an operator of the NPU in the place of {len(group)} {kind} on the CPU (compiled with RELU)"
            yield ModelChange(text, _OTHER, edit)


def _other_channels(network: Network, names: Sequence[str]) -> Iterator[ModelChange]:
    known: set[frozenset[int]] = set()
    for operator in network.cpu_operators:
        channels = network.tensors[operator.outputs[0]].shape[-1] if operator.name == "CONV_2D" else 0
        below = channels // BRICK_CHANNELS * BRICK_CHANNELS
        for count in (below, below + BRICK_CHANNELS) if channels > below else ():
            edit = resize_channels(network, operator.outputs[0], count) if count else None
            if edit is None or (key := frozenset((*edit.tensors, -count))) in known:
                continue
            known.add(key)
            text = f"{count} channels, not {channels}, of {names[operator.index]} and what has as many by it"
            yield ModelChange(text, "the same results" if count > channels else _OTHER, edit)
