"""The C interface of TVM's ahead-of-time executor: `tvmgen_<module>.h` and the code behind it.

Invariant: names, structs and macros are those of TVM v0.14-v0.18's `--executor-aot-interface-api=c`: an
application written against them compiles unchanged. Every symbol carries the module's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..artifact.parts import TensorSlot
from ..names import Names
from . import CodegenError
from .c_names import comment, member
from .interface import C_LINKAGE, PoolSpec

_BYTES_A_LINE = 24
_DEVICE = ("Activate", "Open", "Close", "Deactivate")  # two before a launch, two after it


@dataclass(frozen=True, slots=True)
class ModuleInterface:
    module: str
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    pools: tuple[PoolSpec, ...]  # of the workspace: the first entries of the pools array, in order
    internal: bool  # the workspace is arrays of the generated code; else the caller supplies it
    devices: tuple[str, ...]  # "ethos_u", when an NPU is used
    workspace_io: bool  # inputs and outputs are in the workspace
    constant_pools: tuple[PoolSpec, ...] = ()  # the last entries of the pools array; the caller's

    @property
    def prefix(self) -> str:
        return f"tvmgen_{sanitise(self.module)}"

    @property
    def public_pools(self) -> tuple[PoolSpec, ...]:
        return () if self.internal else self.pools

    @property
    def workspace_bytes(self) -> int:
        return sum(pool.size_bytes for pool in self.pools)

    @property
    def members(self) -> tuple[str, ...]:
        """Members of the struct of pools: those that the caller supplies, then those of constants."""
        return tuple(p.name for p in (*self.public_pools, *self.constant_pools))


def sanitise(name: str) -> str:
    """`name` as a part of an identifier: everything that C does not allow in one as `_`."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def check_names(interface: ModuleInterface) -> None:
    """Refuse names that become equal in C; `CodegenError` names them."""
    for what, names in (
        ("inputs", [t.name for t in interface.inputs]),
        ("outputs", [t.name for t in interface.outputs]),
        ("pools", [p.name for p in (*interface.pools, *interface.constant_pools)]),
    ):
        cleaned = [member(n) for n in names]
        clash = next((n for i, n in enumerate(names) if cleaned.index(cleaned[i]) != i), None)
        if clash is not None:
            raise CodegenError(f"two {what} of {interface.module} are called {member(clash)!r} in C; rename one")


def _macro(interface: ModuleInterface, name: str, suffix: str) -> str:
    return f"{interface.prefix}_{sanitise(name)}_{suffix}".upper()


def _size_macro(interface: ModuleInterface, pool: str) -> str:
    return _macro(interface, pool, "WORKSPACE_POOL_SIZE")


def _struct(interface: ModuleInterface, kind: str, members: Sequence[str], what: str) -> list[str]:
    return [
        f"/*! \\brief {what} */",
        f"struct {interface.prefix}_{kind} {{",
        *(f"  void* {member(name)};" for name in members),
        "};",
        "",
    ]


def parameters(interface: ModuleInterface) -> list[tuple[str, str]]:
    """(struct kind, argument name) of the run function, in order."""
    found = [] if interface.workspace_io else [("inputs", "inputs"), ("outputs", "outputs")]
    if interface.members:
        found.append(("workspace_pools", "workspace_pools"))
    if interface.devices:
        found.append(("devices", "devices"))
    return found


def _signature(interface: ModuleInterface) -> str:
    listed = [f"struct {interface.prefix}_{kind}* {name}" for kind, name in parameters(interface)]
    return f"int32_t {interface.prefix}_run({', '.join(listed) or 'void'})"


