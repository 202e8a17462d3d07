"""NPU PrimFuncs as C: command streams, constants and one launching function each.

Invariant: base pointer 0 is the constants and base pointer r is the pool whose region is r,
exactly the regions that the planned PrimFunc was encoded with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..ethosu.arch import Architecture, accelerator
from ..ethosu.program.primfunc import schedule_primfunc
from ..ethosu.stream.decode import Command
from ..ethosu.stream.encode import build_payload, encode, payload_of
from ..vocabulary import ACCELERATOR, OPERATORS, REGIONS
from . import CodegenError
from .c_text import c_array
from .interface import Interface, region_config
from .program import ConstantArgument, FunctionCall, PoolArgument


@dataclass(frozen=True, slots=True)
class NpuLaunch:
    text: str
    stream_bytes: int
    commands: tuple[Command, ...]
    accelerator: Architecture
    operators: tuple[int, ...]  # of the source model, that each operation works for; none: unknown


def print_launch(
    call: FunctionCall,
    constant_symbols: Mapping[int, tuple[str, int]],
    pool_macros: Sequence[str],
    interface: Interface,
) -> NpuLaunch:
    """`int32_t <symbol>(uint8_t *const pools[])`, with the stream it launches.

    `constant_symbols` maps a constant's index to its C array and true size in bytes;
    `pool_macros[i]` is the macro that holds the size of pool i. Where `interface` has payloads, each array
    begins with the header of a driver payload (COP1), and the stream in it is launched.
    """
    symbol, commands = call.symbol, schedule_primfunc(call.primfunc)
    npu = accelerator(str(call.primfunc.attrs[ACCELERATOR]))
    words = np.asarray(encoded := encode(commands), dtype=np.uint32)
    stream = f"{symbol}_stream"
    launched = f"{stream}, (uint32_t)sizeof {stream}"
    if interface.payloads:
        words = np.frombuffer(build_payload(payload_of(npu, encoded)), np.uint32)
        header = f"NPU_MEMPLAN_PAYLOAD_HEADER_BYTES / {words.itemsize}"
        launched = f"{stream} + {header}, (uint32_t)sizeof {stream} - NPU_MEMPLAN_PAYLOAD_HEADER_BYTES"
    bases = _base_pointers(call, constant_symbols, pool_macros)
    regions = region_config(npu, {pool.region: pool.name for pool in interface.pools})
    count = len(bases)
    launch = (
        f"npu_memplan_npu_launch({interface.npu_context}, {regions:#06x}u, {launched},\n"
        f"      bases, base_bytes, {count})"
    )
    pointers = ", ".join(pointer for pointer, _ in bases)
    sizes = ", ".join(size for _, size in bases)
    uses_pools = any(pointer.startswith("pools[") for pointer, _ in bases)
    text = (
        f"static {c_array(stream, words, hexadecimal=True)}"
        f"\nint32_t {symbol}(uint8_t *const pools[]) {{\n"
        + ("" if uses_pools else "  (void)pools;\n")
        + f"  const void *const bases[{count}] = {{{pointers}}};\n"
        + f"  static const uint32_t base_bytes[{count}] = {{{sizes}}};\n"
        + f"  return {launch};\n}}\n"
    )
    served = tuple(int(index) for index in call.primfunc.attrs.get(OPERATORS, ()))
    return NpuLaunch(text, words.nbytes, commands, npu, served)


def _base_pointers(
    call: FunctionCall, constant_symbols: Mapping[int, tuple[str, int]], pool_macros: Sequence[str]
) -> list[tuple[str, str]]:
    regions = [int(r) for r in call.primfunc.attrs[REGIONS]]
    regions += [0] * (len(call.arguments) - len(regions))  # what follows the pools is a constant
    bases: dict[int, tuple[str, str]] = {}
    for argument, region in zip(call.arguments, regions, strict=True):
        if region in bases:
            raise CodegenError(
                f"{call.symbol}: two arguments are at base pointer {region}; an NPU function has one constant"
            )
        if isinstance(argument, PoolArgument):
            bases[region] = (f"pools[{argument.index}]", pool_macros[argument.index])
        elif isinstance(argument, ConstantArgument):
            array, size = constant_symbols[argument.index]
            bases[region] = (array, str(size))
    return [bases.get(region, ("0", "0")) for region in range(max(bases, default=0) + 1)]
