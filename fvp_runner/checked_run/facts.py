"""What a checked run found, as data that passes between processes.

Invariant: equal programs and inputs give equal facts; no times, no paths, no addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..result import OperatorResult, OutputComparison

REFERENCE, PROGRAM, OPERATORS = "reference", "program", "operators"  # phases
PHASE, FACTS, FAULT = "phase", "facts", "fault"  # what a line of the process has


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The subject of a run: an artifact's directory or a file for TFLite Micro, its source model, inputs."""

    directory: str
    model: str
    inputs: tuple[str, ...]
    operators: tuple[str, ...] = ()  # Python files that describe operators of the user's own
    io: str = "file"  # the option of `compile`: the ends of the reference, too


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One inference."""

    input: str
    outputs: tuple[OutputComparison, ...] = ()
    stopped: str = ""  # why there are no outputs: the message of a check of the run
    operator: int = -1  # of the source model, that was run then; -1: not known
    limits: tuple[float, ...] = ()  # of each output, what steps of one in every layer make of it, where that is known
    operators: tuple[OperatorResult, ...] = ()  # where outputs differ and single operators can be seen

    @property
    def has_difference(self) -> bool:
        return bool(self.stopped) or any(output.mismatches for output in self.outputs)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """All inferences; `refused`: why nothing could be compared."""

    refused: str = ""
    reference: str = ""
    reference_package: str = ""  # that it is part of; its version is looked up where that takes no time
    runs: tuple[InputFacts, ...] = ()
    references_disagree: str = ""  # on an input whose outputs differ: which operators two references make otherwise
