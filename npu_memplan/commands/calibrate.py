"""`npu-memplan calibrate`: the figures of a memory system from the counters of a record.

Invariant: a file is written only where the record decides every figure requested. Exit codes: 0 written,
2 bad use, or a record that does not decide them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..command_line.values import FILE, PLACE, names
from ..files.whole_file import write_whole

if TYPE_CHECKING:
    from ..evidence.calibration import Calibration

_USUAL = ("bytes_per_cycle", "read_latency", "kernel_start")  # of every memory; counts are known more often


@click.command(help="Fit the figures of a memory system to a record of micro-streams (evidence --micro), and write "
               "them as a vela.ini for compile.")  # fmt: skip
@click.argument("record", type=PLACE, metavar="EVIDENCE.json")
@click.option("--fit", default="", type=names, metavar="NAME,NAME", help="The figures to fit, such as "
              "flash.bytes_per_cycle; others keep the system configuration's values. Default: rates and read latencies "
              "of all memories, and kernel_start.")  # fmt: skip
@click.option("--counter-step", type=click.IntRange(min=1), default=1, show_default=True, metavar="CYCLES",
              help="Steps that the record's counter moves in; Arm's FVPs: about 1000.")  # fmt: skip
@click.option("--name", default="Measured", show_default=True, help="Of the system configuration in the file.")
@click.option("-o", "--output", type=FILE, metavar="FILE.ini", help="The vela.ini to write.")
def command(record: Path, fit: tuple[str, ...], counter_step: int, name: str, output: Path | None) -> None:
    from ..evidence.calibration import (
        CalibrationError,
        Facts,
        calibrate,
        explain_undecided,
        observations,
        parameters_of,
        system_ini,
    )
    from ..evidence.micro import micro_options
    from ..evidence.record import read_record

    npu, measured = observations(read_record(record))
    memory_map = micro_options(npu).memory_map()
    assert memory_map is not None
    facts = Facts(npu, memory_map)
    known = parameters_of(facts, frozenset({memory_map.stream.name}))
    unknown = [named for named in fit if named not in {p.name for p in known}]
    if unknown:
        raise CalibrationError(f"no figure is called {unknown[0]!r}; there are: {', '.join(p.name for p in known)}")
    chosen = [p for p in known if (p.name in fit if fit else p.name.rpartition(".")[2] in _USUAL)]
    if len(chosen) > len(measured):
        raise CalibrationError(
            f"{len(measured)} streams cannot decide {len(chosen)} figures; name fewer with --fit, or run more streams"
        )
    found = calibrate(facts, chosen, measured, counter_step)
    _print(found)
    if found.undecided:
        there = {stream.name for stream in measured}
        reasons = [explain_undecided(f, there, counter_step) for f in found.undecided]
        raise CalibrationError("the record does not decide all figures:\n  " + "\n  ".join(reasons))
    if output is not None:
        start = f"kernel_start: {found.facts.accelerator.launch_cycles:.0f} cycles, which a vela.ini cannot say"
        comments = (f"fitted to {record.name} by npu-memplan calibrate", start)
        write_whole(output, system_ini(name, found.facts.memory_map, comments).encode())
        click.echo(f"written to {output}: compile --vela-ini {output} --system-config {name}")


def _print(found: Calibration) -> None:
    for fitted in found.fitted:
        decided = "" if fitted.decided else "  NOT DECIDED"
        click.echo(f"{fitted.parameter.name:24} {fitted.value:10,.3f} {fitted.parameter.unit}{decided}")
    click.echo(f"largest residual: {found.worst:.2%}")
    for name, counted, estimated in found.residuals:
        click.echo(f"  {name:22} counted {counted:>11,}  estimated {estimated:>11,}  {estimated / counted - 1:+.2%}")
