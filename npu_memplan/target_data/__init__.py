"""What is known of targets: the tables of `targets/`, and boards. Data in files; this folder reads and checks it."""

from .boards import Board, BoardFile, BoardMemory, MemoryPlacement, MemorySpeed, board_names, load_board, read_board
from .tables import (
    AcceleratorSystem,
    MemoryMode,
    TargetDataError,
    accelerator_system,
    load_memory_mode,
    memory_mode_names,
    read_toml,
    targets_folder,
)

__all__ = [
    "AcceleratorSystem",
    "Board",
    "BoardFile",
    "BoardMemory",
    "MemoryMode",
    "MemoryPlacement",
    "MemorySpeed",
    "TargetDataError",
    "accelerator_system",
    "board_names",
    "load_board",
    "load_memory_mode",
    "memory_mode_names",
    "read_board",
    "read_toml",
    "targets_folder",
]
