"""`--pass-config NAME=VALUE`.

Invariant: a setting either decides something here, or states what is true of this flow anyway; all others are
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .errors import TvmcError

_ALGORITHMS = {
    "greedy_by_size": "greedy-by-size",
    "greedy_by_conflicts": "greedy-by-conflicts",
    "hill_climb": "hill-climb",
}
# True of everything this flow makes: storage is planned once, C is scalar.
_ALWAYS = ("tir.disable_storage_rewrite", "tir.disable_vectorize", "tir.disable_vectorizer")


@dataclass(frozen=True, slots=True)
class PassConfig:
    """Decisions of the pass configuration."""

    planner: str = "auto"
    workspace_io: bool = False


def parse_pass_config(settings: Iterable[str]) -> PassConfig:
    """Read all settings; the last of a name counts, as in tvmc."""
    values: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise TvmcError(f"--pass-config {text} is no NAME=VALUE")
        values[name.strip()] = value.strip()
    planner, workspace_io = "auto", False
    for name, value in values.items():
        if name == "tir.usmp.enable":
            if not _switch(name, value):
                raise TvmcError("tir.usmp.enable=0 is not available: memory is always planned statically; leave it out")
        elif name == "tir.usmp.algorithm":
            if value not in _ALGORITHMS:
                raise TvmcError(f"tir.usmp.algorithm={value} is unknown; known: {', '.join(_ALGORITHMS)}")
            planner = _ALGORITHMS[value]
        elif name == "tir.usmp.custom_algorithm":
            planner = value
        elif name == "tir.usmp.use_workspace_io":
            workspace_io = _switch(name, value)
        elif name in _ALWAYS:
            if not _switch(name, value):
                raise TvmcError(f"{name}=0 is not available: this flow never runs that pass; leave it out")
        elif name.startswith("relay.ext.ethos-u.options"):
            raise TvmcError(f"{name}: give the NPU's options as --target-ethos-u-NAME=VALUE")
        elif name.startswith("relay."):
            raise TvmcError(f"{name}: there is no Relay in this flow; leave it out")
        else:
            raise TvmcError(f"--pass-config {name} has no meaning in this flow; leave it out")
    return PassConfig(planner, workspace_io)


def _switch(name: str, value: str) -> bool:
    values = {"0": False, "1": True, "false": False, "true": True}
    if value.lower() not in values:
        raise TvmcError(f"--pass-config {name}={value} is neither 0 nor 1")
    return values[value.lower()]
