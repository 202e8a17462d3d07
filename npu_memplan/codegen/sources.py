"""Write the C sources of a planned module.

Invariant: the same module and interface give the same files, byte for byte, and all symbols carry the model's name, so
that two models link together. The files are

    <name>.h                what a caller needs: pool sizes, offsets, `<name>_run`
    <name>.c                `<name>_run`: main's calls in order
    <name>_host.c           host operators and their constants
    <name>_npu.c            command streams, weights, launches
    <name>_constants.c      read-only pools of constants, where the plan has any
    npu_memplan_runtime.h   what the platform supplies
    <name>_*.bin            large constants, with `--incbin`
    <name>_cmsis_nn.[ch]    CMSIS-NN's functions that the host calls, from copies in cmsis_nn/, where an option names it
    <name>.cmake, <name>.mk these files and the flags they need, for a build system
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm_ffi import StructuralKey

from ..names import unusable_in_c
from ..vocabulary import C_SOURCES, NONE, STATE_STARTS
from . import CodegenError
from .builds import (
    GLUE,
    GLUE_TEXT,
    HEADER_MACRO,
    LEAST_BYTES,
    build_fragments,
    include_array,
    include_line,
    library_sources,
)
from .c_text import QUALIFIER, c_array, c_type
from .entry import RUNTIME_HEADER, RUNTIME_TEXT, external_functions, print_constant_pools, print_main, rename_functions
from .header import pool_macro, print_model_header
from .host_c import defined_in, print_functions, used_parameters, with_kernel
from .interface import Interface
from .npu_c import NpuLaunch, print_launch
from .printed import Sources
from .program import ConstantArgument, FunctionCall, PlannedProgram, PoolArgument, read_program

_HOST_INCLUDES = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"


def write_sources(module: Any, interface: Interface, directory: Path | str) -> Sources:
    """Print the planned `module` and write its files into the existing `directory`."""
    sources = print_sources(module, interface)
    sources.write(directory)
    return sources


def print_sources(module: Any, interface: Interface) -> Sources:
    """The C sources of a planned module (main over pools; see `program.read_program`).

    Errors: `CodegenError` when the module is not planned, or when its pools are not the
    interface's.
    """
    if fault := unusable_in_c(pool.name for pool in (*interface.pools, *interface.constant_pools)):
        raise CodegenError(f"pools of model {interface.name}: {fault}; rename one")
    program = read_program(module, interface.name)
    expected = tuple(pool.size_bytes for pool in interface.pools)
    # A pool that nothing is in is still an argument; it has one byte in the module.
    if tuple(max(1, size) for size in expected) != tuple(max(1, size) for size in program.pool_bytes):
        raise CodegenError(
            f"model {interface.name}: main takes pools of {list(program.pool_bytes)} bytes, "
            f"the plan has {list(expected)}; rewrite the module with the same plan"
        )
    files: dict[str, bytes] = {}
    npu_text, npu_constants, launches = _npu_file(program, interface, files)
    host_text, host_constants = _host_file(program, interface, files)
    external = external_functions((call.primfunc for call in program.calls), interface)
    name = interface.name
    starts = [bytes.fromhex(str(text)) for text in (module["main"].attrs or {}).get(STATE_STARTS, ())]
    texts = {
        f"{name}.h": print_model_header(interface, program.body, program.initialise, external),
        f"{name}.c": print_main(interface, program.body, program.initialise, starts),
        f"{name}_host.c": host_text,
        f"{name}_npu.c": npu_text,
        RUNTIME_HEADER: RUNTIME_TEXT,
    }
    images = {pool: program.constants[index] for index, pool in program.constant_pools.items()}
    if interface.constant_pools and not interface.constants_passed:
        texts[f"{name}_constants.c"] = print_constant_pools(interface, images, files)
    if interface.host_kernels:
        texts |= library_sources(interface, host_text, files)
    texts |= build_fragments(interface, sorted(file for file in texts if file.endswith(".c")))
    if interface.payloads:
        texts[GLUE] = GLUE_TEXT
    return Sources(
        texts,
        npu_constants + host_constants + sum(image.nbytes for image in images.values()),
        sum(launch.stream_bytes for launch in launches.values()),
        {c.function: launches[c.symbol] for c in program.calls if c.is_npu},
        files,
    )


def _constant_arrays(
    program: PlannedProgram, interface: Interface, calls: Iterable[FunctionCall], prefix: str, files: dict[str, bytes]
) -> tuple[str, dict[int, tuple[str, int]], int]:
    """C of the constants of `calls` that are in no pool, index -> (array, true size in bytes) of all, their bytes.

    Into `files` goes what is taken in from files.
    """
    pools = interface.constant_expressions()
    table = {i: (pools[pool], program.constants[i].nbytes) for i, pool in program.constant_pools.items()}
    texts: list[str] = []
    total = 0
    for index in dict.fromkeys(a.index for c in calls for a in c.arguments if isinstance(a, ConstantArgument)):
        if index in table:
            continue
        symbol = f"{prefix}_{len(texts)}"
        values: npt.NDArray[np.generic] = program.constants[index]
        table[index] = (symbol, values.nbytes)
        if interface.incbin and values.nbytes >= LEAST_BYTES:
            texts.append(include_array(symbol, values, files))
        else:
            texts.append(c_array(symbol, values, qualifier=f"static {QUALIFIER}"))
        total += values.nbytes
    return "\n".join(texts), table, total


def _npu_file(
    program: PlannedProgram, interface: Interface, files: dict[str, bytes]
) -> tuple[str, int, dict[str, NpuLaunch]]:
    """Text of the file, bytes of its constants, and symbol -> launch."""
    calls = {c.symbol: c for c in program.calls if c.is_npu}
    prefix = f"{interface.name}_npu_constants"
    arrays, table, total = _constant_arrays(program, interface, calls.values(), prefix, files)
    macros = [pool_macro(interface, index) for index in range(len(interface.pools))]
    launches = {symbol: print_launch(call, table, macros, interface) for symbol, call in calls.items()}
    parts = [
        f"/* {interface.name}: what the NPU runs. Generated by npu_memplan. */",
        f'#include "{interface.name}.h"\n#include "{RUNTIME_HEADER}"\n',
        *([HEADER_MACRO] if interface.payloads and launches else []),
        *([f"void *{interface.npu_context};\n"] if launches else []),
        *([arrays] if arrays else []),
        *(launch.text for launch in launches.values()),
    ]
    return "\n".join(parts), total, launches


def _host_file(program: PlannedProgram, interface: Interface, files: dict[str, bytes]) -> tuple[str, int]:
    """Text of the file and bytes of its constants. Calls that do the same in the same places share a body."""
    calls = {}
    for call in (*program.calls, *program.initialise):
        if not call.is_npu:  # of a constant that a body does not need after all there shall be no array
            trimmed, kept = used_parameters(with_kernel(call.primfunc))
            calls[call.symbol] = replace(
                call, primfunc=trimmed, arguments=tuple(call.arguments[index] for index in kept)
            )
    prefix = f"{interface.name}_host_constant"
    arrays, table, total = _constant_arrays(program, interface, calls.values(), prefix, files)
    functions: dict[str, Any] = {}
    constants: dict[str, list[npt.NDArray[np.generic] | None]] = {}
    wrappers = []
    called = list(
        dict.fromkeys(str(text) for c in calls.values() for text in (c.primfunc.attrs or {}).get(C_SOURCES, ()))
    )
    bodies: dict[object, str] = {}  # by what they do
    for symbol, call in calls.items():
        held = [a.index if isinstance(a, ConstantArgument) else None for a in call.arguments]
        plain = tirx.PrimFunc(call.primfunc.params, call.primfunc.body, call.primfunc.ret_type)
        body = bodies.setdefault((StructuralKey(plain), *held), f"{symbol}_body")
        if body not in functions:
            functions[body] = call.primfunc
            constants[body] = [None if index is None else program.constants[index] for index in held]
        wrappers.append(_wrapper_function(interface, call, table, body))
    brought = external_functions((call.primfunc for call in calls.values()), interface)
    known = defined_in(called) | {NONE, *(function.symbol for function in brought)}
    parts = [
        f"/* {interface.name}: what the host runs. Generated by npu_memplan. */",
        f'#include "{interface.name}.h"\n#include "{RUNTIME_HEADER}"\n\n{_HOST_INCLUDES}',
        *include_line(interface),
        *([arrays] if arrays else []),
        *called,
        rename_functions(print_functions(functions, constants, known), interface),
        *wrappers,
    ]
    return "\n".join(parts), total


def _wrapper_function(interface: Interface, call: FunctionCall, table: dict[int, tuple[str, int]], wrapped: str) -> str:
    """The function of a call, which calls `wrapped` with its arguments."""
    values = []
    for parameter, argument in zip(call.primfunc.params, call.arguments, strict=True):
        if isinstance(argument, PoolArgument):
            kind = c_type(str(parameter.dtype))
            cast = "" if kind == "uint8_t" else f"({kind} *)"
            values.append(f"{cast}pools[{argument.index}]")
        elif isinstance(argument, ConstantArgument):
            values.append(table[argument.index][0])
        else:
            values.append(argument.text)
    used = set(re.findall(r"\w+", " ".join(values)))
    unused = "".join(f"  (void){name};\n" for name in ("pools", *interface.symbols) if name not in used)
    body = f"{unused}  {wrapped}({', '.join(values)});\n  return 0;\n"
    return f"int32_t {call.symbol}({interface.parameter_text}) {{\n{body}}}\n"
