"""The program's first step: Ctrl-C is answered in one line before anything else is imported.

Invariant: until the command line takes over, nothing has been started or written that would have to be cleared away.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys


def main() -> None:
    """Entry point of `npu-memplan` and of `python -m npu_memplan`."""
    signal.signal(signal.SIGINT, _leave_process)
    atexit.register(_end_quickly)  # the first that is registered is the last that is called
    if __name__ == "__main__":
        _leave_out_the_working_directory()
    from .cli import main as command_line

    try:
        command_line()
    except SystemExit as ended:
        _codes.append(ended.code)
        raise


def _leave_out_the_working_directory() -> None:
    """`python -m` puts it first on the import path, with whatever modules are there."""
    from .process.programs import import_path

    sys.path[:] = import_path()


_codes: list[object] = []  # what the command line ended with


def _end_quickly() -> None:
    """End without freeing what is left, object by object; an error that was not expected ends as usual."""
    if _codes and isinstance(_codes[0], int):
        with contextlib.suppress(OSError, ValueError):  # the interpreter says what is wrong with a stream
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_codes[0])


def _leave_process(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
