"""Programs of others (the C compiler, Vela, emulators, reference models) and Python processes, started and waited for.

Invariant: a program that is started here has a process group of its own, limits of time and memory, and its temporary
files in the folder that it is given, which is the caller's to remove. It is dead with its whole group when its `with`
block is left, however it is left, and when this process dies without leaving it; its end is noticed when it
comes, and the wait returns and raises what `Popen.wait` does. A Python process imports what this one imports: no module
is imported before the import path is the caller's, without the working directory, unless the user named it in
PYTHONPATH or this package is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .ending import HeldSignals, forget_undo, undo_at_end


def wait_for_end(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """The exit code; `subprocess.TimeoutExpired` after `timeout_s`. Looks more often than `Popen.wait` does."""
    if (code := process.poll()) is not None:
        return code
    ended = _open_process(process.pid)
    if ended is None:
        return process.wait(timeout_s)
    if not _has_ended(ended, timeout_s):
        raise subprocess.TimeoutExpired(process.args, timeout_s)
    return process.wait()


def _open_process(process: int) -> int | None:
    """A descriptor of a process for `_has_ended`."""
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):  # an old Linux, or nothing to wait for
        return None


def _has_ended(descriptor: int, timeout_s: float) -> bool:
    """Whether a process ends within `timeout_s`; closes its descriptor."""
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


MEMORY_BYTES = 16 << 30  # of one process, where the machine has as much: no program here comes near it
_PR_SET_PDEATHSIG = 1
# What a new process calls before it is the program: one call of C, as no other thread of this process lives there.
_END_WITH_PARENT = partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, int(signal.SIGKILL))
_LATER_S = 5  # from the signal that says that CPU time is over to the one that cannot be caught


def start_program(
    command: Sequence[str | Path],
    folder: Path,
    *,
    cpu_s: float | None = None,
    memory_bytes: int = MEMORY_BYTES,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """`command` with its temporary files in `folder`; `streams` are `Popen`'s. To be ended with `end_program`.

    `cpu_s` is the limit of its CPU time, which a busy machine does not change. `OSError` where it does not start.
    """
    with HeldSignals():
        process = subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the other
            preexec_fn=_END_WITH_PARENT,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        )
        _limit_process(process.pid, cpu_s, memory_bytes)
        undo_at_end(process, partial(_kill_programs, process.pid))
    return process


def end_program(process: subprocess.Popen[bytes]) -> None:
    """End a program with all that it started, and close its pipes."""
    if process.returncode is None:
        _kill_programs(process.pid)
    else:  # its number may be another's
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    forget_undo(process)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


@contextlib.contextmanager
def open_program(command: Sequence[str | Path], folder: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`start_program`, ended on leaving."""
    process = start_program(command, folder, **options)
    try:
        yield process
    finally:
        end_program(process)


def run_program(
    command: Sequence[str | Path], folder: Path, timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `command`; its output and exit code. Raises `TimeoutExpired` and `OSError` as `subprocess.run`."""
    with open_program(command, folder, **options) as process:
        output, errors = process.communicate(timeout=timeout_s)
    texts = ((text or b"").decode("utf-8", "replace") for text in (output, errors))
    return subprocess.CompletedProcess([str(part) for part in command], process.returncode, *texts)


def ending_signal(work: Callable[[], object]) -> int:
    """The signal that ends a process in which `work` is done, such as that of C's `abort`; 0 where none does."""
    with HeldSignals():
        child = os.fork()
        if child == 0:
            try:
                faulthandler.disable()  # it would tell of the signal
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
                work()
            finally:
                os._exit(0)
        undo_at_end(child, partial(_kill_child, child))
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        _kill_child(child)
        os.waitpid(child, 0)
        raise
    finally:
        forget_undo(child)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _kill_child(process: int) -> None:
    """Kill a child and wait until it is dead; it may still be waited for."""
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)
    with contextlib.suppress(OSError):  # its end is known already
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)


def _kill_programs(process: int) -> None:
    """Kill a child that has a group of its own, and whatever it and its children started in others, and wait until all
    are dead: as long as one lives it may write into the folder that is about to go.
    """
    every = [process]
    for one in every:  # what has stopped starts no more
        for stop in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                stop(one, signal.SIGSTOP)
        every += [child for child in _children(one) if child not in every]
    watched = [descriptor for one in every[1:] if (descriptor := _open_process(one)) is not None]
    for one in every:
        with contextlib.suppress(OSError):
            os.killpg(one, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(one, signal.SIGKILL)
    _kill_child(process)
    for descriptor in watched:
        _has_ended(descriptor, _LATER_S)


def _children(process: int) -> list[int]:
    """The children of a process, where the system tells."""
    found: list[int] = []
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, tasks.read_text().split())
    return found


def _limit_process(process: int, cpu_s: float | None, memory_bytes: int) -> None:
    """Limit a new process from outside: Python code between its fork and its start could fail there."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [(resource.RLIMIT_CORE, (0, 0)), (resource.RLIMIT_DATA, (min(memory_bytes, machine_bytes),) * 2)]
    if cpu_s is not None:
        limits.append((resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + _LATER_S)))
    for kind, pair in limits:
        with contextlib.suppress(ValueError, OSError):  # it has ended, or the caller's own limit is lower
            resource.prlimit(process, kind, pair)


_CLEANED = f"import sys; sys.path[:] = sys.argv.pop(1).split({os.pathsep!r}); "


def import_path() -> list[str]:
    """`sys.path` for a child: absolute folders, without the working directory."""
    here, ours = os.path.realpath(os.curdir), str(Path(__file__).resolve().parents[2])
    named = [os.path.realpath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    folders = [os.path.abspath(p) for p in sys.path]  # of an interactive Python, "" is the working directory
    return [p for p in folders if os.path.realpath(p) != here or here in (ours, *named)]


def python_child(code: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
    """The command that runs `code` in a new interpreter; `sys.argv[1:]` are the `arguments`."""
    # isolated: neither the working directory nor the environment say where the first imports come from
    return [sys.executable, "-I", *flags, "-c", _CLEANED + code, os.pathsep.join(import_path()), *arguments]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` as `python -m` does."""
    code = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return python_child(code, *arguments)
