"""The one base of every error a user can meet.

Invariant: a message says what is wrong, where, with the numbers, and the next step;
the command line prints it without a traceback and exits with code 2.
"""

from __future__ import annotations


class NpuMemplanError(Exception):
    """Base of all errors that are the user's to see and to fix.

    Subclasses live beside the code that raises them; their text is part of the
    interface and is pinned by tests.
    """


def said_by(error: BaseException, line: int = -1) -> str:
    """One line of what a library raised: its frontends raise whatever comes first, with long traces."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[line].strip()
