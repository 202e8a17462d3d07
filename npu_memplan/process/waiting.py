"""The end of a child process, noticed when it comes.

Invariant: what it returns and raises is what `Popen.wait` returns and raises.
"""

from __future__ import annotations

import os
import select
import subprocess


def wait_for_end(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """The exit code; `subprocess.TimeoutExpired` after `timeout_s`.

    `Popen.wait` with a limit looks at growing intervals, up to 50 ms: more than a small network takes Vela.
    """
    if (code := process.poll()) is not None:
        return code
    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, an old one, or nothing to wait for
        return process.wait(timeout_s)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            raise subprocess.TimeoutExpired(process.args, timeout_s)
    finally:
        os.close(ended)
    return process.wait()
