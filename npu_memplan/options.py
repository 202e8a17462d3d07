"""Options of a compile, their command line, and the pools that follow from them.

Invariant: the pools are in the order of the NPU's regions: pool i is region i + 1; parsing `to_cli_args()` gives the
same options again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cmsis_nn import CMSIS_NN, open_cmsis_nn
from .errors import NpuMemplanError
from .names import split_names, unusable_in_c
from .problem import Pool
from .sizes import SizeError, parse_named_size, parse_size
from .target_data import (
    MemoryMode,
    accelerator_names,
    accelerator_system,
    load_board,
    load_memory_mode,
    memory_mode_names,
)

if TYPE_CHECKING:
    from .ethosu.time import MemoryMap, Needs


class OptionError(NpuMemplanError):
    """Options of a compile contradict each other or name something unknown."""


NO_NPU = "none"
ALL = "all"  # boards
ARM_DRIVER = "arm-core-driver"
AUTO = "auto"  # both NPU compilers compete where a pool has a size
USUAL = "ethos-u55-256"


def usual_accelerator(board: str) -> str:
    """The NPU that is compiled for when none is named: the board's largest, or the usual one without a board."""
    return load_board(board).accelerator if board else USUAL


class Objective(Enum):
    """The objective of a compile, as `CompileOptions.resolved_objective` decides it from all options."""

    CYCLES_IN_VELAS_BYTES = "the fewest cycles within Vela's bytes"  # neither a size nor a way is named
    CYCLES_IN_POOLS = "the fewest cycles within pools that have sizes"
    CYCLES = "the fewest cycles"  # of one program, in whatever memory it takes
    BYTES_IN_TIME = "the fewest bytes in which an inference is fast enough"
    BYTES = "the fewest bytes"
    BYTES_OF_ONE = "the fewest bytes of one program"

    @property
    def for_cycles(self) -> bool:
        """Whether a program's cycles are what counts first, or a limit."""
        return self not in (Objective.BYTES, Objective.BYTES_OF_ONE)


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
class Words:
    """The conversion between the words of an option and the value of its field."""

    read: Callable[[Sequence[str]], Any]  # all words of the field
    write: Callable[[Any], Iterable[str]]  # words that `read` makes the same value of
    repeats: bool = False  # the option may be given several times
    lists: bool = False  # one text may have several words, with commas between them
    owns: Callable[[str], bool] | None = None  # of several fields of an option, the words of this one; None: the others


def _read_external(words: Sequence[str]) -> dict[str, int | None]:
    """`OP=SIZE`, or `OP=` for an operator without scratch."""
    return dict((word[:-1], None) if word.endswith("=") else parse_named_size(word) for word in words)


def _write_external(sizes: Mapping[str, int | None]) -> Iterable[str]:
    return [f"{name}={'' if size is None else size}" for name, size in sizes.items()]


def _is_number(word: str) -> bool:
    try:
        return float(word) >= 0
    except ValueError:
        return False


def _read_sizes(words: Sequence[str]) -> dict[str, int | None]:
    return dict(parse_named_size(word) if "=" in word else (word, None) for word in words)


def _read_pools(words: Sequence[str]) -> dict[str, int]:
    return dict(parse_named_size(word) for word in words)


def _write_sizes(sizes: Mapping[str, int | None]) -> Iterable[str]:
    return [name if size is None else f"{name}={size}" for name, size in sizes.items()]


def _read_number(words: Sequence[str]) -> float:
    try:
        return float(words[-1])
    except ValueError:
        raise OptionError(f"{words[-1]!r} is no number") from None


