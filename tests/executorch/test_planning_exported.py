"""`memory_planning` inside ExecuTorch: exported models planned, emitted and run, against its greedy planner.

Needs the extra `executorch`, in an environment of its own; skipped elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge  # noqa: E402
from executorch.exir.passes import MemoryPlanningPass  # noqa: E402
from executorch.runtime import Runtime  # noqa: E402
from torch import nn  # noqa: E402

from npu_memplan.executorch import BankError, memory_planning  # noqa: E402
from npu_memplan.models.executorch.program import read_program  # noqa: E402


class Branches(nn.Module):  # type: ignore[misc]
    """Maps of many sizes that live side by side, then elementwise operators in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.thin = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(3, 5, 3, stride=2, padding=1)
        self.down, self.join = nn.Conv2d(24, 7, 3, stride=2, padding=1), nn.Conv2d(12, 4, 1)

    def forward(self, x: Any) -> Any:
        a, b = torch.relu(self.wide(x)), torch.sigmoid(self.thin(x))
        y = self.join(torch.cat([self.down(a) * 2 + 1, b], 1))
        return torch.tanh(y) * torch.sigmoid(y) + y


class Chooses(nn.Module):  # type: ignore[misc]
    """Control flow: bodies with tensors of their own, results used afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        y = self.first(torch.sigmoid(x) @ torch.ones(32, 32))
        z = torch.cond(y.sum() > 0, lambda t: torch.relu(t + 1) * t - 1, lambda t: torch.sigmoid(t * 2) + t, (y,))
        return torch.tanh(y * 3) + z.exp() + x


class Counts(nn.Module):  # type: ignore[misc]
    """A mutable buffer, which keeps its value from one inference to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x: Any) -> Any:
        self.seen.add_(x)
        return torch.sigmoid(torch.relu(x) * 2) + self.seen


MODELS: dict[str, tuple[Callable[[], Any], Any]] = {
    "branches": (Branches, (1, 3, 24, 24)), "chooses": (Chooses, (4, 32)), "counts": (Counts, (16,)),
    "recurrent": (lambda: Last(nn.LSTM(16, 32, 2, batch_first=True)), (1, 20, 16)),
}  # fmt: skip


class Last(nn.Module):  # type: ignore[misc]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0][:, -1]


def emitted(edge: Any, algorithm: Any, **how: Any) -> bytes:
    planning = MemoryPlanningPass(memory_planning_algo=algorithm, **how)
    done = copy.deepcopy(edge).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    return bytes(done.buffer)


def exported(name: str) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(3)
    make, shape = MODELS[name]
    model, example = make().eval(), (torch.randn(*shape),)
    program = torch.export.export(model, example)
    return to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False)), example


def run_steps(program: bytes, example: tuple[Any, ...]) -> list[Any]:
    method = Runtime.get().load_program(program).load_method("forward")
    return [output.clone() for sign in (1, -1, 0.5) for output in method.execute([sign * example[0]])]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("in_place", [False, True])
def test_planned_programs_give_what_greedys_give_in_no_more_bytes(name: str, in_place: bool) -> None:
    edge, example = exported(name)
    planner = memory_planning(in_place=in_place)
    ours, theirs = emitted(edge, planner), emitted(edge, None)
    sizes = [sum(read_program(one).methods[0].planned_bytes.values()) for one in (ours, theirs)]
    report = planner.reports[-1]
    assert sizes[0] == report.planned_bytes <= sizes[1]
    assert report.status == "optimal"
    for got, wanted in zip(run_steps(ours, example), run_steps(theirs, example), strict=True):
        assert torch.equal(got, wanted)


def test_banks_hold_what_is_put_into_them() -> None:
    edge, example = exported("branches")
    whole = memory_planning()
    reference = emitted(edge, whole)
    limit = whole.reports[0].planned_bytes // 32 * 16
    split = emitted(edge, memory_planning({2: limit, 1: None}))
    sizes = read_program(split).methods[0].planned_bytes
    assert 0 < sizes[2] <= limit
    assert sizes[1] > 0
    for got, wanted in zip(run_steps(split, example), run_steps(reference, example), strict=True):
        assert torch.equal(got, wanted)
    with pytest.raises(BankError):
        emitted(edge, memory_planning({1: limit}))


@pytest.mark.parametrize("given", [False, True])
def test_inputs_and_outputs_may_be_the_callers(given: bool) -> None:
    edge, _ = exported("branches")
    planner = memory_planning()
    program = read_program(emitted(edge, planner, alloc_graph_input=given, alloc_graph_output=given)).methods[0]
    tensor = program.tensor(program.inputs[0])
    assert tensor is not None
    assert (tensor.place is not None) is given
