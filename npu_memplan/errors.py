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
