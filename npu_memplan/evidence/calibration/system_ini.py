"""Fitted memories as a vela.ini, which `compile --vela-ini` and Vela read.

Invariant: read again, the file gives the memories that were fitted, counts and latencies as whole numbers.
"""

from __future__ import annotations

from ...ethosu.time import Memory, MemoryMap

_AREAS = {"sram": ("Sram", 32), "dram": ("Dram", 128), "flash": ("OffChipFlash", 128)}  # with Arm's burst lengths


def system_ini(name: str, memory_map: MemoryMap, remarks: tuple[str, ...] = ()) -> str:
    """`[System_Config.NAME]` of the memories of `memory_map`; `remarks` stand before it."""
    memories: dict[int, Memory] = {m.port: m for m in (*memory_map.regions.values(), memory_map.stream)}
    lines = [*(f"; {remark}" for remark in remarks), f"[System_Config.{name}]"]
    lines.append(f"core_clock={memory_map.clock_hz:.0f}")
    lines += [f"axi{port}_port={_AREAS[memory.name][0]}" for port, memory in sorted(memories.items())]
    for memory in memories.values():
        area, burst = _AREAS[memory.name]
        figures = {
            "clock_scale": f"{memory.clock_scale:.6g}",
            "burst_length": f"{burst}",
            "read_latency": f"{memory.read.latency:.0f}",
            "write_latency": f"{memory.write.latency:.0f}",
            "max_reads": f"{memory.read.outstanding:.0f}",
            "max_writes": f"{memory.write.outstanding:.0f}",
        }
        lines += [f"{area}_{key}={value}" for key, value in figures.items()]
    return "\n".join(lines) + "\n"
