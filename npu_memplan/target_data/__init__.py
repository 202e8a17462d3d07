"""Data of targets: the tables of `targets/`, and boards. Data in files; this folder reads and checks it."""

from .boards import Board as Board
from .boards import BoardFile as BoardFile
from .boards import BoardMemory as BoardMemory
from .boards import FirmwarePlace as FirmwarePlace
from .boards import board_names as board_names
from .boards import load_board as load_board
from .tables import MemoryMode as MemoryMode
from .tables import TargetDataError as TargetDataError
from .tables import accelerator_names as accelerator_names
from .tables import accelerator_system as accelerator_system
from .tables import load_memory_mode as load_memory_mode
from .tables import memory_mode_names as memory_mode_names
from .tables import near_names as near_names
from .tables import read_toml as read_toml
from .tables import targets_folder as targets_folder
