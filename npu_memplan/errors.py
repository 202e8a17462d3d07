"""Errors: bad use or input, an unsupported model, and an internal fault.

Invariant: a `NpuMemplanError` is the user's to see and to fix (the command line prints it without a traceback and exits
with code 2): its message says what is wrong, where, with the numbers, and the next step. An `InternalError` is none, so
that nothing that handles users' errors can take a fault for one; its exit code is 3.
"""

from __future__ import annotations


class NpuMemplanError(Exception):
    """Base of all errors that are the user's to see and to fix.

    Subclasses are defined next to the code that raises them; their text is part of the
    interface and is pinned by tests. `details` is for --verbose: what the message counts, row by row.
    """

    details = ""


class RefusalError(NpuMemplanError):
    """A valid request that cannot be met: it does not fit, or is not supported. Another backend may."""


class InternalError(Exception):
    """Something that holds for every input does not: a fault of this package (or of a plug-in), not of the input."""


def describe_error(error: BaseException, line: int = -1) -> str:
    """One line of what a library raised: its frontends raise whatever comes first, with long traces."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[line].strip()
