"""A board as Vela describes one: the sections of a vela.ini that describe its memories and one memory mode.

Invariant: Vela gets the figures that the estimate uses. What they lack is Vela's own default (requests that may be
unfinished), or what Arm's vela.ini has for every memory of the kind (the burst length).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from ...target_data import Board, BoardMemory
from .memory import Memory, MemoryMap

NAME = "Board"  # of the system configuration in the text; boards of the same figures have the same text
_SRAM_BURST, _BURST = 32, 128  # bytes; Arm/vela.ini of Vela 5.2.0


def board_ini(
    board: Board, memory_map: MemoryMap, memory_mode: str, usual: Mapping[int, Memory], pool_bytes: int
) -> str:
    """`[System_Config.Board]` and the section of `memory_mode`, for a program in the memories `memory_map`.

    `usual` is the memory behind each port that no region is in; `pool_bytes` what Vela has for what it calls the
    arena's cache, the NPU's last region.
    """
    arena, cache = memory_map.regions[1], memory_map.regions[max(memory_map.regions)]
    ports = [_slowest(memory_map, port) or usual[port] for port in (0, 1)]
    areas = {port: _area(port, arena.port, cache.port) for port in (0, 1)}
    lines = [f"[System_Config.{NAME}]", f"core_clock={memory_map.clock_hz:.0f}"]
    lines += [f"axi{port}_port={area}" for port, area in areas.items()]
    for port, memory in enumerate(ports):
        known = next((m for m in board.memories if m.name == memory.name), None)
        lines += [f"{areas[port]}_{key}={value:g}" for key, value in _figures(memory, known, areas[port]).items()]
    lines += [
        f"[Memory_Mode.{memory_mode}]",
        f"const_mem_area=Axi{memory_map.regions[0].port}",
        f"arena_mem_area=Axi{arena.port}",
        f"cache_mem_area=Axi{cache.port}",
        f"arena_cache_size={pool_bytes}",
    ]
    return "\n".join(lines) + "\n"


def _slowest(memory_map: MemoryMap, port: int) -> Memory | None:
    """The memory behind `port`, the slowest where there are several: Vela has one for each port."""
    memories = [memory for memory in memory_map.regions.values() if memory.port == port]
    return min(memories, key=lambda memory: memory.clock_scale, default=None)


def _area(port: int, arena: int, cache: int) -> str:
    """Vela's name for the memory behind `port`: its caches are in Sram, its arenas in Sram or Dram."""
    if port == cache:
        return "Sram"
    return "Dram" if port == arena else "OffChipFlash"


def _figures(memory: Memory, known: BoardMemory | None, area: str) -> dict[str, float]:
    """The keys of a vela.ini for one memory."""
    ports = ceil(memory.clock_scale)
    speed = known.speed if known is not None else None
    burst = speed.burst_bytes if speed is not None else 0
    figures: dict[str, float] = {
        "clock_scale": memory.clock_scale / ports,
        "ports_used": ports,
        "burst_length": burst or (_SRAM_BURST if area == "Sram" else _BURST),
        "read_latency": memory.read.latency,
        "write_latency": memory.write.latency,
    }
    limits = {"max_reads": memory.read.outstanding // ports, "max_writes": memory.write.outstanding // ports}
    return figures | {key: limit for key, limit in limits.items() if limit}