def print_header(interface: ModuleInterface, constants: Mapping[str, bytes]) -> str:
    """Text of `tvmgen_<module>.h`; `constants` are the bytes of each constant pool."""
    check_names(interface)
    guard = f"{interface.prefix}_H_".upper()
    lines = [f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", "", C_LINKAGE[0]]
    macros = Names(_size_macro(interface, pool.name) for pool in interface.public_pools)
    workspace = macros.unique(f"{interface.prefix.upper()}_WORKSPACE_SIZE")
    for what, tensors in (("Input", interface.inputs), ("Output", interface.outputs)):
        for tensor in tensors:
            macro = macros.unique(_macro(interface, tensor.name, "SIZE"))
            lines += [f"/*! \\brief {what} tensor {comment(tensor.name)} size (in bytes) */"]
            lines += [f"#define {macro} {tensor.size_bytes}"]
    lines += _struct(interface, "inputs", [t.name for t in interface.inputs], "Input tensor pointers")
    lines += _struct(interface, "outputs", [t.name for t in interface.outputs], "Output tensor pointers")
    if interface.devices:
        lines += _struct(interface, "devices", interface.devices, "Device context pointers")
    if interface.members:
        lines += _struct(interface, "workspace_pools", interface.members, "Workspace pool pointers")
    if interface.workspace_io:
        for kind in ("inputs", "outputs"):
            lines += [
                f"/*! \\brief Maps I/O {kind} to the location inside the workspace pools */",
                f"struct {interface.prefix}_{kind} {interface.prefix}_map_{kind}({_map_parameter(interface)});",
                "",
            ]
    lines += ["/*! \\brief Entrypoint of the module */", f"{_signature(interface)};", ""]
    lines += ["/*! \\brief Workspace size (in bytes), all pools */"]
    lines += [f"#define {workspace} {interface.workspace_bytes}"]
    for pool in interface.public_pools:
        lines += [f"/*! \\brief {comment(pool.name)} size (in bytes) */"]
        lines += [f"#define {_size_macro(interface, pool.name)} {pool.size_bytes}"]
    for pool in interface.constant_pools:
        lines += _initialisation(interface, pool.name, constants[pool.name])
    lines += ["", C_LINKAGE[1], f"#endif  // {guard}", ""]
    return "\n".join(lines)


def _initialisation(interface: ModuleInterface, pool: str, content: bytes) -> list[str]:
    """What the caller's array for a constant pool is to be initialised with."""
    rows = [content[at : at + _BYTES_A_LINE] for at in range(0, len(content), _BYTES_A_LINE)]
    listed = ", \\\n".join("  " + ", ".join(f"0x{byte:02x}" for byte in row) for row in rows)
    return [
        f"/*! \\brief {comment(pool)} initialization data */",
        f"#define {_macro(interface, pool, 'CONSTANT_POOL_SIZE')} {len(content)}",
        f"#define {_macro(interface, pool, 'CONSTANT_POOL_DATA')} \\\n{listed}",
    ]


def _map_parameter(interface: ModuleInterface) -> str:
    return f"struct {interface.prefix}_workspace_pools* workspace_pools" if interface.members else "void"


def print_entry(interface: ModuleInterface) -> str:
    """Text of `<module>_lib0.c`: internal pools, I/O maps and the run function."""
    lines = [f'#include "{interface.prefix}.h"', "", "#include <stddef.h>", "#include <stdint.h>", ""]
    lines += [f"int32_t {interface.prefix}___tvm_main__(uint8_t* const pools[], void* ethos_u);", ""]
    bases = {pool.name: f"(uint8_t*)workspace_pools->{member(pool.name)}" for pool in interface.pools}
    for pool in interface.pools if interface.internal else ():
        array = bases[pool.name] = f"{interface.prefix}_{sanitise(pool.name)}"
        lines += [
            f'__attribute__((section(".bss.noinit.tvm"), aligned({max(pool.alignment, 16)})))',
            f"static uint8_t {array}[{max(pool.size_bytes, 1)}];",
            "",
        ]
    passed = list(bases.values())
    if interface.workspace_io:
        for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
            struct = f"struct {interface.prefix}_{kind}"
            lines += [f"{struct} {interface.prefix}_map_{kind}({_map_parameter(interface)}) {{", f"  {struct} mapped;"]
            for tensor in tensors:
                lines += [f"  mapped.{member(tensor.name)} = {bases[tensor.pool]} + {tensor.offset_bytes};"]
            lines += ["  return mapped;", "}", ""]
    else:
        passed += [f"(uint8_t*)inputs->{member(t.name)}" for t in interface.inputs]
        passed += [f"(uint8_t*)outputs->{member(t.name)}" for t in interface.outputs]
    passed += [f"(uint8_t*)workspace_pools->{member(p.name)}" for p in interface.constant_pools]
    device = "devices->ethos_u" if interface.devices else "NULL"
    lines += [f"{_signature(interface)} {{"]
    lines += [f"  uint8_t* const pools[{max(len(passed), 1)}] = {{{', '.join(passed) or 'NULL'}}};"]
    lines += [f"  return {interface.prefix}___tvm_main__(pools, {device});", "}", ""]
    return "\n".join(lines)


def print_main(interface: ModuleInterface, steps: Sequence[tuple[str, bool]]) -> str:
    """Text of `<module>_lib1.c`: main's calls in order. `steps` are (C function, runs on the NPU)."""
    lines = ["#include <stddef.h>", "#include <stdint.h>", ""]
    if interface.devices:
        # declared here, because older copies of tvm_ethosu_runtime.h declare the launch alone
        lines += [*(f"int32_t TVMDeviceEthosU{name}(void* context);" for name in _DEVICE), ""]
    for symbol, npu in dict.fromkeys(steps):
        lines += [f"int32_t {symbol}(uint8_t* const pools[]{', void* ethos_u' if npu else ''});"]
    lines += ["", f"int32_t {interface.prefix}___tvm_main__(uint8_t* const pools[], void* ethos_u) {{"]
    if not interface.devices:
        lines += ["  (void)ethos_u;"]
    for symbol, npu in steps:
        calls = [f"{symbol}(pools)"]
        if npu:
            device = [f"TVMDeviceEthosU{name}(ethos_u)" for name in _DEVICE]
            calls = [*device[:2], f"{symbol}(pools, ethos_u)", *device[2:]]
        lines += [f"  if ({call} != 0) return -1;" for call in calls]
    lines += ["  return 0;", "}", ""]
    return "\n".join(lines)
