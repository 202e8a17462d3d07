"""What an operation costs a host: the table of `targets/hosts.toml`.

Invariant: figures only, each with its source in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from ..files.schema import from_values
from ..target_data import TargetDataError, read_toml, targets_folder

Cycles = Annotated[float, Meta(ge=0)]
HOST = "cortex-m55"


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Cycles of one operation of each kind."""

    integer: Cycles  # add, compare, shift, select
    multiply: Cycles
    divide: Cycles
    wide: Cycles  # of 64-bit integers
    wide_multiply: Cycles
    wide_divide: Cycles
    float: Cycles
    float_divide: Cycles
    function: Cycles  # exp, tanh and the like
    load: Cycles
    store: Cycles
    loop: Cycles  # an iteration: count, compare, branch
    call: Cycles  # of an operator


@lru_cache(maxsize=4)
def host_costs(cpu: str = HOST) -> HostCosts:
    """The costs of a CPU; `TargetDataError` lists the known ones."""
    path = targets_folder() / "hosts.toml"
    tables = read_toml(path)
    if cpu not in tables:
        raise TargetDataError(f"nothing is known of the time of host {cpu!r}; known: {', '.join(tables)}")
    return from_values(tables[cpu], HostCosts, f"{path}: {cpu}", TargetDataError)
