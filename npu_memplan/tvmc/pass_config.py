"""`--pass-config NAME=VALUE`.

Invariant: a setting either decides something here, or states what is true of this flow anyway; all others are
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import TvmcError
from .targets import switch

_ALGORITHMS = {
    "greedy_by_size": "greedy-by-size",
    "greedy_by_conflicts": "greedy-by-conflicts",
    "hill_climb": "hill-climb",
}
# True of everything this flow makes: storage is planned once, C is scalar.
_ALWAYS = {
    "tir.usmp.enable": "memory is always planned statically",
    "tir.disable_storage_rewrite": "this flow never runs that pass",
    "tir.disable_vectorize": "this flow never runs that pass",
    "tir.disable_vectorizer": "this flow never runs that pass",
}


def parse_pass_config(settings: Iterable[str]) -> tuple[str, bool]:
    """Planner, and whether inputs and outputs are in the workspace; the last of a name counts, as in tvmc."""
    values: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise TvmcError(f"--pass-config {text} is no NAME=VALUE")
        values[name.strip()] = value.strip()
    planner, workspace_io = "auto", False
    for name, value in values.items():
        if name in _ALWAYS:
            if not switch(f"--pass-config {name}", value):
                raise TvmcError(f"{name}=0 is not available: {_ALWAYS[name]}; leave it out")
        elif name == "tir.usmp.algorithm":
            if value not in _ALGORITHMS:
                raise TvmcError(f"tir.usmp.algorithm={value} is unknown; known: {', '.join(_ALGORITHMS)}")
            planner = _ALGORITHMS[value]
        elif name == "tir.usmp.custom_algorithm":
            planner = value
        elif name == "tir.usmp.use_workspace_io":
            workspace_io = switch(f"--pass-config {name}", value)
        elif name.startswith("relay.ext.ethos-u.options"):
            raise TvmcError(f"{name}: give the NPU's options as --target-ethos-u-NAME=VALUE")
        elif name.startswith("relay."):
            raise TvmcError(f"{name}: there is no Relay in this flow; leave it out")
        else:
            raise TvmcError(f"--pass-config {name} has no meaning in this flow; leave it out")
    return planner, workspace_io
