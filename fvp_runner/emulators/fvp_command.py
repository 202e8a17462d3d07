"""The command line of Arm's FVPs of Corstone, for programs that start them: run by QEMU and our model of the NPU.

Invariant: what is printed never says that Arm's FVP ran; an option that changes nothing here is either one that only
concerns windows and terminals, or is named on stderr. Options and their meaning: Arm's Fast Models FVP Reference Guide,
and the scripts of MLIA 0.12, ExecuTorch 1.5, TFLite Micro and Zephyr that use them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from io import RawIOBase
from pathlib import Path

import msgspec

from npu_memplan.files.paths import check_file_place, open_to_write, read_bytes, write_whole
from npu_memplan.target_data import Board, board_names, load_board

from ..base import RunnerError, RunOptions, RunTimeoutError
from ..firmware_run import END_OF_TRANSMISSION
from .own_elf import ElfRun, MemoryFiles, run_elf
from .qemu import Semihosting, qemu_version


def find_models() -> dict[str, tuple[Board, str]]:
    """The FVPs that are stood in for, by name: the board with the NPU of the FVP, and its default accelerator."""
    found: dict[str, tuple[Board, str]] = {}
    for board in map(load_board, board_names()):
        if board.qemu is None or board.fvp is None:
            continue
        family = board.accelerators[0].rpartition("-")[0]
        found[board.fvp.binary] = board, f"{family}-{board.fvp.macs}"
        for name, accelerators in board.fvp.others.items():
            found[name] = msgspec.structs.replace(board, accelerators=accelerators), accelerators[0]
    return found


def _find_model(name: str) -> tuple[Board, str]:
    models = find_models()
    if name in models:
        return models[name]
    raise FvpOptionError(f"no FVP is called {name!r}; there are: {', '.join(models)}")


_WITHOUT_EFFECT = re.compile(
    r"telnetterminal\d*\.|visualisation|uart\d\.unbuffered_output$|ethosu\.extra_args$|semihosting-(heap|stack)_|"
    r"INITSVTOR|semihosting-(use_stderr|prefix)$"
)
_VALUES = ("-a", "--application", "-C", "--parameter", "--data", "--dump", "-T", "--timelimit", "-f", "--config-file")
_FLAGS = ("--stat", "--version", "-q", "--quiet")
_FOREVER_S = 1e6
_TIME_IS_OVER = "Info: Simulation is stopping. Reason: CPU time has been exceeded."  # ExecuTorch's script looks for it


class FvpOptionError(RunnerError):
    """An option of the FVP's command line is wrong."""


@dataclass(frozen=True, slots=True)
class FvpOptions:
    """A command line, understood. Parameters go by their last part, whatever component of the FVP has them."""

    program: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    data: tuple[tuple[Path, int], ...] = ()
    dumps: tuple[tuple[Path, int, int], ...] = ()
    timelimit_s: float = _FOREVER_S
    stat: bool = False
    version: bool = False
    quiet: bool = False
    ignored: tuple[str, ...] = ()

    def parameter(self, name: str) -> str | None:
        """The value of the parameter that is called so, or ends with `.` and this name."""
        found = [v for k, v in self.parameters.items() if k == name or k.endswith(f".{name}")]
        return found[-1] if found else None

    def flag_value(self, name: str, default: bool) -> bool:
        """A parameter that is 0 or 1."""
        value = self.parameter(name)
        return default if value is None else value.lower() not in ("0", "false", "")


_USED = (
    "ethosu.num_macs", "uart0.out_file", "uart0.shutdown_on_eot", "uart0.shutdown_tag", "cpu0.semihosting-enable",
    "cpu0.semihosting-cwd", "cpu0.semihosting-cmd_line",
)  # fmt: skip


