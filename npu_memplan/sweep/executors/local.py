"""Processes of this machine.

Invariant: no more cases at a time than processes; each waiting thread has one (`worker.guard`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ..worker.guard import end_all


class LocalProcesses(ThreadPoolExecutor):
    """A thread for each process; the threads only wait."""

    def __init__(self, count: int) -> None:
        self._name = f"sweep-{id(self):x}-"
        super().__init__(count, thread_name_prefix=self._name)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor` says; with `cancel_futures` what is running is ended too."""
        if cancel_futures:
            super().shutdown(False, cancel_futures=True)
            end_all(self._name)
        super().shutdown(wait)
