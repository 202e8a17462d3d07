"""What a compiled model is: `plan.json`, and the names of the files next to it.

Invariant: `Artifact.load(directory)` gives back exactly the object that was saved, so runners
and reports need nothing but the artifact directory. The schema is `schemas.json_schema("artifact")`, explained in
docs/reference.md; its version changes when a reader would have to. `json` reads and checks it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..files.paths import check_folder, read_text
from ..options import CompileOptions
from ..problem import Agent, BufferKind, Plan, Pool, Problem, RowStream
from ..target_data import load_board
from .check import NOT_REQUESTED, CheckResult
from .json import artifact_from_json, artifact_to_json
from .parts import FILE_NAME, ArtifactError, Call, Operator, TensorSlot
from .timing import HostLayer, Layer, Timing

if TYPE_CHECKING:
    from ..ethosu.time import MemoryMap


@dataclass(frozen=True, slots=True, repr=False)
class Artifact:
    """A compiled model. `regions[i]` is the NPU region of `problem.pools[i]`; `target` is all options."""

    name: str
    source: str  # file name of the model, without folders
    source_sha256: str
    target: CompileOptions  # resolved
    problem: Problem
    plan: Plan
    regions: tuple[int, ...]
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    states: tuple[TensorSlot, ...] = ()
    calls: tuple[Call, ...] = ()
    operators: tuple[Operator, ...] = ()
    constants_bytes: int = 0  # weights, scales and tables in read-only memory
    stream_bytes: int = 0  # command streams
    limit_bytes: Mapping[str, int] = field(default_factory=dict)  # by pool, within which the program was chosen
    vela_arena_bytes: Mapping[str, int] = field(default_factory=dict)  # by pool, Vela's own, of the same buffers
    backend: str = ""  # what made the NPU's operations, as `tuning` names it, where several compete
    npu_operations: int = 0  # kernels and DMAs in the command streams
    timing: Timing | None = None  # of the NPU's calls, estimated
    layers: tuple[Layer, ...] = ()  # the same by operator of the source model
    host_layers: tuple[HostLayer, ...] = ()  # of the host's calls, roughly
    files: Mapping[str, str] = field(default_factory=dict)  # role -> path relative to the directory
    check: CheckResult = NOT_REQUESTED  # of its results
    notes: tuple[str, ...] = ()  # what the user should know of this compile

    def __repr__(self) -> str:
        """One line: `<Artifact kws: ethos-u55-256, sram 22,096 bytes, optimal, about 41,966 NPU cycles, 0 on host>`."""
        where = self.target.board or self.target.accelerator
        pools = ", ".join(f"{pool.name} {self.pool_bytes(pool.name):,} bytes" for pool in self.run_pools)
        cycles = "" if self.estimated_cycles is None else f"about {self.estimated_cycles:,} NPU cycles, "
        status = self.plan.status.value
        return f"<Artifact {self.name}: {where}, {pools}, {status}, {cycles}{self.host_operations} on host>"

    @property
    def host_operations(self) -> int:
        """Calls of main that run on the CPU."""
        return sum(call.agent is Agent.HOST for call in self.calls)

    @property
    def estimated_cycles(self) -> int | None:
        """Estimated NPU cycles of one inference; None without NPU calls."""
        return _total(call.estimated_cycles for call in self.calls)

    @property
    def host_cycles(self) -> int | None:
        """Rough cycles of the host's calls, of its own clock; None without any."""
        return _total(row.cycles for row in self.host_layers)

    @property
    def host_clock_hz(self) -> float:
        """The host's clock: the board's, else taken as the NPU's; 0: unknown."""
        board = load_board(self.target.board) if self.target.board else None
        if board is not None and board.clock.cpu_hz:
            return board.clock.cpu_hz
        return self.timing.clock_hz if self.timing is not None else 0.0

    @property
    def npu_macs(self) -> int | None:
        """Multiply-accumulates of one inference on the NPU; None without NPU calls."""
        return _total(call.macs for call in self.calls)

    @property
    def memory_map(self) -> MemoryMap | None:
        """Which memory each of the NPU's regions is in; None without an NPU."""
        from ..ethosu.time import Needs

        regions = dict(zip(self.regions, (p.name for p in self.problem.pools), strict=True))
        used = {usage.pool: usage.used_bytes for usage in self.plan.usage}
        return self.target.memory_map(regions, Needs(used, self.constants_bytes + self.stream_bytes))

    @property
    def run_pools(self) -> tuple[Pool, ...]:
        """The pools that the caller of `run` provides; read-only ones are in the generated code."""
        return tuple(pool for pool in self.problem.pools if not pool.read_only)

    @property
    def resident_bytes(self) -> int:
        """Constants in writable pools, which `<name>_init` puts there once."""
        return sum(buffer.size_bytes for buffer in self.problem.buffers if buffer.kind is BufferKind.RESIDENT)

    @property
    def init_cycles(self) -> int:
        """Cycles of the NPU's clock that reading these from the memory of constants takes at least, once."""
        from ..ethosu.time import Traffic

        size, memory_map = self.resident_bytes, self.memory_map
        if not size or memory_map is None:
            return 0
        return math.ceil(memory_map.regions[0].cycles(Traffic(size, -(-size // 16), -(-size // 64)), False, 1))

    @property
    def has_init(self) -> bool:
        """Whether `<name>_init` is to be called before the first run."""
        return self.resident_bytes > 0

    @property
    def stream(self) -> tuple[int, RowStream] | None:
        """Which input comes row by row, in `size_bytes` for some of its rows, and how; None: none does."""
        names = [slot.name for slot in self.inputs]
        if not self.problem.streams or self.target.stream_input not in names:
            return None
        return names.index(self.target.stream_input), self.problem.streams[0]

    def pool_bytes(self, pool: str) -> int:
        """Bytes that pool `pool` must have for this plan."""
        for usage in self.plan.usage:
            if usage.pool == pool:
                return usage.used_bytes
        raise ArtifactError(f"{self.name} has no pool called {pool!r}")

    to_json = artifact_to_json
    from_json = classmethod(artifact_from_json)

    @classmethod
    def load(cls, directory: Path | str) -> Artifact:
        """The artifact in `directory`; `ArtifactError` when there is none."""
        path = Path(directory) / FILE_NAME
        if path.is_symlink():
            check_folder(Path(directory))
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            if Path(directory).is_file():
                raise ArtifactError(
                    f"{directory} is a file, not the directory of a compiled model; "
                    "make one with: npu-memplan compile MODEL.tflite -o DIRECTORY"
                ) from None
            reason = error.strerror if isinstance(error, OSError) else "not text"
            parent = Path(directory).parent
            has_it = (parent / FILE_NAME).is_file()
            advice = f"give {parent}" if has_it else f"make one with: npu-memplan compile MODEL.tflite -o {directory}"
            raise ArtifactError(f"{directory} is no compiled model: cannot read {path} ({reason}); {advice}") from None
        check_folder(Path(directory))
        return cls.from_json(text, str(path))

    @classmethod
    def load_verified(cls, directory: Path | str) -> Artifact:
        """`load`, and `VerificationError` when the plan violates a constraint: for reports and explanations."""
        from ..verify import check

        artifact = cls.load(directory)
        check(artifact.problem, artifact.plan)
        return artifact

    def save(self, directory: Path | str) -> None:
        """Write plan.json into an existing `directory`."""
        (Path(directory) / FILE_NAME).write_text(self.to_json(), encoding="utf-8")


def _total(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
