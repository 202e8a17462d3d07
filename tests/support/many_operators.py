"""Many models of one operator each in one program: lowered for the host, planned together, compiled once, run once.

Invariant: each model's operator reads and writes planned bytes of its own, as in an artifact; nothing of them is
replaced for the test.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.codegen.interface import Interface, PoolSpec
from npu_memplan.codegen.sources import print_sources
from npu_memplan.extract import STATES
from npu_memplan.frontend.host_ops import LoweredOperator, lower_operator
from npu_memplan.frontend.host_ops.cascade import Cascade, join_rows, lower_cascade, row_operator
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import NO_NPU, CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import POISON, Agent, Pool, Problem
from npu_memplan.request import Loaded, Request
from npu_memplan.rewrite import rewrite
from npu_memplan.stages import extract_problem
from npu_memplan.verify import check
from npu_memplan.vocabulary import KERNEL, PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES

from .built_c import Program

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
EXTREMES = list(product(COMPILERS, ("-O0", "-O3")))
# GCC 12 has left calls out at -O1 and -O2 alone.
LEVELS = [*EXTREMES, *((name, level) for name in COMPILERS if name == "gcc" for level in ("-O1", "-O2", "-Os"))]


def module_of_all(networks: Sequence[Network], kernels: bool = True) -> Any:
    """A Relax module whose main calls the operator of each network, or all of one `in_rows` in turn, one after the
    other; as loops without `kernels`.
    """
    builder = relax.BlockBuilder()

    def type_of(network: Network, index: int) -> Any:
        tensor = network.tensors[index]
        return relax.TensorType(tensor.shape or (1,), tensor.dtype)

    lowered = [in_turn(n) if n.in_rows else lower_operator(n, n.cpu_operators[0]) for n in networks]
    parameters = [
        [relax.Var(f"m{n}_i{i}", type_of(network, i)) for i in one.inputs]
        for n, (network, one) in enumerate(zip(networks, lowered, strict=True))
    ]
    results = []
    with builder.function("main", [p for group in parameters for p in group]):
        with builder.dataflow():
            for n, (network, one, group) in enumerate(zip(networks, lowered, parameters, strict=True)):
                name = f"op{n}_{one.name}"
                primfunc = one.primfunc if kernels else one.primfunc.without_attr(KERNEL)
                symbol = builder.add_func(primfunc.with_attr("global_symbol", name), name)
                arguments = [*group, *(relax.const(c, c.dtype.name) for c in one.constants)]
                types = [type_of(network, i) for i in one.outputs]
                made = builder.emit(relax.call_tir(symbol, arguments, types if len(types) > 1 else types[0]))
                parts = (
                    [made]
                    if len(types) == 1
                    else [builder.emit(relax.TupleGetItem(made, i)) for i in range(len(types))]
                )
                results += [builder.emit_output(part) for part in parts]
        builder.emit_func_output(relax.Tuple(results))
    module = builder.finalize()
    states = [str(group[p].name) for one, group in zip(lowered, parameters, strict=True) for p in one.states]
    module.update_func(module.get_global_var("main"), module["main"].with_attr(STATES, states))
    return module


def in_turn(network: Network) -> LoweredOperator:
    """All operators of a network as one cascade."""
    return lower_cascade(network, whole_cascade(network), network.cpu_operators[-1])


def whole_cascade(network: Network) -> Cascade:
    """The cascade of all operators of a network."""
    rows = [row_operator(network, operator) for operator in network.cpu_operators]
    made = join_rows(network, [one for one in rows if one is not None], frozenset(network.outputs))
    assert made is not None
    assert None not in rows
    return made


class Together:
    """The operators of several networks as one program: its C in a folder, and its pool with the given inputs."""

    def __init__(
        self, networks: Sequence[Network], inputs: Sequence[Sequence[np.ndarray]], folder: Path, kernels: bool = True
    ) -> None:
        self.networks, self.inputs, self.folder = networks, inputs, folder
        self.states: dict[str, np.ndarray] = {}  # what some hold before a run, in place of zero points
        module = module_of_all(networks, kernels)
        agents = frozenset((Agent.HOST,))
        request = Request(CompileOptions(NO_NPU, objective="bytes"), (Pool("sram", None, agents=agents),))
        self.extracted = extract_problem(Loaded.from_module(request, module))
        self.plan = plan(self.extracted.problem, "first-fit")
        check(self.extracted.problem, self.plan)
        planned = rewrite(module, self.extracted.problem, self.plan)
        self._attributes = planned["main"].attrs
        self._bytes = max(self.plan.usage[0].used_bytes, 1)
        pool = PoolSpec("sram", self.plan.usage[0].used_bytes)
        interface = Interface("many", (pool,), (), (), (), host_kernels=networks[0].host_kernels)
        print_sources(planned, interface).write(folder)

    def pool(self) -> np.ndarray:
        """A poisoned pool with inputs and states; states start at their zero points."""
        memory = np.full(self._bytes + 64, POISON, np.uint8)
        pool = memory[(start := -memory.ctypes.data % 16) : start + self._bytes]
        self.write_inputs(pool, self.inputs)
        given = {}
        for n, network in enumerate(self.networks):
            for index in network.states:
                tensor = network.tensors[index]
                given[f"m{n}_i{index}"] = np.full(tensor.shape, tensor.zero_point, tensor.dtype)
        self._write(pool, PLACED_STATES, given | self.states)
        return pool

    def write_inputs(self, pool: np.ndarray, inputs: Sequence[Sequence[np.ndarray]]) -> None:
        """Write the inputs of each network to `pool`."""
        given = {}
        for n, (network, values) in enumerate(zip(self.networks, inputs, strict=True)):
            given |= {f"m{n}_i{index}": value for index, value in zip(network.inputs, values, strict=True)}
        self._write(pool, PLACED_INPUTS, given)

    def _write(self, pool: np.ndarray, slots: str, given: Mapping[str, np.ndarray]) -> None:
        for slot in self._attributes[slots]:
            _view(pool, slot)[...] = given[str(slot["name"])].reshape(-1)

    def define(self, program: Program, slots: str) -> None:
        """Tell the sanitizer that the caller has written inputs or states."""
        for slot in self._attributes[slots]:
            program.define("sram", int(slot["offset_bytes"]), int(slot["size_bytes"]))

    def outputs(self, pool: np.ndarray) -> list[list[np.ndarray]]:
        """The outputs of each network, after a run on `pool`."""
        found = iter([_view(pool, slot).copy() for slot in self._attributes[PLACED_OUTPUTS]])
        return [[next(found).reshape(network.tensors[i].shape) for i in network.outputs] for network in self.networks]


class Running:
    """A program in this process, with the sanitizers; states stay in its pool between two runs."""

    def __init__(self, together: Together) -> None:
        self.together, self._pool = together, together.pool()
        self._program = Program(together.folder, "many", together.extracted, together.plan, [self._pool])
        together.define(self._program, PLACED_STATES)

    def run(self, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """The outputs of each network for its inputs."""
        self.together.write_inputs(self._pool, inputs)
        self.together.define(self._program, PLACED_INPUTS)
        self._program.run()
        return self.together.outputs(self._pool)


def _view(pool: np.ndarray, slot: Any) -> np.ndarray:
    start = int(slot["offset_bytes"])
    return pool[start : start + int(slot["size_bytes"])].view(str(slot["dtype"]))


def run_sanitized(together: Together) -> list[list[np.ndarray]]:
    """The outputs of each network, run with the sanitizers."""
    return Running(together).run(together.inputs)


def assert_equals_references(
    models: Mapping[str, bytes],
    draw: Callable[[np.random.Generator, Network], Sequence[np.ndarray]],
    folder: Path,
    steps: int = 1,
    what: str | None = None,
) -> Problem:
    """Models of one operator each, in one program, make what their references do, step after step; its problem.

    `what`: the references are this one.
    """
    references = [TFLiteReference(model, name) for name, model in models.items()]
    networks = [read_network(model, name) for name, model in models.items()]
    rng, wrong = np.random.default_rng(len(models)), set()
    sequence = [[draw(rng, network) for network in networks] for _ in range(steps)]
    running = Running(Together(networks, sequence[0], folder))
    for inputs in sequence:
        for reference, given, made in zip(references, inputs, running.run(inputs), strict=True):
            for ours, theirs in zip(made, reference.step(given), strict=True):
                same = np.array_equal(ours.reshape(-1), theirs.reshape(-1), equal_nan=ours.dtype.kind == "f")
                if ours.dtype != theirs.dtype or not same or what not in (None, reference.what):
                    wrong.add(f"{reference.name}: {reference.what}")
    assert wrong == set()
    return running.together.extracted.problem


def run_with(together: Together, command: Sequence[str]) -> list[list[np.ndarray]]:
    """The outputs of each network where `command`, a compiler and its flags, makes the C."""
    folder = together.folder
    name = f"many{''.join(command)}.so".replace("/", "_")
    sources = [str(folder / "many.c"), str(folder / "many_host.c")]
    subprocess.run([*command, "-std=c11", "-fPIC", "-shared", *sources, "-o", str(folder / name), "-lm"], check=True)
    pool = together.pool()
    function = ctypes.CDLL(str(folder / name)).many_run
    function.restype = ctypes.c_int32
    assert function((ctypes.c_void_p * 1)(pool.ctypes.data)) == 0
    return together.outputs(pool)


def networks_that_differ(
    together: Together, ways: Sequence[tuple[str, str]], expected: Sequence[Sequence[np.ndarray]]
) -> list[str]:
    """Networks that give other bytes than `expected` where a compiler and a level make the C, and these."""
    wrong = []
    for way in ways:
        found = run_with(together, [*way, *REQUIRED_FLAGS])
        for network, ours, theirs in zip(together.networks, found, expected, strict=True):
            if any(a.tobytes() != b.tobytes() for a, b in zip(ours, theirs, strict=True)):
                wrong.append(f"{network.name} {' '.join(way)}")
    return wrong