def parse_options(arguments: Sequence[str]) -> FvpOptions:
    """The options of an FVP's command line; `FvpOptionError` says what is wrong with one."""
    found, parameters, ignored = FvpOptions(), dict[str, str](), list[str]()
    words, flags, bare = list(arguments), set[str](), list[str]()
    while words:
        word = words.pop(0)
        option, joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option in _VALUES and not joined:
            if not words:
                raise FvpOptionError(f"{option} has no value; give one behind it")
            value = words.pop(0)
        if option in ("-C", "--parameter"):
            _add_parameter(parameters, value)
        elif option in ("-f", "--config-file"):
            for line in _read_file(option, Path(value)).decode("utf-8", "replace").splitlines():
                if text := line.partition("#")[0].strip():
                    _add_parameter(parameters, text)
        elif option in ("-T", "--timelimit"):
            found = replace(found, timelimit_s=min(_parse_seconds(value), _FOREVER_S))
        elif option == "--data":
            found = replace(found, data=(*found.data, _parse_placed_file(value)))
        elif option == "--dump":
            found = replace(found, dumps=(*found.dumps, _parse_dump(value)))
        elif option in _FLAGS:
            flags.add({"-q": "quiet"}.get(option, option[2:]))
        elif option in ("-a", "--application"):
            found = replace(found, program=Path(value.rpartition("=")[2]))
        elif word.startswith("-"):
            ignored.append(word)
        else:
            bare.append(word)
    if bare and found.program is None:
        found = replace(found, program=Path(bare.pop().rpartition("=")[2]))
    ignored += bare  # values of options that are not known
    unused = [k for k in parameters if not _WITHOUT_EFFECT.search(k) and not k.endswith(_USED)]
    return replace(
        found, parameters=parameters, ignored=(*ignored, *unused), stat="stat" in flags, version="version" in flags,
        quiet="quiet" in flags,
    )  # fmt: skip


def _add_parameter(parameters: dict[str, str], text: str) -> None:
    name, equals, value = text.partition("=")
    if not equals:
        raise FvpOptionError(f"parameter {text!r} has no value; write NAME=VALUE")
    parameters[name.strip()] = value.strip().strip("'\"")


