"""NPU functions for `TVMEthosULaunch`: driver payloads, weights and base addresses as the legacy code passed them.

Invariant: base address 0 is the weights, the others are the regions of the planned PrimFunc; always at least six
are passed, unused ones as 0. The stream is wrapped as Arm's driver wants it (COP1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ethosu.arch import accelerator
from ..ethosu.program.primfunc import encode_primfunc
from ..ethosu.stream.container import Payload, build_payload
from ..vocabulary import ACCELERATOR, REGIONS
from . import CodegenError
from .c_array import LONG_STRINGS, c_array
from .interface import Interface
from .program import ConstantArgument, FunctionCall, PlannedProgram, PoolArgument

_BASES = 6
SECTION = LONG_STRINGS + (
    "#ifndef TVMGEN_CONSTANT_SECTION\n"
    '#define TVMGEN_CONSTANT_SECTION ".rodata.tvm"\n'
    "#endif\n"
    "#undef NPU_MEMPLAN_CONSTANT\n"
    "#define NPU_MEMPLAN_CONSTANT const __attribute__((section(TVMGEN_CONSTANT_SECTION), aligned(16)))\n"
)


def print_npu(program: PlannedProgram, interface: Interface) -> tuple[str, int, int]:
    """Text of the NPU's C file, bytes of constants in no pool, bytes of payloads."""
    parts = ['#include "tvm_ethosu_runtime.h"', "#include <stddef.h>\n#include <stdint.h>\n", SECTION]
    weights: dict[int, str] = {}  # constant -> C array
    constants = payloads = 0
    for symbol, call in {call.symbol: call for call in program.calls if call.is_npu}.items():
        index = _weights(call)
        values, array = np.zeros(0, np.uint8), "NULL"
        if index is not None:
            values = np.ascontiguousarray(program.constants[index]).view(np.uint8).reshape(-1)
        if index in program.constant_pools:
            array = interface.constant_expressions()[program.constant_pools[index]]
        elif index is not None and values.size:
            if index not in weights:
                weights[index] = f"{symbol}_weights"
                parts.append("static " + c_array(weights[index], values))
                constants += values.nbytes
            array = weights[index]
        target = accelerator(str(call.primfunc.attrs[ACCELERATOR]))
        payload = np.frombuffer(build_payload(Payload(target, encode_primfunc(call.primfunc))), np.uint8)
        parts.append("static " + c_array(f"{symbol}_cms_data_data", payload))
        payloads += payload.nbytes
        parts.append(_launch(call, array, values.nbytes, payload.nbytes, [p.size_bytes for p in interface.pools]))
    return "\n".join(parts), constants, payloads


def _weights(call: FunctionCall) -> int | None:
    found = [a.index for a in call.arguments if isinstance(a, ConstantArgument)]
    if len(found) > 1:
        raise CodegenError(f"{call.symbol}: an NPU function has one constant at most, this one has {len(found)}")
    return found[0] if found else None


def _launch(call: FunctionCall, array: str, weights_bytes: int, payload_bytes: int, pool_bytes: Sequence[int]) -> str:
    symbol, regions = call.symbol, [int(r) for r in call.primfunc.attrs[REGIONS] if r]  # 0 are the constants
    pools = [a.index for a in call.arguments if isinstance(a, PoolArgument)]
    count = max([_BASES, *(r + 1 for r in regions)])
    lines = [f"int32_t {symbol}(uint8_t* const pools[], void* ethos_u) {{"]
    lines += [f"  uint64_t base_addrs[{count}] = {{0}};", f"  size_t base_addrs_size[{count}] = {{0}};"]
    lines += [f"  base_addrs[0] = (uintptr_t){array};", f"  base_addrs_size[0] = {weights_bytes};"]
    for region, pool in zip(regions, pools, strict=True):
        lines += [f"  base_addrs[{region}] = (uintptr_t)pools[{pool}];"]
        lines += [f"  base_addrs_size[{region}] = {pool_bytes[pool]};"]
    if not pools and "pools[" not in array:
        lines += ["  (void)pools;"]
    lines += [
        f"  return TVMEthosULaunch(ethos_u, (void*)(uintptr_t){symbol}_cms_data_data, {payload_bytes}, base_addrs,",
        f"                         base_addrs_size, {count});",
        "}",
        "",
    ]
    return "\n".join(lines)