TEXT = Words(lambda words: words[-1], lambda value: (str(value),))
NUMBER = Words(_read_number, lambda value: (str(value),))
POOLS = Words(_read_pools, _write_sizes, repeats=True)
SIZES = Words(_read_sizes, _write_sizes, repeats=True)
SWITCH = Words(bool, lambda _: ())
_ARENA = "arena="
_KERNELS = f"{CMSIS_NN}="
_LONGEST_MS = 1_000_000_000  # in cycles of any clock an integer
_LONGEST_S = 1_000_000  # of a search; timers take no more than 24 days
ON_HOST = Words(lambda words: tuple(word.upper() for word in words), lambda names: (",".join(names),), lists=True)
IN_PYTHON = Words(tuple, ON_HOST.write, lists=True, owns=lambda word: word.endswith(".py"))
EXTERNAL = Words(_read_external, _write_external, lists=True, owns=lambda w: "=" in w and not w.startswith(_KERNELS))
KERNELS = Words(TEXT.read, TEXT.write, owns=lambda word: word.startswith(_KERNELS))
COMPILER = Words(TEXT.read, TEXT.write, lists=True)
VELAS_MODE = Words(TEXT.read, TEXT.write, lists=True, owns=lambda word: word in ("Performance", "Size"))
VELAS_ARENA = Words(
    lambda words: parse_size(words[-1].removeprefix(_ARENA)), lambda size: (f"{_ARENA}{size}",), lists=True,
    owns=lambda word: word.startswith(_ARENA),
)  # fmt: skip
KEPT_INPUTS = Words(lambda _: False, lambda _: ("inputs",), owns=lambda word: word == "inputs")
SECONDS = Words(NUMBER.read, NUMBER.write, owns=_is_number)


@dataclass(frozen=True, slots=True)
class CliForm:
    """How the command line gives a field: the option, the heading it stands under and its help text."""

    flag: str
    group: str
    help: str
    words: Words = TEXT
    metavar: str = ""
    choices: tuple[str, ...] = ()
    rare: bool = False  # it is in --help-all alone