def _read_file(option: str, path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise FvpOptionError(f"{option}: cannot read {path}: {error.strerror or error}") from None


def _parse_seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise FvpOptionError(f"--timelimit {text!r} is no number of seconds above 0")


def _parse_placed_file(text: str) -> tuple[Path, int]:
    """FILE@ADDRESS, with a component before and a memory space before the address, both of which are left out."""
    name, at, address = text.rpartition("@")
    if not at or not name:
        raise FvpOptionError(f"{text!r} is no FILE@ADDRESS")
    return Path(name.partition("=")[2] if "=" in name and not Path(name).exists() else name), _parse_number(address)


def _parse_dump(text: str) -> tuple[Path, int, int]:
    name, _, rest = text.rpartition("@")
    address, comma, size = rest.partition(",")
    if not name or not comma:
        raise FvpOptionError(f"{text!r} is no FILE@ADDRESS,SIZE")
    return Path(name), _parse_number(address), _parse_number(size)


def _parse_number(text: str) -> int:
    try:
        return int(text.rpartition(":")[2], 0)
    except ValueError:
        raise FvpOptionError(f"{text!r} is no address or size; write it as 0x90000000") from None


def run_model(name: str, arguments: Sequence[str]) -> int:
    """Run a program as `name`, an FVP of Arm's, is told to by `arguments`; the exit code.

    The program's own by semihosting, 1 where the time limit or an NPU job that failed ended it, else 0.
    """
    board, accelerator = _find_model(name)
    options = parse_options(arguments)
    if options.version:
        sys.stdout.write(f"{_board_identity(name)}\n")
        return 0
    if options.program is None:
        raise FvpOptionError(f"{name} was given no program; name one with -a PROGRAM.elf")
    if not options.quiet and not os.environ.get("NPU_MEMPLAN_FVP_QUIET"):
        _print_note(
            f"{_board_identity(name)}; cycles are estimates (silence this with --quiet or NPU_MEMPLAN_FVP_QUIET=1)"
        )
    if options.ignored:
        _print_note(f"without effect here: {' '.join(options.ignored)}")
    return _run_program_on(name, board, _accelerator_name(board, accelerator, options), options, options.program)


def _board_identity(name: str) -> str:
    own = metadata.version("npu_memplan")
    return f"npu_memplan {own}'s stand-in for {name}, on {qemu_version()} and a model of the NPU: this is not Arm's FVP"


def _print_note(text: str) -> None:
    sys.stderr.write(f"npu-memplan fvp: {text}\n")
    sys.stderr.flush()


def _run_program_on(name: str, board: Board, accelerator: str, options: FvpOptions, program: Path) -> int:
    semihosting = None
    if options.flag_value("cpu0.semihosting-enable", True):
        folder = options.parameter("cpu0.semihosting-cwd")
        if folder and not Path(folder).is_dir():
            raise FvpOptionError(f"cpu0.semihosting-cwd: there is no folder {folder}")
        semihosting = Semihosting(
            options.parameter("cpu0.semihosting-cmd_line") or "", Path(folder) if folder else None
        )
    memory = MemoryFiles(
        tuple((address, _read_file("--data", path)) for path, address in options.data),
        tuple((address, size) for _, address, size in options.dumps),
    )
    for (path, address), (_, content) in zip(options.data, memory.loads, strict=True):
        _check_place(board, f"--data {path}", address, len(content))
    for path, address, size in options.dumps:
        _check_place(board, f"--dump {path}", address, size)
        check_file_place(path)
    where = options.parameter("uart0.out_file") or "-"
    with _open_uart(where) as uart:
        try:
            ran = run_elf(
                program, board, RunOptions(timeout_s=options.timelimit_s), accelerator, semihosting, _uart_writer(uart),
                memory, _end_marks(options),
            )  # fmt: skip
        except RunTimeoutError:
            sys.stderr.write(f"{_TIME_IS_OVER}\n")
            _print_note(f"stopped by --timelimit after {options.timelimit_s:g} s")
            return 1
    for (path, _, _), content in zip(options.dumps, ran.contents, strict=True):
        write_whole(path, content)
    for reason in ran.failed_jobs:
        _print_note(f"NPU job failed: {reason}")
    if options.stat:
        sys.stdout.write(_statistics_text(name, ran))
    return ran.exit_code or int(bool(ran.failed_jobs))


def _check_place(board: Board, what: str, address: int, size_bytes: int) -> None:
    """`FvpOptionError` unless one memory of the board has all of the bytes."""
    for memory in board.memories:
        offset = memory.offset_of(address)
        if size_bytes >= 0 and offset is not None and offset + size_bytes <= memory.size_bytes:
            return
    there_are = ", ".join(f"{m.name} {m.base:#010x} ({m.size_bytes:#x} bytes)" for m in board.memories)
    raise FvpOptionError(f"{what}: no memory has {size_bytes:,} bytes at {address:#010x}; there are: {there_are}")


def _accelerator_name(board: Board, default: str, options: FvpOptions) -> str:
    """The accelerator that the parameters name."""
    family, _, usual = default.rpartition("-")
    macs = options.parameter("ethosu.num_macs") or usual
    if f"{family}-{macs}" not in board.accelerators:
        there_are = ", ".join(a.rpartition("-")[2] for a in board.accelerators)
        raise FvpOptionError(f"ethosu.num_macs={macs}: {family} has {there_are} multipliers")
    return f"{family}-{macs}"


def _open_uart(where: str) -> RawIOBase:
    """The stream that the UART is written to, byte by byte as it comes: stdout, or a file."""
    if where == "-":
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    return open_to_write(Path(where))


def _uart_writer(uart: RawIOBase) -> Callable[[bytes], None]:
    sys.stdout.flush()

    def write(data: bytes) -> None:
        rest = data.replace(bytes([END_OF_TRANSMISSION]), b"")
        while rest:
            rest = rest[uart.write(rest) or 0 :]  # a disk that fills takes a part, and then none

    return write


def _end_marks(options: FvpOptions) -> tuple[bytes, ...]:
    tag = options.parameter("uart0.shutdown_tag")
    ends = [bytes([END_OF_TRANSMISSION])] if options.flag_value("uart0.shutdown_on_eot", False) else []
    return (*ends, tag.encode()) if tag else tuple(ends)


def _statistics_text(name: str, ran: ElfRun) -> str:
    cycles = sum(job.cycles for job in ran.jobs)
    lines = [
        f"--- statistics of the stand-in for {name}: ---",
        f"Wall time                : {ran.seconds:.6f}s",
        f"NPU jobs                 : {len(ran.jobs)}",
        f"NPU cycles (estimated)   : {cycles}",
    ]
    return "\n".join([*lines, "-" * len(lines[0]), ""])


_MARK = "# npu_memplan's stand-in for an FVP of Arm's; written by `npu-memplan fvp install`"


def install_models(folder: Path) -> list[Path]:
    """Write an executable for each FVP into `folder`, and where MLIA looks for them; `FvpOptionError`."""
    system = "Linux64_armv8l_GCC-9.3" if os.uname().machine == "aarch64" else "Linux64_GCC-9.3"
    paths = [place / name for place in (folder, folder / "models" / system) for name in find_models()]
    for path in paths:
        if path.is_symlink() or (path.exists() and _MARK.encode() not in read_bytes(path)):
            raise FvpOptionError(f"{path} is not a stand-in that was written here; choose another folder")
    (folder / "python").mkdir(parents=True, exist_ok=True)  # MLIA takes no FVP of SSE-320 without
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f'#!/bin/sh\n{_MARK}\nunset PYTHONHOME\nexec "{sys.executable}" -m npu_memplan fvp {path.name} "$@"\n'
        write_whole(path, text.encode())
        path.chmod(0o755)
    return paths
