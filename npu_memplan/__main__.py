"""The program's first step: Ctrl-C is answered in one line before anything else is imported.

Invariant: until the command line takes over, nothing has been started or written that would have to be cleared away.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Entry point of `npu-memplan` and of `python -m npu_memplan`."""
    signal.signal(signal.SIGINT, _leave)
    if __name__ == "__main__":
        _leave_out_the_working_directory()
    from .cli import main as command_line

    command_line()


def _leave_out_the_working_directory() -> None:
    """`python -m` puts it first on the import path, with whatever modules are there."""
    from .process.python_child import import_path

    sys.path[:] = import_path()


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