def option(default: Any, flag: str, group: str, help: str, **form: Any) -> Any:
    """A field of `CompileOptions` with its default, and the form that the command line has for it."""
    metadata = {"cli": CliForm(flag, group, help, **form)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


TARGET, MEMORY, WORK = "Target", "Memory", "NPU and host"
GOAL, SEARCH, OUTPUT = "Objective", "Planner", "Output files"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of `npu-memplan compile`; of system_config and memory_mode, empty is the accelerator's own.

    Each is declared once, here: the command line, its help, the keywords of `npu_memplan.compile` and plan.json follow.
    `pools` are capacities in bytes by pool name; a capacity is hard. `constant_pools` are read-only
    pools for constants, in order of preference, with a capacity or None; none: single C arrays.
    """

    accelerator: str = option(
        USUAL, "--accelerator", TARGET, "The NPU (npu-memplan accelerators lists them), or none; default: the board's "
        "largest, or ethos-u55-256.", metavar="NAME",
    )  # fmt: skip
    system_config: str = option(
        "", "--system-config", TARGET, "System_Config of vela.ini, or of the FVPs; default: the accelerator's.",
        metavar="NAME", rare=True,
    )  # fmt: skip
    memory_mode: str = option(
        "", "--memory-mode", TARGET, "Sram_Only, Shared_Sram or Dedicated_Sram[_256KB|_384KB|_512KB]; default: the "
        "accelerator's.", metavar="NAME", rare=True,
    )  # fmt: skip
    vela_ini: str = option(
        "", "--vela-ini", TARGET, "A vela.ini of your own that describes --system-config.", metavar="FILE", rare=True
    )
    board: str = option(
        "", "--board", TARGET, "Pools, memories and clock of a board (npu-memplan boards lists them, or your file). "
        "all: write nothing, say on which boards it fits, with bytes and time.",
        metavar="NAME|FILE.toml|all",
    )  # fmt: skip
    pools: Mapping[str, int] = option(
        {}, "--pool", MEMORY, "Hard capacity of a pool, e.g. sram=96KiB.", words=POOLS, metavar="NAME=SIZE"
    )
    constant_pools: Mapping[str, int | None] = option(
        {}, "--constant-pool", MEMORY, "Pack weights and tables into read-only pools, in this order, e.g. "
        "flash=512KiB.", words=SIZES, metavar="NAME[=SIZE]", rare=True,
    )  # fmt: skip
    resident: str = option(
        "none", "--resident", MEMORY, "Constants of the NPU that stay in the fast pool, where NAME_init() puts them "
        "once: auto, in the room of a pool with a size, those that make it fastest; all; or at most SIZE, which a pool "
        "without a size grows by.", metavar="none|auto|all|SIZE", rare=True,
    )  # fmt: skip
    reuse_inputs: bool = option(
        True, "--resident", MEMORY, "inputs: their bytes stay, too, after they were read.",
        words=KEPT_INPUTS, metavar="inputs", rare=True,
    )  # fmt: skip
    npu_compiler: str = option(
        AUTO, "--npu-compiler", WORK, "Who makes the NPU's operations: Vela's stream, lifted; native lowering; auto: "
        "the better of both; with --stripes native lowering.", words=COMPILER, choices=("vela", "tvm", AUTO), rare=True,
    )  # fmt: skip
    optimise: str = option(
        "Performance", "--npu-compiler", WORK, "Size: Vela's program with --optimise Size.", words=VELAS_MODE,
        choices=("Performance", "Size"), metavar="Size", rare=True,
    )  # fmt: skip
    arena_cache_size_bytes: int | None = option(
        None, "--npu-compiler", WORK, "arena=SIZE: the bytes that Vela aims at.", words=VELAS_ARENA,
        metavar="arena=SIZE", rare=True,
    )  # fmt: skip
    host_ops: tuple[str, ...] = option(
        (), "--host-ops", WORK, "What the CPU runs. OP: an operator to keep on it.", words=ON_HOST,
        metavar="OP",
    )  # fmt: skip
    external: Mapping[str, int | None] = option(
        {}, "--host-ops", WORK, "OP=SIZE: one that a C function of yours runs, which is declared in the header and "
        "called with SIZE bytes of scratch.", words=EXTERNAL, metavar="OP=SIZE",
    )  # fmt: skip
    operators: tuple[str, ...] = option(
        (), "--host-ops", WORK, "FILE.py: Python that describes operators of your own (npu_memplan.host_operator); it "
        "is run.", words=IN_PYTHON, metavar="FILE.py",
    )  # fmt: skip
    host_kernels: str = option(
        "", "--host-ops", WORK, "cmsis-nn=DIR: functions of CMSIS-NN, whose C is in DIR and which is copied into the "
        "artifact, where results are exact.", words=KERNELS, metavar="cmsis-nn=DIR",
    )  # fmt: skip
    objective: str = option(
        "auto", "--objective", GOAL, "cycles: the fewest in pools that are given, a board's memory, or Vela's arena; "
        "auto: in pools that are given, or Vela's arena with the fewest bytes within 1 % of them; bytes: the least "
        "memory, also in stripes, or on the CPU alone; quick efforts take that of one NPU compiler, and compare "
        "nothing.",
        choices=("auto", "cycles", "bytes"),
    )  # fmt: skip
    effort: str = option(
        "normal", "--effort", GOAL, "How far the tuning searches: quick takes some times Vela's CPU time, max several "
        "times that of normal.", choices=("quick", "normal", "max"),
    )  # fmt: skip
    time_limit_s: float | None = option(
        None, "--effort", GOAL, "SECONDS: all searches together end then, with the best found.", words=SECONDS,
        metavar="SECONDS",
    )  # fmt: skip
    max_ms: float | None = option(
        None, "--max-ms", GOAL, "The least memory in which the network takes at most so long, by the estimate, of the "
        "pool that feature maps lie in.", words=NUMBER, metavar="MS",
    )  # fmt: skip
    stripes: bool = option(
        False, "--stripes", GOAL, "Cut NPU operations into stripes of rows where that saves memory, for some cycles; a "
        "--pool of theirs says how far to go. Of native lowering.", words=SWITCH, rare=True,
    )  # fmt: skip
    planner: str = option(
        "auto", "--planner", SEARCH, "auto, optimal, first-fit, greedy-by-size, greedy-by-conflicts, hill-climb, "
        "linear, or a registered name.", metavar="NAME", rare=True,
    )  # fmt: skip
    name: str = option(
        "", "--name", OUTPUT, "Name of the model in C; default: from the file name.", metavar="NAME", rare=True
    )
    io: str = option(
        "file", "--io", OUTPUT, "Types of inputs and outputs: the file's, or int8 without the operators that convert "
        "float inputs and float outputs; the header has functions that convert one value.", choices=("file", "int8"),
    )  # fmt: skip
    launch: str = option(
        "small-driver", "--emit", OUTPUT, "arm-core-driver: C whose NPU calls are made for Arm's ethos-u-core-driver, "
        "with payloads and the glue.", choices=("small-driver", ARM_DRIVER),
    )  # fmt: skip
    incbin: bool = option(
        False, "--incbin", OUTPUT, "Large constants as files beside the C, which the assembler takes in.", words=SWITCH,
        rare=True,
    )  # fmt: skip
    # keywords of Python alone
    overlaps: bool = True  # in-place and partial overlap where proven safe
    prefetch: bool = False  # room for weights to be copied one operation early, as far as the pools have it

    @property
    def resolved_objective(self) -> Objective:
        """The objective that follows from the options together."""
        if self.objective == "bytes":
            return Objective.BYTES
        if self.max_ms is not None:
            return Objective.BYTES_IN_TIME
        usual = not (self.stripes or self.prefetch or self.accelerator == NO_NPU)
        if self.pools or (self.board and (self.objective == "cycles" or not usual)):
            return Objective.CYCLES_IN_POOLS
        if usual:
            return Objective.CYCLES_IN_VELAS_BYTES
        return Objective.CYCLES if self.objective == "cycles" else Objective.BYTES_OF_ONE

    @property
    def for_cycles(self) -> bool:
        """Whether cycles are what counts first, or a limit."""
        return self.resolved_objective.for_cycles

    @property
    def has_size(self) -> bool:
        """Whether a size of a pool is known: given, or the board's."""
        return bool(self.pools or self.board)

    @property
    def cpu(self) -> str:
        """The CPU as GCC knows it; empty: the board does not say it."""
        return load_board(self.board).cpu if self.board else ""

    @property
    def cpu_clock_hz(self) -> float:
        """The CPU's clock as the board says it; 0: unknown."""
        return load_board(self.board).clock.cpu_hz if self.board else 0.0

    @property
    def has_rivals(self) -> bool:
        """Whether all backends make the program, and the best is taken: but for `prefetch`, `stripes` and the like."""
        objective = self.resolved_objective
        if objective is Objective.BYTES and (self.stripes or self.effort == "quick"):
            return False
        may_choose = self.npu_compiler == AUTO and self.accelerator != NO_NPU
        one = self.prefetch or objective in (Objective.CYCLES, Objective.BYTES_OF_ONE)
        return may_choose and not one

    def resolve_defaults(self) -> CompileOptions:
        """The same options with the accelerator's defaults filled in; checks their names."""
        if self.board and not self.board.endswith(".toml") and (name := load_board(self.board).name) != self.board:
            return replace(self, board=name).resolve_defaults()  # it was a product's name
        if (whole := f"ethos-{self.accelerator}") in accelerator_names():
            return replace(self, accelerator=whole).resolve_defaults()  # as tables shorten it
        if self.host_kernels and (opened := open_cmsis_nn(self.host_kernels).option_text) != self.host_kernels:
            return replace(self, host_kernels=opened).resolve_defaults()  # a relative path
        for field_name, form in FORMS.items():
            if form.choices and (value := getattr(self, field_name)) not in form.choices:
                raise OptionError(f"{form.flag} {value!r} is unknown; choose one of: {', '.join(form.choices)}")
        self._check_stripes()
        self._check_speed()
        self._check_resident()
        if self.npu_compiler == AUTO and not self.has_rivals:
            return replace(self, npu_compiler="tvm" if self.stripes else "vela").resolve_defaults()
        if self.accelerator == NO_NPU:
            if self.host_ops:
                raise OptionError("--host-ops names operators to keep off the NPU, but --accelerator none has no NPU")
            mode = self.memory_mode or (load_board(self.board).memory_mode if self.board else "")
            return replace(self, system_config="", memory_mode=mode or "Shared_Sram")
        system_config, memory_mode = self._system()
        self._check_memory_mode(memory_mode)
        if self.board:
            board = load_board(self.board)
            if self.accelerator not in board.accelerators:
                raise OptionError(
                    f"board {board.name} has {' or '.join(board.accelerators)}, not {self.accelerator}; leave "
                    "--accelerator out, or name one of these"
                )
            board.memory_placement(memory_mode)  # it has to say where pools go
        return replace(self, system_config=system_config, memory_mode=load_memory_mode(memory_mode).name)

    def resolve_for(self, accelerator: str) -> CompileOptions:
        """The resolved options of what was compiled for `accelerator`."""
        board = load_board(self.board) if self.board else None
        if board and accelerator not in board.accelerators:
            raise OptionError(
                f"it was compiled for {accelerator}, and board {board.name} has {' or '.join(board.accelerators)}: "
                f"leave --board out, or compile the original model with --board {board.name}"
            )
        return replace(self, accelerator=accelerator).resolve_defaults()

    def to_cli_options(self) -> tuple[tuple[str, ...], ...]:
        """The command line for these options, a flag with its value each; what is the default is left out."""
        own = CompileOptions(self.accelerator, board=self.board).resolve_defaults()
        usual = CompileOptions(
            usual_accelerator(self.board), system_config=own.system_config, memory_mode=own.memory_mode
        )
        usual = replace(usual, npu_compiler=AUTO if replace(self, npu_compiler=AUTO).has_rivals else "vela")
        options: list[tuple[str, ...]] = []
        for name, form in FORMS.items():
            value = getattr(self, name)
            if value in ("", getattr(usual, name)) or (name, value) == ("npu_compiler", AUTO):
                continue
            if form.words is SWITCH:
                options.append((form.flag,))
                continue
            words = list(form.words.write(value))
            if form.words.lists:
                before = options.pop()[1:] if options and options[-1][0] == form.flag else ()
                words = [",".join((*before, *words))]
            options += [(form.flag, word) for word in words]
        return tuple(options)

    def python_values(self) -> tuple[tuple[str, Any], ...]:
        """The fields that the command line cannot give, with their values, where these are not the defaults."""
        given = [(one.name, getattr(self, one.name), one.default) for one in fields(self) if not one.metadata]
        return tuple((name, value) for name, value, default in given if value != default)

    def to_cli_args(self) -> tuple[str, ...]:
        """The arguments of that command line."""
        return tuple(argument for option in self.to_cli_options() for argument in option)

    def _check_memory_mode(self, name: str) -> None:
        from .ethosu.time import similar_memory_mode

        if self.vela_ini:
            same = (name, load_memory_mode(name).like) if name in memory_mode_names() else ()
            similar = similar_memory_mode(Path(self.vela_ini), name)
            if similar and similar not in same:
                raise OptionError(
                    f"[Memory_Mode.{name}] of {self.vela_ini} is not read, only its [System_Config.*] are; it has the "
                    f"areas of {similar}: give --memory-mode {similar}"
                )

    def _check_stripes(self) -> None:
        if self.stripes and (self.accelerator == NO_NPU or self.npu_compiler == "vela"):
            raise OptionError(
                "--stripes cuts the NPU operations of native lowering: leave out --npu-compiler vela, and "
                "name an --accelerator (Vela cuts its own: --npu-compiler vela,Size)"
            )
        if self.stripes and not self.overlaps:
            raise OptionError(
                "--stripes lets outputs lie over inputs, which overlaps=False forbids; leave one of them out"
            )

    def _check_speed(self) -> None:
        if self.time_limit_s is not None and not 0 < self.time_limit_s <= _LONGEST_S:
            raise OptionError(
                f"--effort {self.time_limit_s:g} is no time; give seconds, more than 0 and at most {_LONGEST_S:,}"
            )
        if self.max_ms is None:
            return
        if not 0 < self.max_ms <= _LONGEST_MS:
            raise OptionError(
                f"--max-ms {self.max_ms} is no time; give milliseconds, more than 0 and at most {_LONGEST_MS:,}"
            )
        if self.accelerator == NO_NPU:
            raise OptionError("--max-ms is of the NPU's estimated time, but --accelerator none has no NPU")
        if self.objective == "bytes" or self.prefetch:
            raise OptionError(
                "--max-ms chooses the program by its time, in the least memory; leave out "
                f"{'prefetch' if self.prefetch else '--objective bytes'}"
            )

    def _check_resident(self) -> None:
        if Resident.parse(self.resident).most_bytes == 0:
            return
        if self.accelerator == NO_NPU:
            raise OptionError("--resident is of constants that the NPU reads, but --accelerator none has no NPU")
        if self.max_ms is not None:
            raise OptionError("--resident gives memory for time, --max-ms time for memory; leave one of them out")

    def _system(self) -> tuple[str, str]:
        """The system configuration and the memory mode: those that are given, the board's, or the accelerator's."""
        usual = accelerator_system(self.accelerator)
        board = load_board(self.board) if self.board else None
        system_config = self.system_config or (board.system_config if board else "") or usual.system_config
        return system_config, self.memory_mode or (board.memory_mode if board else "") or usual.memory_mode

    def memory_map(self, regions: Mapping[int, str] | None = None, needs: Needs | None = None) -> MemoryMap | None:
        """The memory of each of the NPU's regions, by pool name; None without an NPU.

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

    def check_memories(self) -> None:
        """Raise an `OptionError` where the system configuration has nothing but flash for a pool."""
        if self.accelerator == NO_NPU or self.board:
            return
        from .ethosu.arch import accelerator
        from .ethosu.time import load_system, writable_systems

        (system_config, name), target = self._system(), accelerator(self.accelerator)
        pools = load_memory_mode(name).pools
        wrong = load_system(system_config, Path(self.vela_ini) if self.vela_ini else None).read_only_pools(pools)
        if wrong:
            others = writable_systems(target, pools)
            also = f"--system-config {' or '.join(others)}" if others else "describe your memories in --vela-ini"
            raise OptionError(
                f"memory mode {name} has pool {wrong[0]} in a memory that is flash, read only, in system configuration "
                f"{system_config}; give --memory-mode Shared_Sram, or {also}"
            )

    def _board_pools(self, mode: MemoryMode) -> dict[str, int]:
        """The pools of a board: for each its largest place."""
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


FORMS: Mapping[str, CliForm] = {  # by field; without those that Python alone has
    one.name: one.metadata["cli"] for one in fields(CompileOptions) if one.metadata
}
FLAGS: Mapping[str, tuple[str, ...]] = {  # option -> its fields
    flag: tuple(name for name, form in FORMS.items() if form.flag == flag)
    for flag in dict.fromkeys(form.flag for form in FORMS.values())
}


def read_words(flag: str, texts: Iterable[str]) -> dict[str, Any]:
    """Field -> value of what an option of several fields is given."""
    (rest,) = (name for name in FLAGS[flag] if FORMS[name].words.owns is None)
    words: dict[str, list[str]] = {}

    def field_of(word: str) -> str:
        return next((n for n in FLAGS[flag] if (owns := FORMS[n].words.owns) is not None and owns(word)), rest)

    for text in texts:
        lists = FORMS[field_of(text)].words.lists
        for word in split_names(text) if lists else (text,):
            words.setdefault(field_of(word), []).append(word)
    return {name: FORMS[name].words.read(given) for name, given in words.items()}


# Options that earlier versions of `compile` had, or that `vela` has, with what takes their place.
REMOVED = {
    "--fit": "use --pool NAME=SIZE",
    "--host-time": "operators on the CPU are always counted",
    "--target": "C is what is generated",
    "--seed": "the same input always gives the same plan; plan --seed searches in another order",
    "--all-boards": "give --board all",
    "--optimise": "give --npu-compiler vela,Size",
    "--sram": "give --pool sram=SIZE",
    "--accelerator-config": "give --accelerator NPU",
    "--config": "give --vela-ini FILE",
    "--output-dir": "give --output DIR",
    "--arena-cache-size": "give --npu-compiler vela,arena=SIZE, or a hard size with --pool",
    "--launch": "give --emit arm-core-driver",
    "--one-arena": "give --emit one-arena",
    "--data": "give the .ptd file behind the .pte",
    "--no-overlap": "npu_memplan.compile in Python has overlaps=False",
    "--prefetch": "weights are copied ahead in the room that a --pool has; npu_memplan.compile has prefetch=True",
    "--external": "give --host-ops OP=SIZE",
    "--operators": "give --host-ops FILE.py",
    "--host-kernels": "give --host-ops cmsis-nn=DIR",
    "--keep-inputs": "give --resident inputs",
    "--stream-input": "a pool holds whole inputs; --stripes makes what follows need less",
    "--time-limit": "give --effort SECONDS",
    "--strict": "set NPU_MEMPLAN_STRICT=1",
    "--cache": "leave it out: the cache is on; NPU_MEMPLAN_PROGRAM_CACHE is its size",
}


def default_values() -> dict[str, Any]:
    """The default of each field; the accelerator is empty: the board's, or the usual one."""
    values = {one.name: {} if one.default is MISSING else one.default for one in fields(CompileOptions)}
    return {**values, "accelerator": ""}


def options_from(values: Mapping[str, Any]) -> CompileOptions:
    """The options with these values by field; without an accelerator, the board's largest or the usual one."""
    named = values.get("accelerator") or usual_accelerator(values.get("board", ""))
    return CompileOptions(**{**values, "accelerator": named})
