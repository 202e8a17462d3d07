"""`--config`, boards as JSON files that stand for options, and `--pass-config NAME=VALUE`.

Invariant: a configuration is a list of options put before the command line's own, so whatever the command
line says counts last. Unknown keys are errors. A setting of passes either decides something
here, or states what is true of this flow anyway; all others are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..files.paths import read_text
from . import TvmcError
from .pools import CONSTANT, WORKSPACE
from .targets import switch

_FOLDER = Path(__file__).resolve().parent / "configs"
_KEYS = ("targets", "executor", "runtime", "pass-config", WORKSPACE, CONSTANT, "module-name")


def read_config(name: str) -> list[str]:
    """Options of the file `name`, or of the board of that name that ships with the package."""
    path = Path(name)
    if not path.is_file():
        path = _FOLDER / f"{name.removesuffix('.json')}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in _FOLDER.glob("*.json")))
        raise TvmcError(f"--config {name}: there is no such file, and no such board; boards: {known}")
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise TvmcError(f"--config {name} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise TvmcError(f"--config {name} is no JSON object")
    for key in content:
        if key not in _KEYS:
            raise TvmcError(f"--config {name} has an unknown key {key!r}; known: {', '.join(_KEYS)}")
    return _options(name, content)


def _options(name: str, content: dict[str, Any]) -> list[str]:
    options = []
    targets = content.get("targets", [])
    if targets:
        if not all(isinstance(t, dict) and "kind" in t for t in targets):
            raise TvmcError(f"--config {name}: every target is an object with a kind")
        options.append("--target=" + ",".join(str(t["kind"]) for t in targets))
        for target in targets:
            options += [f"--target-{target['kind']}-{k}={v}" for k, v in target.items() if k != "kind"]
    for part in ("executor", "runtime"):
        settings = dict(content.get(part, {}))
        kind = settings.pop("kind", None)
        if kind is not None:
            options.append(f"--{part}={kind}")
            options += [f"--{part}-{kind}-{k}={v}" for k, v in settings.items()]
    options += [f"--pass-config={k}={v}" for k, v in content.get("pass-config", {}).items()]
    for kind in (WORKSPACE, CONSTANT):
        for pool in content.get(kind, []):
            options.append(f"--{kind}={pool['name']}")
            for key, value in pool.items():
                if key == "targets":
                    options.append(f"--{kind}-targets={pool['name']}:{','.join(value)}")
                elif key != "name":
                    options.append(f"--{kind}-{key}={pool['name']}:{value}")
    if "module-name" in content:
        options.append(f"--module-name={content['module-name']}")
    return options


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
