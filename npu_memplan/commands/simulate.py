"""`npu-memplan simulate`: run a Vela-compiled network on the NPU model.

Invariant: "bit-exact" is printed only after every element of every output was compared. Exit codes: 0 right,
1 wrong result, 2 bad use or input (or a stream that breaks a rule).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import command_line
from ..artifact.timing import Timing
from ..command_line import FILE, PLACE
from ..files.arrays import InputError, check_outputs, check_unused, read_inputs, save_arrays
from ..files.paths import write_whole
from ..models.executorch.program import is_program
from ..models.flatbuffer import read_file
from ..models.tosa import is_tosa
from ..sizes import count_text

if TYPE_CHECKING:
    from fvp_runner import LayerReport, NetworkRun, RunResult

    from ..models.network import Network


@click.command(help="Run a Vela-compiled network (.tflite, raw .npz, ExecuTorch's .pte) on the NPU model; a .tosa file "
               "is compiled by Vela first.")  # fmt: skip
@click.argument("network", type=PLACE)
@click.option("--method", default="", metavar="NAME", help="Of a .pte; default: its first.")
@click.option("--data", "external", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte.")
@click.option("--accelerator", default="", help="What a .tosa file is compiled for, e.g. ethos-u85-256; Vela's other "
              "files say it themselves.")  # fmt: skip
@click.option("--input", "inputs", multiple=True, metavar="FILE.npy|random:SEED", help="Repeat for every input; "
              "random:SEED alone fills all of them. Default: random:0.")  # fmt: skip
@click.option("--output", "outputs", multiple=True, type=FILE,
              metavar="FILE.npy", help="Keep an output; repeat for every output.")  # fmt: skip
@click.option("--reference", type=FILE, metavar="MODEL",
              help="The network before Vela: compare outputs and layers with its reference result.")  # fmt: skip
@click.option("--trace", "trace_file", type=FILE, metavar="FILE.json",
              help="Write one event per operation, for Perfetto or chrome://tracing.")  # fmt: skip
@click.option("--system-config", default="", help="The memories that cycles are estimated with: a System_Config of "
              "vela.ini, or of the FVPs; default: the accelerator's.")  # fmt: skip
@click.option("--vela-ini", default="", metavar="FILE", help="A vela.ini of your own that describes --system-config.")
@click.option("--board", default="", shell_complete=command_line.boards, help="The board whose memories and clock "
              "cycles are estimated with: a name, or a file of your own.")  # fmt: skip
@click.option("--memory-mode", default="", shell_complete=command_line.memory_modes, help="How the network was "
              "compiled; default: the accelerator's.")  # fmt: skip
@click.option("--fuzz-schedule", type=click.IntRange(0, 1000), default=0, metavar="N",
              help="Also execute every stream under N other completion orders of kernels and DMA.")  # fmt: skip
@click.option("--no-checks", is_flag=True, help="Do not look for missing waits, uninitialised reads, overflows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    network: Path,
    method: str,
    external: tuple[Path, ...],
    accelerator: str,
    inputs: tuple[str, ...],
    outputs: tuple[Path, ...],
    reference: Path | None,
    trace_file: Path | None,
    fuzz_schedule: int,
    no_checks: bool,
    as_json: bool,
    **system: Any,
) -> None:
    from fvp_runner import LayerRecorder, NetworkModel, ProgramOptions, run_program, trace_json

    from ..ethosu.time import printed_cycles
    from ..frontend.load import decoded_streams, network_memory_map, stream_bounds
    from ..options import CompileOptions

    data = read_file(network)
    if is_program(data):
        unused = {"--accelerator": accelerator, "--reference": reference, "--trace": trace_file,
                  "--fuzz-schedule": fuzz_schedule}  # fmt: skip
        check_unused(network.name, "a .pte", unused)
        own = {"method": method, "external": external, "inputs": inputs, "outputs": outputs, "as_json": as_json}
        run_program(network.name, data, ProgramOptions(**own, checks=not no_checks, system=system))  # type: ignore[arg-type]
        return
    check_unused(network.name, "no .pte", {"--method": method, "--data": external})
    parsed = _network(data, network.name, accelerator, system)
    if not parsed.npu_calls:
        raise InputError(parsed.why_nothing_runs_on_the_npu(str(network)))
    names = [parsed.tensors[i].name for i in parsed.outputs]
    check_outputs(network.name, names, outputs)
    values = read_inputs(parsed.name, [parsed.tensors[i] for i in parsed.inputs], inputs)
    original = None if reference is None else read_file(reference)
    layered = original is not None and not is_tosa(original) and not fuzz_schedule
    recorder = LayerRecorder() if layered else None
    where = network_memory_map(parsed, CompileOptions(**system))
    ran = NetworkModel(parsed, data, not no_checks, where).run(values, recorder, fuzz_schedule)
    result, layers, named = None, None, dict[str, str]()
    if original is not None:
        assert reference is not None
        result, layers, named = _compare(parsed, ran, reference, values, recorder)
    save_arrays(outputs, ran.outputs)
    if trace_file is not None:
        write_whole(trace_file, trace_json(parsed, where).encode())
    streams = decoded_streams(parsed.npu_calls)
    spent = Timing(where.clock_hz, stream_bounds(streams, where), by_model=printed_cycles(streams, where))
    document = (
        _document(parsed, ran, result, layers) | named | {"npu_clock_hz": spent.clock_hz, "npu_bounds": spent.bounds}
    )
    document |= {"checks": not no_checks, "fuzzed_schedules": fuzz_schedule}
    if as_json:
        click.echo(json.dumps(document))
    else:
        _print(document, parsed, ran, result, layers, spent)
    if result is not None and not result.bit_exact:
        raise click.exceptions.Exit(1)


def _network(data: bytes, name: str, accelerator: str, system: Mapping[str, Any]) -> Network:
    """The network to run: the file as it is, or what Vela makes of a TOSA file."""
    from ..models.tflite import read_network

    if not is_tosa(data):
        if accelerator:
            raise InputError(f"{name} says itself what it was compiled for; --accelerator is for .tosa files")
        return read_network(data, name)
    if not accelerator:
        raise InputError(f"{name} is TOSA, which Vela compiles first: give --accelerator, e.g. ethos-u85-256")
    from ..frontend.start import vela_options
    from ..options import CompileOptions
    from ..vela.compiler import compile_tosa

    return compile_tosa(data, vela_options(CompileOptions(accelerator, **system).resolve_defaults()), name).parsed


def _compare(
    network: Network, ran: NetworkRun, path: Path, values: Sequence[Any], recorder: Any
) -> tuple[RunResult, LayerReport | None, dict[str, str]]:
    """The comparison of outputs, that of layers, and what is said about the reference, by its key in the document."""
    from fvp_runner import (
        TFLiteReference,
        compare_layers,
        compare_outputs,
        describe_disagreements,
        find_disagreements,
        open_reference,
    )

    reference = open_reference(path)
    expected = reference.run(values)
    names = [network.tensors[i].name for i in network.outputs]
    cycles = sum(stats.cycles for stats in ran.stats)
    outputs = [_like(got, want) for got, want in zip(ran.outputs, expected, strict=False)]
    result = compare_outputs("npu_model", names, outputs, expected, npu_cycles=cycles)
    named = {"reference": reference.what}
    if disagreement := describe_disagreements(find_disagreements(reference, values, expected)):
        named["references_disagree"] = disagreement
    if recorder is None or not isinstance(reference, TFLiteReference):
        return result, None, named
    layers = compare_layers(reference.network, reference.layer_values(values), recorder.written, not result.bit_exact)
    return result, layers, named


def _like(got: Any, want: Any) -> Any:
    """Raw networks know neither signedness nor leading axes: take them from the reference when the bytes fit."""
    if got.nbytes != want.nbytes or got.itemsize != want.itemsize or got.dtype.kind not in "iub":
        return got
    return got.view(want.dtype).reshape(want.shape)


def _document(
    network: Network, ran: NetworkRun, result: RunResult | None, layers: LayerReport | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "network": network.name,
        "runner": "npu_model",
        "accelerator": network.npu_calls[0].accelerator.name,
        "npu_calls": len(network.npu_calls),
        "npu_operations": sum(stats.operations for stats in ran.stats),
        "npu_cycles": sum(stats.cycles for stats in ran.stats),
        "npu_cycles_are_estimates": True,
        "cpu_operators": [operator.name for operator in network.cpu_operators],
        "messages": sorted({message for stats in ran.stats for message in stats.messages}),
        "relies_on_timing": [message for stats in ran.stats for message in stats.timing],
    }
    if result is not None:
        document |= {"bit_exact": result.bit_exact, "outputs": result.to_dict()["outputs"]}
    if layers is not None:
        document["layers"] = {"tensors": layers.tensors, "visible_and_equal": layers.equal}
        first = layers.first
        document["first_difference"] = first and {name: getattr(first, name) for name in type(first).__slots__}
    return document


def _print(
    facts: Mapping[str, Any],
    network: Network,
    ran: NetworkRun,
    result: RunResult | None,
    layers: LayerReport | None,
    spent: Timing,
) -> None:
    from ..ethosu.time import milliseconds_between

    cycles = facts["npu_cycles"]
    click.echo(
        f"{network.name} on the NPU model of {facts['accelerator']}: "
        f"{count_text(facts['npu_calls'], 'NPU call')}, {count_text(facts['npu_operations'], 'operation')}, "
        f"about {cycles:,} cycles (an estimate)"
    )
    time = milliseconds_between(spent.by_model.values(), spent.clock_hz)
    click.echo(f"about {time} at {spent.clock_hz / 1e6:,.0f} MHz; {spent.main_causes()}")
    for message in facts["messages"]:
        click.echo(f"note: {message}")
    if facts["cpu_operators"]:
        names = ", ".join(sorted(set(facts["cpu_operators"])))
        whose = " and ".join(ran.host_kernels)
        click.echo(f"CPU operators, run by {whose}: {len(facts['cpu_operators'])} ({names})")
    if facts["checks"]:
        timing = facts["relies_on_timing"]
        for message in timing:
            click.echo(f"warning: {message}")
        places = f", but {count_text(len(timing), 'place')} relying on timing" if timing else ""
        click.echo(
            f"checks: registers, regions, uninitialised reads, weights, accumulators, waits, BLOCKDEP: clean{places}"
        )
    if facts["fuzzed_schedules"]:
        click.echo(f"{facts['fuzzed_schedules']} other completion orders of kernels and DMA: the same result")
    for index, array in zip(network.outputs, ran.outputs, strict=True):
        head = " ".join(str(v) for v in array.reshape(-1)[:8])
        dots = " ..." if array.size > 8 else ""
        click.echo(f"output {network.tensors[index].name}: {array.dtype}{list(array.shape)} {head}{dots}")
    if result is None:
        return
    for output in result.outputs:
        verdict = "equal" if not output.mismatches else f"{output.mismatches} differ, by up to {output.max_abs_diff:g}"
        click.echo(f"against {facts['reference']}: {output.name}: {output.elements} elements, {verdict}")
    if layers is not None:
        click.echo(f"layers: {layers.equal} of {layers.tensors} reference tensors are visible and equal")
        first = layers.first
        if first is not None:
            click.echo(
                f"first layer that differs: {first.tensor} {list(first.shape)} (tensor {first.index}), written by "
                f"{first.where}: {first.mismatches} of {first.elements} elements; at {list(first.coordinates)} "
                f"{first.got} instead of {first.expected}"
            )
    if "references_disagree" in facts:
        click.echo(f"note: {facts['references_disagree']}")
    click.echo("bit-exact" if result.bit_exact else "NOT bit-exact")
