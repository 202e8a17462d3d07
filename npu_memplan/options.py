"""Options of a compile, their command line, and the pools that follow from them.

Invariant: the pools are in the order of the NPU's regions: pool i is region i + 1; parsing `to_cli_args()` gives the
same options again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .cmsis_nn import open_cmsis_nn
from .errors import NpuMemplanError
from .names import unusable_in_c
from .problem import Pool
from .sizes import SizeError, parse_size
from .target_data import MemoryMode, accelerator_names, accelerator_system, load_board, load_memory_mode

if TYPE_CHECKING:
    from .ethosu.time import MemoryMap, Needs


class OptionError(NpuMemplanError):
    """Options of a compile contradict each other or name something unknown."""


NO_NPU = "none"
AUTO = "auto"  # both NPU compilers compete where a pool has a size
USUAL = "ethos-u55-256"
CHOICES = {
    "npu_compiler": ("vela", "tvm", AUTO),
    "optimise": ("Performance", "Size"),
    "objective": ("auto", "cycles", "bytes"),
    "effort": ("quick", "normal", "max"),
    "launch": ("small-driver", "arm-core-driver"),
    "io": ("file", "int8"),
}  # what these fields may say


def usual_accelerator(board: str) -> str:
    """The NPU that is compiled for when none is named: the board's largest, or the usual one without a board."""
    return load_board(board).accelerator if board else USUAL


def _flags_by_field(*names: str) -> dict[str, str]:
    """Options by field: the flag is called after it, without its unit."""
    return {name: "--" + name.removesuffix("_bytes").removesuffix("_s").replace("_", "-") for name in names}


# How the command line says each of `CompileOptions`: by a value, by NAME=SIZE once a pool, or by being there.
_VALUES = _flags_by_field(
    "board", "accelerator", "system_config", "vela_ini", "memory_mode", "optimise", "arena_cache_size_bytes",
    "host_ops", "operators", "npu_compiler", "objective", "effort", "max_ms", "planner", "time_limit_s", "seed",
    "launch", "io", "name", "resident", "stream_input", "host_kernels",
)  # fmt: skip
_SIZES = {"pools": "--pool", "constant_pools": "--constant-pool", "external": "--external"}
_SWITCHES = {
    "overlaps": "--no-overlap",
    **_flags_by_field("stripes", "prefetch", "host_time", "incbin"),
    "reuse_inputs": "--keep-inputs",
}


