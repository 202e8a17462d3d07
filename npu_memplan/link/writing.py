"""The directory of an application: an artifact for each network, the plan of them all, C that joins them.

Invariant: the directory is itself an artifact that `verify`, `report` and `explain` read: its problem is the joint one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..artifact.application import Application, ApplicationError, LinkedNetwork, named
from ..artifact.model import Artifact
from ..artifact.parts import Call, TensorSlot
from ..files.paths import copy_folder
from ..names import model_name
from ..pipeline import build
from ..report.facts.contention import WrittenNetwork, contention
from ..report.writing import record, write
from .application_c import c_texts
from .joint import shift_of
from .networks import FOLDER, Given, Linked, Weights, kept_bytes, problem_and_plan


def write_application(
    linked: Linked, name: str, folder: Path, together: Sequence[tuple[str, str]], rates: Weights
) -> tuple[Application, Artifact]:
    """Write everything into an empty directory; the application and the artifact of its joint plan."""
    name = model_name(name)
    artifacts: dict[str, Artifact] = {}
    for network, made in linked.networks.items():
        if network.upper() == name.upper():
            raise ApplicationError(f"application and network would both be called {name} in C; choose another -o")
        place = folder / network
        if isinstance(made, Given):
            copy_folder(made.folder, place)
            artifacts[network] = made.artifact
            continue
        place.mkdir()
        artifacts[network] = write(build(made), place)
    written = {n: WrittenNetwork(artifact, folder / n, linked.npus.get(n, "")) for n, artifact in artifacts.items()}
    contentions = contention(written, linked.plan, together)
    application = Application(
        name,
        tuple(
            LinkedNetwork(
                network,
                rates.get(network, 1.0),
                artifact.estimated_cycles,
                dict(linked.alone_bytes[network]),
                kept_bytes(artifact.problem),
                linked.npus.get(network, ""),
                contentions.get(network),
            )
            for network, artifact in artifacts.items()
        ),
        tuple(together),
        linked.connected,
    )
    sources = folder / FOLDER
    sources.mkdir()
    files = {}
    for file, text in c_texts(name, artifacts, linked.plan, linked.npus).items():
        (sources / file).write_text(text, encoding="utf-8")
        files[f"source {file}"] = f"src/{file}"
    application.save(folder)
    joint = replace(_joint_artifact(linked, name, artifacts), files={**files, "application": "app.json",
                                                                      "memory": "memory.txt"})  # fmt: skip
    return application, record(joint, folder)


def _joint_artifact(linked: Linked, name: str, artifacts: dict[str, Artifact]) -> Artifact:
    first = next(iter(artifacts.values()))
    problems = {network: problem_and_plan(one)[0] for network, one in linked.networks.items()}

    def slots(kind: str) -> tuple[TensorSlot, ...]:
        return tuple(
            replace(slot, name=f"{network}: {slot.name}")
            for network, artifact in artifacts.items()
            for slot in getattr(artifact, kind)
        )

    def calls(network: str, artifact: Artifact) -> list[Call]:
        shift = shift_of(problems, network)
        return [
            replace(
                call,
                function=named(network, call.function),
                reads=tuple(named(network, n) for n in call.reads),
                writes=tuple(named(network, n) for n in call.writes),
                points=(call.points[0] + shift, call.points[1] + shift),
                operators=(),
            )
            for call in artifact.calls
        ]

    digests = "".join(artifact.source_sha256 for artifact in artifacts.values())
    return Artifact(
        name=name,
        source=" ".join(artifact.source for artifact in artifacts.values()),
        source_sha256=hashlib.sha256(digests.encode()).hexdigest(),
        target=first.target,
        problem=linked.problem,
        plan=linked.plan,
        regions=first.regions,
        inputs=slots("inputs"),
        outputs=slots("outputs"),
        states=slots("states"),
        calls=tuple(call for network, artifact in artifacts.items() for call in calls(network, artifact)),
        constants_bytes=sum(artifact.constants_bytes for artifact in artifacts.values()),
        stream_bytes=sum(artifact.stream_bytes for artifact in artifacts.values()),
        npu_operations=sum(artifact.npu_operations for artifact in artifacts.values()),
    )
