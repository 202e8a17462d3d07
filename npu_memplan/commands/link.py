"""`npu-memplan link`: several networks in one memory, as one application.

Invariant: the output directory appears complete or not at all; a network is what `compile` makes of it with the same
options, addresses aside.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..command_line import PLACE, GroupedCommand, Verbosity, by_name, option_group, show_progress, verbosity
from ..files.arrays import check_unused
from ..files.folders import check_place, staged_directory
from ..names import split_names
from ..sizes import bytes_and_kib, count_text, milliseconds_text, parse_named_size, percent_text

if TYPE_CHECKING:
    from ..artifact import Artifact
    from ..artifact.files import Application, LinkedNetwork
    from ..link.networks import Compile
    from ..options import CompileOptions

_memory, _output, _checks = option_group("Memory"), option_group("Output files"), option_group("Checks")


def _rates(_: click.Context, __: click.Parameter, texts: Iterable[str]) -> dict[str, float]:
    found = {}
    for text in (part for given in texts for part in split_names(given)):
        name, _equals, rate = text.partition("=")
        try:
            found[name.strip()] = float(rate)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no NAME=NUMBER, e.g. kws=50") from None
    return found


def _pairs(_: click.Context, __: click.Parameter, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    groups = [split_names(text) for text in texts]
    if any(len(group) < 2 for group in groups):
        raise click.BadParameter("name at least two networks, e.g. kws,vww")
    return tuple((one, other) for group in groups for i, one in enumerate(group) for other in group[i + 1 :])


def _connections(_: click.Context, __: click.Parameter, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found = [text.partition("=") for text in texts]
    if wrong := [one + equals + other for one, equals, other in found if ":" not in one or ":" not in other]:
        raise click.BadParameter(f"{wrong[0]!r} is no NETWORK:OUTPUT=NETWORK:INPUT, e.g. kws:scores=filter:x")
    return tuple((one, other) for one, _equals, other in found)


def _npus(_: click.Context, __: click.Parameter, texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in (part for given in texts for part in split_names(given)):
        name, equals, npu = text.partition("=")
        if not npu.strip() and text != "auto":
            raise click.BadParameter(f"{text!r} is neither auto nor NAME=NPU, e.g. kws=ethos-u55-128")
        found[name.strip() if equals else ""] = npu.strip() if equals else text
    return found


@click.command("link", cls=GroupedCommand, help="Compile several networks for one memory: one plan, one C library.")
@click.argument("models", metavar="MODEL|DIRECTORY...", nargs=-1, required=True, type=PLACE)
@_memory("--pool", "pools", multiple=True, type=parse_named_size, callback=by_name, metavar="NAME=SIZE",
         help="Hard capacity of a pool for all networks, e.g. sram=512KiB.")  # fmt: skip
@_memory("--together", multiple=True, callback=_pairs, metavar="A,B", help="Networks that may run at the same time: "
         "they share no bytes. Without it, one runs after the other.")  # fmt: skip
@_memory("--connect", "connected", multiple=True, callback=_connections, metavar="A:OUT=B:IN", help="Output OUT of A "
         "is input IN of B, at the same bytes, which stay until A runs again.")  # fmt: skip
@_memory("--resident", default="none", show_default=True, metavar="none|auto|all|SIZE", help="Constants of the NPU "
         "that stay in the fast pool, of all networks: as for compile; auto, in the room that the networks "
         "leave.")  # fmt: skip
@_memory("--rate", "rates", multiple=True, callback=_rates, metavar="A=50,B=1", help="How many times networks run "
         "beside each other, for what stays in the pool; default: 1.")  # fmt: skip
@_memory("--npu", "npus", multiple=True, callback=_npus, metavar="A=NPU|auto", help="NPU that a network "
         "runs on, of a board with several: its accelerator, or its board file's name; auto: for all others, so that "
         "all runs end first. Default: the NPU of --board.")  # fmt: skip
@_memory("--options", default="", metavar="WORDS", help="Options of compile for all "
         "networks that are compiled; default: those of the first artifact.")  # fmt: skip
@_output("-o", "--output", required=True, type=PLACE, help="Directory to write; its name is the application's.")
@_output("--emit", type=click.Choice(["c", "vela-tflite"]), default="c", show_default=True, help="C sources, or a file "
         "of each network for TFLite Micro, as Vela writes it, for interpreters that share one arena.")  # fmt: skip
@_output("--force", is_flag=True, help="Replace a non-empty output directory.")
@_checks("--check/--no-check", "check", default=None, help="Run each network beside its reference before its results "
         "are called exact; by default where that is not much work.")  # fmt: skip
@verbosity
@option_group("Printed output")("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    models: tuple[Path, ...],
    pools: dict[str, int],
    together: tuple[tuple[str, str], ...],
    connected: tuple[tuple[str, str], ...],
    resident: str,
    rates: dict[str, float],
    npus: dict[str, str],
    options: str,
    output: Path,
    emit: str,
    force: bool,
    check: bool | None,
    as_json: bool,
    verbosity: Verbosity,
) -> None:
    from ..checking.claims import start
    from ..checking.other_outputs import link_checked
    from ..link.networks import Linked, link, network_models
    from ..link.writing import write_application
    from ..report.text.compile_result import result_texts
    from ..request import short_note
    from .compile import parse_options

    check_place(output, force)
    requested = _of_first(models) if not options else parse_options(shlex.split(options))
    requested = replace(requested, pools={**requested.pools, **pools}, resident=resident)
    requested.resolve_defaults()
    if emit != "c":
        given = {"--together": together, "--connect": connected, "--rate": rates, "--npu": npus}
        check_unused(output.name, "--emit vela-tflite", {flag: bool(value) for flag, value in given.items()})
        from ..checking.other_outputs import emit_checked
        from ..vela_tflite.emit import format_needs, write_files

        make = partial(emit_checked, mode=start(check))
        with show_progress(f"linking {len(models)} networks", verbosity), staged_directory(output, force) as folder:
            needs = write_files(models, requested, folder, make)
        click.echo(json.dumps(needs) if as_json else format_needs(needs, output))
        return
    name = output.resolve().name
    mode, files = start(check), {n: path for n, path in network_models(models, requested).items() if path.is_file()}

    def link_networks(compile_network: Compile) -> Linked:
        return link(models, requested, name, compile_network, together, rates, connected, npus)

    with show_progress(f"linking {len(models)} networks", verbosity), staged_directory(output, force) as folder:
        (application, joint), checked = link_checked(
            files, folder, link_networks, lambda linked: write_application(linked, name, folder, together, rates), mode
        )
    if as_json:
        click.echo(json.dumps(summary(application, joint, checked)))
        return
    click.echo(_verdict(application, joint))
    if verbosity is not Verbosity.QUIET:
        for network in application.networks:
            used = ", ".join(f"{pool} {bytes_and_kib(size)}" for pool, size in network.alone_bytes.items())
            npu = f", on {network.npu}" if network.npu else ""
            beside = f"; {network.contention}" if network.contention else ""
            kept = bytes_and_kib(network.kept_bytes)
            click.echo(f"  {network.name}{npu}: {_time(network)}{beside}; alone {used}; keeps {kept}")
            if network.name in checked:
                notes = (f"note: {short_note(note)}" for note in checked[network.name].notes)
                click.echo("\n".join(f"    {line}" for line in (*result_texts(checked[network.name]), *notes)))
        if any(network.contention for network in application.networks):
            click.echo(
                "  (estimated; at most: each memory serves the NPUs in turn, and the other one always waits for it)"
            )
        click.echo(f"written to {output}")


def _of_first(models: tuple[Path, ...]) -> CompileOptions:
    """The options where none are given: those of the first artifact, but for sizes; else the defaults."""
    from ..artifact import Artifact
    from ..options import CompileOptions

    folder = next((model for model in models if model.is_dir()), None)
    return CompileOptions() if folder is None else replace(Artifact.load(folder).target, pools={}, name="")


def summary(application: Application, joint: Artifact, checked: Mapping[str, Artifact]) -> dict[str, Any]:
    """The object that `--json` prints; `checked`: the networks that were compiled, by name."""
    return {
        "name": application.name,
        "status": joint.plan.status.value,
        "pools": [
            {
                "name": usage.pool,
                "used_bytes": usage.used_bytes,
                "lower_bound_bytes": usage.lower_bound_bytes,
                "alone_bytes": sum(network.alone_bytes[usage.pool] for network in application.networks),
            }
            for usage in joint.plan.usage
        ],
        "resident_bytes": joint.resident_bytes,
        "networks": [
            {key: getattr(n, key) for key in _NETWORK_KEYS}
            | {"contention": asdict(n.contention) if n.contention else None}
            | ({"check": checked[n.name].check.verdict.value} if n.name in checked else {})
            for n in application.networks
        ],
    }


_NETWORK_KEYS = ("name", "npu", "rate", "total_ms", "total_ms_least", "total_ms_most", "host_ms", "unknown_calls",
                 "estimated_cycles", "kept_bytes")  # fmt: skip


def _time(network: LinkedNetwork) -> str:
    """The time of one inference, the shares of NPU and CPU, and how many of the CPU's calls are in neither."""
    unknown = f"{count_text(network.unknown_calls, 'call')} of the CPU not estimated" if network.unknown_calls else ""
    if network.total_ms is None:
        return unknown or "time unknown"
    every = [time for time in (network.total_ms, network.total_ms_least, network.total_ms_most) if time is not None]
    text = f"about {milliseconds_text(every)} (estimated)"
    if network.host_ms is not None and network.total_ms:
        host = percent_text(network.host_ms, network.total_ms)
        text += f": NPU {percent_text(network.total_ms - network.host_ms, network.total_ms)}, CPU {host}"
    return f"{text}, {unknown}" if unknown else text


def _verdict(application: Application, joint: Artifact) -> str:
    used = []
    for usage in joint.plan.usage:
        alone = sum(network.alone_bytes[usage.pool] for network in application.networks)
        gap = usage.used_bytes > usage.lower_bound_bytes > 0
        bound = f", {usage.lower_bound_bytes:,} at least" if gap else ""
        used.append(f"{usage.pool} {usage.used_bytes:,} bytes ({alone:,} apart{bound})")
    networks = count_text(len(application.networks), "network")
    return f"{application.name}: {networks}; {', '.join(used)}, {joint.plan.status.value}"