@dataclass(frozen=True, slots=True)
class Resident:
    """How many constants are in the fast pool for good: at most `most_bytes` (None: no limit); `whole`: all of them."""

    most_bytes: int | None
    whole: bool = False

    @property
    def is_automatic(self) -> bool:
        """Whether the pool's size is the only limit."""
        return self.most_bytes is None and not self.whole

    @classmethod
    def parse(cls, text: str) -> Resident:
        """`none`, `auto`, `all` or a size; `OptionError` for anything else."""
        known = {"none": cls(0), "auto": cls(None), "all": cls(None, whole=True)}
        try:
            return known[text] if text in known else cls(parse_size(text))
        except SizeError as error:
            raise OptionError(f"--resident {text!r} is none of none, auto, all, and no size ({error})") from None


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of `npu-memplan compile`; of system_config and memory_mode, empty is the accelerator's own.

    `pools` are capacities in bytes by pool name; a capacity is hard. `constant_pools` are read-only
    pools for constants, in order of preference, with a capacity or None; none: single C arrays.
    """

    accelerator: str = USUAL  # or "none"
    system_config: str = ""
    memory_mode: str = ""
    optimise: str = "Performance"
    arena_cache_size_bytes: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    constant_pools: Mapping[str, int | None] = field(default_factory=dict)
    host_ops: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()  # Python files that describe operators of the user's own
    external: Mapping[str, int | None] = field(default_factory=dict)  # operators that others' C runs: scratch bytes
    host_kernels: str = ""  # "cmsis-nn=DIR": whose functions host operators call; empty: ours alone
    npu_compiler: str = AUTO  # "vela", "tvm", or both where `competes`
    objective: str = (
        "auto"  # "cycles": the fewest that fit; "bytes": the least memory; "auto": bytes within 1 % of cycles
    )
    effort: str = "normal"  # how far the tuning searches: "quick", "normal" or "max"
    max_ms: float | None = None  # the least memory in which the NPU takes no longer, by the estimate
    planner: str = "auto"
    time_limit_s: float | None = None
    seed: int = 0
    overlaps: bool = True  # in-place and partial overlap where proven safe
    stripes: bool = False  # NPU operations cut by rows where that saves memory; of native lowering only
    prefetch: bool = False  # room for weights to be copied one operation early, as far as the pools have it
    resident: str = "none"  # constants in the fast pool for good: "none", "auto", "all" or a size
    stream_input: str = ""  # the input that comes row by row; empty: none
    host_time: bool = False  # the rough cycles of host operators count in sums
    reuse_inputs: bool = True  # a graph input's bytes may be reused once it has been read
    incbin: bool = False  # large constants as files next to the C
    io: str = "file"  # types of inputs and outputs: the file's, or "int8" for floats that are quantised first
    launch: str = "small-driver"  # what the C's NPU calls are made for; or "arm-core-driver"
    name: str = ""  # of the model in C; empty: from the file name
    vela_ini: str = ""  # a file that describes system_config; empty: those that come with npu_memplan
    board: str = ""  # whose pools, memories and clock it is for: a name, or a file of the user's own; empty: none

    @property
    def for_cycles(self) -> bool:
        """Whether the fewest cycles that fit are wanted."""
        return self.objective == "cycles" or (self.objective == "auto" and (self._has_goal or self.by_default))

    @property
    def by_default(self) -> bool:
        """Whether the memory is not said, so that Vela's is the limit."""
        given = self._has_goal or self.is_cut or self.prefetch or self.accelerator == NO_NPU
        return self.objective != "bytes" and not given

    @property
    def is_cut(self) -> bool:
        """Whether native lowering's operations are cut into stripes on request."""
        return self.stripes or bool(self.stream_input)

    @property
    def has_size(self) -> bool:
        """Whether a size of a pool is known: given, or the board's."""
        return bool(self.pools or self.board)

    @property
    def _has_goal(self) -> bool:
        return self.has_size or self.max_ms is not None

    @property
    def has_rivals(self) -> bool:
        """Whether all backends make the program, and the best is taken: but for `prefetch`, `stripes` and the like."""
        requested = self.npu_compiler == AUTO and self.accelerator != NO_NPU and not self.prefetch
        requested = requested and not self.stream_input
        if self.objective == "bytes":
            return requested and not self.stripes and self.effort != "quick"
        return requested and self.for_cycles and (self._has_goal or self.by_default)

    def resolve_defaults(self) -> CompileOptions:
        """The same options with the accelerator's defaults filled in; checks their names."""
        if self.board and not self.board.endswith(".toml") and (name := load_board(self.board).name) != self.board:
            return replace(self, board=name).resolve_defaults()  # it was a product's name
        if (whole := f"ethos-{self.accelerator}") in accelerator_names():
            return replace(self, accelerator=whole).resolve_defaults()  # as tables shorten it
        if self.host_kernels and (opened := open_cmsis_nn(self.host_kernels).option_text) != self.host_kernels:
            return replace(self, host_kernels=opened).resolve_defaults()  # a relative path
        for field_name, allowed in CHOICES.items():
            if (value := getattr(self, field_name)) not in allowed:
                raise OptionError(f"{_VALUES[field_name]} {value!r} is unknown; choose one of: {', '.join(allowed)}")
        self._check_stripes()
        self._check_speed()
        self._check_resident()
        self._check_stream_input()
        if self.npu_compiler == AUTO and not self.has_rivals:
            return replace(self, npu_compiler="tvm" if self.is_cut else "vela").resolve_defaults()
        if self.accelerator == NO_NPU:
            if self.host_ops:
                raise OptionError("--host-ops names operators to keep off the NPU, but --accelerator none has no NPU")
            mode = self.memory_mode or (load_board(self.board).memory_mode if self.board else "")
            return replace(self, system_config="", memory_mode=mode or "Shared_Sram")
        system_config, memory_mode = self._system()
        if self.board:
            board = load_board(self.board)
            if self.accelerator not in board.accelerators:
                raise OptionError(
                    f"board {board.name} has {' or '.join(board.accelerators)}, not {self.accelerator}; leave "
                    "--accelerator out, or name one of these"
                )
            board.memory_placement(memory_mode)  # it has to say where pools go
        return replace(self, system_config=system_config, memory_mode=load_memory_mode(memory_mode).name)

    def to_cli_options(self) -> tuple[tuple[str, ...], ...]:
        """The command line for these options, a flag with its value each; what is the default is left out."""
        own = CompileOptions(self.accelerator, board=self.board).resolve_defaults()
        usual = CompileOptions(
            usual_accelerator(self.board), system_config=own.system_config, memory_mode=own.memory_mode
        )
        usual = replace(usual, npu_compiler=AUTO if replace(self, npu_compiler=AUTO).has_rivals else "vela")
        options: list[tuple[str, ...]] = []
        for name, flag in _VALUES.items():
            value = getattr(self, name)
            if value not in ("", getattr(usual, name)) and (name, value) != ("npu_compiler", AUTO):
                options.append((flag, ",".join(value) if isinstance(value, tuple) else str(value)))
        for name, flag in _SIZES.items():
            for pool, size in getattr(self, name).items():
                options.append((flag, pool if size is None else f"{pool}={size}"))
        return (*options, *((flag,) for name, flag in _SWITCHES.items() if getattr(self, name) != getattr(usual, name)))

    def to_cli_args(self) -> tuple[str, ...]:
        """The arguments of that command line."""
        return tuple(argument for option in self.to_cli_options() for argument in option)

    def _check_stripes(self) -> None:
        if self.stripes and (self.accelerator == NO_NPU or self.npu_compiler == "vela"):
            raise OptionError(
                "--stripes cuts the NPU operations of native lowering: leave out --npu-compiler vela, and "
                "name an --accelerator (Vela cuts its own with --optimise Size)"
            )
        if self.stripes and not self.overlaps:
            raise OptionError(
                "--stripes lets outputs lie over inputs, which --no-overlap forbids; leave one of them out"
            )

    def _check_speed(self) -> None:
        if self.max_ms is None:
            return
        if self.accelerator == NO_NPU:
            raise OptionError("--max-ms is of the NPU's estimated time, but --accelerator none has no NPU")
        if self.objective == "bytes" or self.prefetch:
            raise OptionError(
                "--max-ms chooses the program by its time, in the least memory; leave out "
                f"{'--prefetch' if self.prefetch else '--objective bytes'}"
            )

    def _check_resident(self) -> None:
        if Resident.parse(self.resident).most_bytes == 0:
            return
        if self.accelerator == NO_NPU:
            raise OptionError("--resident is of constants that the NPU reads, but --accelerator none has no NPU")
        if self.max_ms is not None:
            raise OptionError("--resident gives memory for time, --max-ms time for memory; leave one of them out")

    def _check_stream_input(self) -> None:
        if not self.stream_input:
            return
        if self.accelerator == NO_NPU or self.npu_compiler == "vela":
            raise OptionError(
                "--stream-input cuts the NPU operations of native lowering: leave out --npu-compiler vela, and name "
                "an --accelerator"
            )
        for flag, given in (
            ("--no-overlap", not self.overlaps),
            ("--keep-inputs", not self.reuse_inputs),
            ("--max-ms", self.max_ms is not None),
            ("--stripes, which it does by itself", self.stripes),
            ("--resident", Resident.parse(self.resident).most_bytes != 0),
        ):
            if given:
                raise OptionError(f"--stream-input does not go together with {flag}; leave one of them out")

    def _system(self) -> tuple[str, str]:
        """The system configuration and the memory mode: those that are given, the board's, or the accelerator's."""
        usual = accelerator_system(self.accelerator)
        board = load_board(self.board) if self.board else None
        system_config = self.system_config or (board.system_config if board else "") or usual.system_config
        return system_config, self.memory_mode or (board.memory_mode if board else "") or usual.memory_mode

    def memory_map(self, regions: Mapping[int, str] | None = None, needs: Needs | None = None) -> MemoryMap | None:
        """Which memory each of the NPU's regions is in, by pool name; None without an NPU.

        `needs`: what a plan needs; a board may have several places for it.
        """
        from .ethosu.time import Needs, board_map, load_system

        if self.accelerator == NO_NPU:
            return None
        system_config, mode = self._system()
        if regions is None:
            regions = dict(enumerate(load_memory_mode(mode).pools, start=1))
        ini = Path(self.vela_ini) if self.vela_ini else None
        system = load_system(system_config, ini)
        if self.board:
            return board_map(load_board(self.board), system, mode, regions, needs or Needs(), self.constant_pools)
        return system.memory_map(mode, regions, self.constant_pools)

    def planned_pools(self) -> tuple[Pool, ...]:
        """The pools to plan; `OptionError` when `pools` names one that the memory mode lacks."""
        mode = load_memory_mode(self.memory_mode or "Shared_Sram")
        unknown = [name for name in self.pools if name not in mode.pools]
        if unknown:
            raise OptionError(
                f"--pool names {unknown[0]!r}, but memory mode {mode.name} has: {', '.join(mode.pools)}; "
                "name one of these or choose another --memory-mode"
            )
        capacities: dict[str, int] = {**mode.capacity_bytes, **self._board_pools(mode), **self.pools}
        if self.arena_cache_size_bytes is not None and len(mode.pools) > 1:
            capacities.setdefault("sram", self.arena_cache_size_bytes)
        return tuple(Pool(name, capacities.get(name)) for name in mode.pools)

    def _board_pools(self, mode: MemoryMode) -> dict[str, int]:
        """What the board has for each pool: its largest place."""
        if not self.board:
            return {}
        board = load_board(self.board)
        places = board.memory_placement(mode.name).pools
        sizes = {pool: max(board.memory(name).size_bytes for name in places[pool]) for pool in mode.pools}
        return {pool: min(size, mode.capacity_bytes.get(pool, size)) for pool, size in sizes.items()}

    def planned_constant_pools(self) -> tuple[Pool, ...]:
        """The read-only pools to plan; `OptionError` when one has the name of another pool."""
        taken = load_memory_mode(self.memory_mode or "Shared_Sram").pools
        for name in self.constant_pools:
            if name in taken:
                raise OptionError(
                    f"--constant-pool {name} has the name of a pool for other buffers; give it another name, e.g. flash"
                )
        if fault := unusable_in_c((*taken, *self.constant_pools)):
            raise OptionError(f"--constant-pool: {fault}; give it another name, e.g. flash")
        return tuple(Pool(name, size, read_only=True) for name, size in self.constant_pools.items())
