"""The options of `tvmc compile` that say where a program runs: `--target`, pools and their attributes, `--config`,
passes.

Invariant: the NPU is `ethos-u`; every other target is the host, whose code is plain C (`cmsis-nn` is taken as host too,
and a note says that its kernels are not called). Every value given counts: a repeated option extends the ones before
it, an attribute of a pool that was not named is an error, and an attribute with a value per target keeps them all. A
configuration is a list of options put before the command line's own, so whatever the command line says counts last;
unknown keys are errors. A setting of passes either decides something here, or states what is true of this flow anyway;
all others are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..ethosu.arch import ACCELERATORS
from ..files.paths import read_text
from ..planners.registry import USMP_PLANNERS
from ..problem import Agent, Pool
from . import TvmcError

NPU = "ethos-u"
HOSTS = ("c", "cmsis-nn", "llvm", "arm_cpu")
_DEVELOPER = "is an option of the removed cascader's developers; leave it out"
_HOST_ATTRIBUTES = ("mcpu", "mattr", "march", "keys", "model", "device", "mfloat-abi", "mtriple", "libs")


@dataclass(frozen=True, slots=True)
class Targets:
    kinds: tuple[str, ...]
    accelerator: str | None  # None: no ethos-u in --target
    cascader: bool
    striping: bool
    strings: tuple[str, ...]  # for metadata.json
    notes: tuple[str, ...]


def parse_targets(text: str, attributes: Sequence[tuple[str, str]]) -> Targets:
    """`text` is `--target`'s value; `attributes` are (`KIND-ATTRIBUTE`, value)."""
    kinds = tuple(part.strip().split(" ")[0] for part in text.split(",") if part.strip())
    unknown = [k for k in kinds if k not in (NPU, *HOSTS)]
    if unknown:
        raise TvmcError(f"--target={text}: {unknown[0]!r} is not available; known: {NPU}, {', '.join(HOSTS)}")
    if not kinds or kinds[-1] == NPU:
        raise TvmcError(f"--target={text} has no host; put c behind: --target={NPU},c")
    npu: dict[str, str] = {}
    host: dict[str, dict[str, str]] = {}
    for name, value in attributes:
        kind = next((k for k in sorted((NPU, *HOSTS), key=len, reverse=True) if name.startswith(f"{k}-")), None)
        if kind is None:
            raise TvmcError(f"--target-{name}: no target of --target={text} has this attribute")
        attribute = name.removeprefix(f"{kind}-")
        if kind not in kinds:
            raise TvmcError(f"--target-{name}={value}: {kind!r} is not in --target={text}")
        if kind == NPU:
            npu[attribute] = value
        elif attribute in _HOST_ATTRIBUTES:
            host.setdefault(kind, {})[attribute] = value
        else:
            raise TvmcError(f"--target-{name}: target {kind} has no attribute {attribute!r} here")
    accelerator, cascader, striping = _npu_attributes(npu, NPU in kinds)
    notes: tuple[str, ...] = ()
    if "cmsis-nn" in kinds:
        notes = ("cmsis-nn is taken as the host: its operators become plain C, CMSIS-NN's kernels are not called",)
    last = host.get(kinds[-1], {})
    arguments = [kinds[-1], "-keys=arm_cpu,cpu" if "mcpu" in last else "-keys=cpu"]
    arguments += [f"-{name}={value}" for name, value in sorted(last.items())]
    return Targets(kinds, accelerator, cascader, striping, (" ".join(arguments),), notes)


def _npu_attributes(attributes: dict[str, str], wanted: bool) -> tuple[str | None, bool, bool]:
    if not wanted:
        return None, False, False
    accelerator = attributes.pop("accelerator_config", "ethos-u55-256")
    if accelerator not in ACCELERATORS:
        raise TvmcError(
            f"--target-ethos-u-accelerator_config={accelerator} is unknown; known: {', '.join(ACCELERATORS)}"
        )

    def is_requested(name: str, usual: str) -> bool:
        return switch_value(f"--target-ethos-u-{name}", attributes.pop(name, usual))

    cascader, striping = is_requested("enable_cascader", "0"), is_requested("enable_striping", "0")
    # either value is taken and changes nothing: weights are copied where the workspace has room and that saves cycles
    is_requested("disable_copying_constants", "1")
    for name in attributes:
        if name.startswith("dev_"):
            raise TvmcError(f"--target-ethos-u-{name} {_DEVELOPER}")
        raise TvmcError(f"--target-ethos-u-{name}: target ethos-u has no attribute {name!r}")
    return accelerator, cascader, striping


def switch_value(option: str, value: str) -> bool:
    """The value of an option that is on or off."""
    values = {"0": False, "1": True, "false": False, "true": True}
    if value.lower() not in values:
        raise TvmcError(f"{option}={value} is neither 0 nor 1")
    return values[value.lower()]


