"""Milliseconds of NPU and CPU, now and before, and how much sooner networks would end with both side by side.

    python -m benchmarks.host_beside_npu MODEL.tflite|ARTIFACT... [--effort quick] [--before FOLDER]

With `--before`, a folder with another commit's artifacts, each named like its network: a row a network with calls of
the CPU, and the geometric mean of the totals' ratios. The NPU's time is each commit's estimate, the CPU's what QEMU's
Cortex-M55 counts of both commits' C (`host_instructions`), one cycle an instruction. Without, a row a network that has
calls of both: milliseconds of the NPU, of the CPU, in all, and side by side: each agent takes its calls in the
program's order, as soon as those they depend on have ended. Memory is not looked at: buffers of calls that run at the
same time could not share bytes, so this is the most there is to gain.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from benchmarks.host_instructions import counted
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


def artifact_of(model: Path, effort: str) -> Artifact:
    """The artifact in a folder, or that of a model."""
    return Artifact.load(model) if model.is_dir() else plan_model(model, CompileOptions(effort=effort)).artifact


def agent_milliseconds(folder: Path) -> tuple[float, float]:
    """Milliseconds of NPU and CPU of an artifact of any commit."""
    said = json.loads((folder / "plan.json").read_text())
    clock = said["timing"]["clock_hz"] if said["timing"] else 500e6
    npu = sum(call["estimated_cycles"] or 0 for call in said["calls"])
    instructions, _, _ = counted(folder, "cortex-m55")
    return 1000 * npu / clock, 1000 * instructions / (said["target"].get("cpu_clock_hz") or clock)


def has_host_calls(folder: Path) -> bool:
    """Whether an artifact has calls of the CPU."""
    return any(call["agent"] == "host" for call in json.loads((folder / "plan.json").read_text())["calls"])


def print_change(before: Path, now: Sequence[Path]) -> None:
    """A row a network with calls of the CPU, and the geometric mean of the ratios."""
    print("| network | before: NPU ms | CPU ms | total | now: NPU ms | CPU ms | total | now / before |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    ratios = []
    for folder in now:
        was = before / folder.name
        if not was.is_dir() or not any(map(has_host_calls, (was, folder))):
            continue
        each = agent_milliseconds(was), agent_milliseconds(folder)
        ratios.append(sum(each[1]) / sum(each[0]))
        cells = " | ".join(f"{value:.3f}" for times in each for value in (*times, sum(times)))
        print(f"| {folder.name} | {cells} | {ratios[-1]:.3f} |", flush=True)
    if ratios:
        print(f"| geometric mean of {len(ratios)} | | | | | | | {geometric_mean(ratios):.3f} |")


def main() -> None:
    """A row a network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--before", type=Path)
    chosen = parser.parse_args()
    if chosen.before is not None:
        print_change(chosen.before, chosen.models)
        return
    print("| network | NPU ms | CPU ms | total | side by side | less |\n|---|--:|--:|--:|--:|--:|")
    for model in chosen.models:
        artifact = artifact_of(model, chosen.effort)
        tasks = tasks_of(artifact)
        each = [sum(task.milliseconds for task in tasks if task.agent is agent) for agent in (Agent.NPU, Agent.HOST)]
        if all(each):
            made, total = side_by_side_ms(tasks), sum(each)
            cells = " | ".join(f"{value:.3f}" for value in (*each, total, made))
            print(f"| {model.stem} | {cells} | {100 * (1 - made / total):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
