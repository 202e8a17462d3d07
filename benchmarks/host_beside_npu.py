"""How much sooner networks would end if CPU and NPU ran calls side by side that do not depend on each other.

    python -m benchmarks.host_beside_npu MODEL.tflite... [--effort quick]

A row a network that has calls of both: milliseconds of the NPU, of the CPU, in all, and side by side: each agent takes
its calls in the program's order, as soon as those they depend on have ended. Memory is not looked at: buffers of calls
that run at the same time could not share bytes, so this is the most there is to gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.compiler import plan_model
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent


@dataclass(frozen=True, slots=True)
class Task:
    """A call: its agent, milliseconds, and the buffers that it reads and writes."""

    agent: Agent
    milliseconds: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def tasks_of(artifact: Artifact) -> list[Task]:
    """The calls in program order; those that nobody has estimated take no time."""
    host = {row.function: row.cycles for row in artifact.host_layers}
    npu_hz = artifact.timing.clock_hz if artifact.timing else 1.0
    return [
        Task(
            call.agent,
            1000 * host.get(call.function, 0) / artifact.host_clock_hz
            if call.agent is Agent.HOST
            else 1000 * (call.estimated_cycles or 0) / npu_hz,
            call.reads,
            call.writes,
        )
        for call in artifact.calls
    ]


def side_by_side_ms(tasks: Sequence[Task]) -> float:
    """When the last call ends: a call waits for who wrote what it reads, and for all that use what it writes."""
    free: dict[Agent, float] = {}
    written: dict[str, float] = {}  # when the last writer of a buffer ends
    used: dict[str, float] = {}  # when the last reader or writer ends
    for task in tasks:
        waits = [written.get(name, 0.0) for name in task.reads] + [used.get(name, 0.0) for name in task.writes]
        end = max([free.get(task.agent, 0.0), *waits]) + task.milliseconds
        free[task.agent] = end
        written |= dict.fromkeys(task.writes, end)
        used |= {name: max(end, used.get(name, 0.0)) for name in (*task.reads, *task.writes)}
    return max(free.values(), default=0.0)


def main() -> None:
    """A row a network that has calls of both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--effort", default="quick")
    chosen = parser.parse_args()
    print("| network | NPU ms | CPU ms | total | side by side | less |\n|---|--:|--:|--:|--:|--:|")
    for model in chosen.models:
        artifact = plan_model(model, CompileOptions(effort=chosen.effort)).artifact
        tasks = tasks_of(artifact)
        each = [sum(task.milliseconds for task in tasks if task.agent is agent) for agent in (Agent.NPU, Agent.HOST)]
        if all(each):
            made, total = side_by_side_ms(tasks), sum(each)
            cells = " | ".join(f"{value:.3f}" for value in (*each, total, made))
            print(f"| {model.stem} | {cells} | {100 * (1 - made / total):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