NPU_TARGET = "ethos-u"
WORKSPACE, CONSTANT = "workspace-pools", "constant-pools"
# option suffix -> what a value is
ATTRIBUTES = {
    "targets": "targets",
    "size-hint-bytes": "size",
    "clock-frequency-hz": "clock",
    "read-bandwidth-bytes-per-cycle": "read bandwidth",
    "write-bandwidth-bytes-per-cycle": "write bandwidth",
    "read-latency-cycles": "read latency",
    "write-latency-cycles": "write latency",
    "target-burst-bytes": "burst",
}


@dataclass(slots=True)
class PoolOptions:
    """One pool as the command line describes it."""

    name: str
    targets: list[str] = field(default_factory=list)  # empty: every target
    numbers: dict[str, int] = field(default_factory=dict)  # option suffix -> value; -1: not given
    bursts: dict[str, int] = field(default_factory=dict)  # target -> bytes


def parse_pools(
    kind: str, names: Iterable[str], attributes: Mapping[str, Iterable[str]], targets: Iterable[str]
) -> list[Pool]:
    """Pools of one kind in the order given; `attributes`: option suffix -> values. `TvmcError` on nonsense."""
    pools: dict[str, PoolOptions] = {}
    for text in names:
        for name in filter(None, (part.strip() for part in text.split(","))):
            pools.setdefault(name, PoolOptions(name))
    known = tuple(targets)
    for suffix, values in attributes.items():
        for text in values:
            _apply_option(pools, f"--{kind}", suffix, text, known)
    return [_known_pool(options, read_only=kind == CONSTANT) for options in pools.values()]


def _apply_option(pools: dict[str, PoolOptions], base: str, suffix: str, text: str, known: tuple[str, ...]) -> None:
    option = f"{base}-{suffix}"
    current: PoolOptions | None = None
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, colon, value = part.partition(":")
        if colon:
            current = pools.get(name)
            if current is None:
                listed = ", ".join(pools) or "none"
                raise TvmcError(f"{option}={text}: pool {name!r} is not in {base} (which has: {listed})")
        elif suffix == "targets" and current is not None:
            value = part  # sram:c,ethos-u names two targets of one pool
        else:
            raise TvmcError(f"{option}={text}: {part!r} is no POOL:VALUE")
        assert current is not None
        if suffix == "targets":
            if value not in known:
                raise TvmcError(f"{option}={text}: {value!r} is no target of --target={','.join(known)}")
            if value not in current.targets:
                current.targets.append(value)
        elif suffix == "target-burst-bytes":
            target, colon, size = value.partition(":")
            if not colon or target not in known:
                raise TvmcError(f"{option}={text}: {part!r} is no POOL:TARGET:BYTES with a target of {','.join(known)}")
            current.bursts[target] = _number_value(option, text, size)
        else:
            current.numbers[suffix] = _number_value(option, text, value)


def _number_value(option: str, text: str, value: str) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        raise TvmcError(f"{option}={text}: {value!r} is no whole number") from None
    if number < -1:
        raise TvmcError(f"{option}={text}: {number} is negative")
    return number


def _known_pool(options: PoolOptions, *, read_only: bool) -> Pool:
    agents = {Agent.NPU if t == NPU_TARGET else Agent.HOST for t in options.targets} or {Agent.HOST, Agent.NPU}
    given = {suffix.replace("-", "_"): number for suffix, number in options.numbers.items()}
    size, clock = given.pop("size_hint_bytes", -1), given.pop("clock_frequency_hz", 0)
    speeds: dict[str, Any] = {name: number for name, number in given.items() if number > 0}
    return Pool(
        options.name,
        None if size < 0 else size,
        agents=frozenset(agents),
        read_only=read_only,
        clock_hz=clock if clock > 0 else None,
        **speeds,
        burst_bytes=dict(options.bursts),
    )


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
    return _config_options(name, content)


def _config_options(name: str, content: dict[str, Any]) -> list[str]:
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
            if not switch_value(f"--pass-config {name}", value):
                raise TvmcError(f"{name}=0 is not available: {_ALWAYS[name]}; leave it out")
        elif name == "tir.usmp.algorithm":
            if value not in USMP_PLANNERS:
                raise TvmcError(f"tir.usmp.algorithm={value} is unknown; known: {', '.join(USMP_PLANNERS)}")
            planner = USMP_PLANNERS[value]
        elif name == "tir.usmp.custom_algorithm":
            planner = value
        elif name == "tir.usmp.use_workspace_io":
            workspace_io = switch_value(f"--pass-config {name}", value)
        elif name.startswith("relay.ext.ethos-u.options"):
            raise TvmcError(f"{name}: give the NPU's options as --target-ethos-u-NAME=VALUE")
        elif name.startswith("relay."):
            raise TvmcError(f"{name}: there is no Relay in this flow; leave it out")
        else:
            raise TvmcError(f"--pass-config {name} has no meaning in this flow; leave it out")
    return planner, workspace_io
