"""A cluster of `dask.distributed`.

Invariant: nothing but bytes goes to the workers; the scheduler computes the cases of a lost worker again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from ..case import SweepError
from ..worker.job import SentFile

_CONNECT_S = 10  # that a scheduler may take to answer


def dask_executor(text: str) -> DaskExecutor:
    """`//HOST:PORT` of a scheduler."""
    if not re.fullmatch(r"//[^/\s]+:[0-9]+/?", text):
        raise SweepError(f"--executor dask:{text}: give dask://HOST:PORT")
    return DaskExecutor(f"tcp:{text.rstrip('/')}")


class DaskExecutor(Executor):
    """The client of a scheduler."""

    window = 4000  # for clusters of a thousand threads

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError:
            raise SweepError(
                "--executor dask:// needs dask.distributed, which is not installed; pip install 'npu_memplan[dask]'"
            ) from None
        connect: Any = distributed.Client
        try:
            self._client: Any = connect(address, timeout=_CONNECT_S)
        except (OSError, TimeoutError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SweepError(
                f"no dask scheduler answers at {address}: {text}; start one with: dask scheduler"
            ) from None
        self._executor = self._client.get_executor(pure=False)

    def share(self, model: SentFile) -> Any:
        return self._client.submit(_same, model, key=f"model-{model.sha256}{model.suffix}", pure=True)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which goes on without this process."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()


def _same(model: SentFile) -> SentFile:
    return model
