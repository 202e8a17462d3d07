"""A record of evidence (programs, runners, results, estimates), and its page.

Invariant: the same machine, tools and set give the same bytes; no clock and no path is in a record, and the page says
what the record has. `counted_by` is "Arm's FVP" only where its binary ran; what our NPU model counted says that it is
an estimate.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import NpuMemplanError
from ..files.paths import read_bytes
from ..report.page.tables import Cell, PageTable, tables_page

FORMAT = "npu_memplan evidence 1"
FVP = "Arm's FVP"
MODEL = "our NPU model, an estimate"


class EvidenceError(NpuMemplanError):
    """The set is not whole, does not have what was requested, or a record is none."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of one inference, all NPU calls added: cycles, and data beats on the AXI ports."""

    cycles: int | None = None
    axi0_read: int | None = None
    axi0_written: int | None = None
    axi1_read: int | None = None
    axi1_written: int | None = None


@dataclass(frozen=True, slots=True)
class Hazards:
    """The waits and dependencies that keep operations of the streams apart, and what our model's checks found."""

    kernel_waits: int
    dma_waits: int
    close_kernels: int  # that may start before the one before them has ended: BLOCKDEP above 0
    found: tuple[str, ...] = ()  # nothing: no hazard


@dataclass(frozen=True, slots=True)
class RecordedOutput:
    name: str
    elements: int
    sha256: str
    mismatches: int | None = None  # None: there was no reference to compare with


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One network as one program, run once."""

    network: str
    network_sha256: str
    program: str
    flags: tuple[str, ...]  # of npu-memplan compile
    plan_sha256: str = ""
    pools_bytes: dict[str, int] = field(default_factory=dict)
    stream_sha256: str = ""
    input: str = ""
    outputs: tuple[RecordedOutput, ...] = ()
    counted: Counters = Counters()
    estimated: Counters = Counters()
    hazards: Hazards | None = None
    transcript: tuple[str, ...] = ()  # what the firmware and the simulator printed, without the outputs' bytes
    error: str = ""  # why there is no result

    @property
    def exact(self) -> bool | None:
        """Every element of every output is the reference's; None: not compared."""
        if self.error:
            return False
        if any(output.mismatches is None for output in self.outputs):
            return None
        return all(output.mismatches == 0 for output in self.outputs)


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    runner: str
    runner_version: str
    counted_by: str
    accelerator: str
    board: str
    system_config: str
    reference: str  # empty: none was installed
    versions: dict[str, str]
    machine: str
    runs: tuple[ProgramRun, ...]
    remarks: tuple[str, ...] = ()
    adapters_set: bool = False  # timing adapters had the speeds of `system_config` in each run, read back
    format: str = FORMAT
    sha256: str = ""  # of this record without it

    def add_digest(self) -> EvidenceRecord:
        return replace(self, sha256=record_digest(self))

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def verdict_text(self) -> str:
        exact = sum(run.exact is True for run in self.runs)
        failed = sum(bool(run.error) for run in self.runs)
        wrong = sum(run.exact is False and not run.error for run in self.runs)
        parts = [f"{exact} of {len(self.runs)} programs bit-exact on {self.runner}"]
        if wrong:
            parts.append(f"{wrong} WRONG")
        if failed:
            parts.append(f"{failed} without a result")
        if not self.reference:
            parts.append("not compared with a reference")
        return f"{', '.join(parts)}; cycles and beats counted by {self.counted_by}"


def record_digest(record: EvidenceRecord) -> str:
    """SHA-256 of a record without its own."""
    plain: Any = msgspec.to_builtins(replace(record, sha256=""))
    if not record.adapters_set:  # records made before there was this keep their digest
        del plain["adapters_set"]
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def read_record(path: Path) -> EvidenceRecord:
    """The record in a file; `EvidenceError` where it is none, or was changed."""
    try:
        record: EvidenceRecord = msgspec.json.decode(read_bytes(path), type=EvidenceRecord)
    except OSError as error:
        raise EvidenceError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"{path} is no record of evidence: {error}") from None
    if record.format != FORMAT:
        raise EvidenceError(f"{path} is {record.format!r}; this version reads {FORMAT!r}")
    if record.sha256 != record_digest(record):
        raise EvidenceError(f"{path} was changed after it was made: its SHA-256 is {record_digest(record)}")
    return record


_COLUMNS = (
    "network", "program", "outputs", "cycles", "estimated", "AXI0 read", "estimated", "AXI0 written", "estimated",
    "AXI1 read", "estimated", "waits", "hazards found",
)  # fmt: skip


def record_page(record: EvidenceRecord) -> str:
    """The text of evidence.html."""
    facts = [
        ("counted by", record.counted_by),
        ("runner", f"{record.runner} {record.runner_version}".strip()),
        ("accelerator", f"{record.accelerator} ({record.system_config})"),
        ("board", record.board or "none: in this process"),
        ("reference", record.reference or "none was installed"),
        ("machine", record.machine),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items() if version)),
        ("SHA-256 of the record", record.sha256),
        *(("remark", remark) for remark in record.remarks),
    ]
    digests = [
        (run.network, run.program, run.plan_sha256[:16], run.stream_sha256[:16],
         ", ".join(o.sha256[:16] for o in run.outputs))
        for run in record.runs
    ]  # fmt: skip
    return tables_page(
        "Evidence",
        f"{record.runner}, {record.accelerator}: {record.verdict_text()}",
        [],
        [
            PageTable("Record", ("what", "is"), facts),
            PageTable("Programs", _COLUMNS, [_run_row(run) for run in record.runs]),
            PageTable("Digests", ("network", "program", "plan", "streams", "outputs"), digests),
        ],
        "Estimates are of npu_memplan's model of time. What an emulator counts is that same model.",
    )


def _run_row(run: ProgramRun) -> tuple[Cell, ...]:
    names = ("cycles", "axi0_read", "axi0_written", "axi1_read")
    figures = [getattr(counters, name) for name in names for counters in (run.counted, run.estimated)]
    hazards = run.hazards
    waits = None if hazards is None else hazards.kernel_waits + hazards.dma_waits
    found = None if hazards is None else "; ".join(hazards.found) or "none"
    return (run.network, run.program, verdict_of(run), *figures, waits, found)


def verdict_of(run: ProgramRun) -> str:
    if run.error:
        return run.error.splitlines()[0]
    exact = run.exact
    return "not compared" if exact is None else "bit-exact" if exact else "WRONG"
