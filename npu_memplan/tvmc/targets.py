"""`--target` and `--target-KIND-ATTRIBUTE`.

Invariant: the NPU is `ethos-u`; every other target is the host, whose code is plain C. `cmsis-nn` is taken as
host too, and a note says that its kernels are not called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ethosu.arch import ACCELERATORS
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
    accelerator, cascader, striping = _npu(npu, NPU in kinds)
    notes: tuple[str, ...] = ()
    if "cmsis-nn" in kinds:
        notes = ("cmsis-nn is taken as the host: its operators become plain C, CMSIS-NN's kernels are not called",)
    last = host.get(kinds[-1], {})
    arguments = [kinds[-1], "-keys=arm_cpu,cpu" if "mcpu" in last else "-keys=cpu"]
    arguments += [f"-{name}={value}" for name, value in sorted(last.items())]
    return Targets(kinds, accelerator, cascader, striping, (" ".join(arguments),), notes)


def _npu(attributes: dict[str, str], wanted: bool) -> tuple[str | None, bool, bool]:
    if not wanted:
        return None, False, False
    accelerator = attributes.pop("accelerator_config", "ethos-u55-256")
    if accelerator not in ACCELERATORS:
        raise TvmcError(
            f"--target-ethos-u-accelerator_config={accelerator} is unknown; known: {', '.join(ACCELERATORS)}"
        )

    def requested(name: str, usual: str) -> bool:
        return switch(f"--target-ethos-u-{name}", attributes.pop(name, usual))

    cascader, striping = requested("enable_cascader", "0"), requested("enable_striping", "0")
    # weights are read where they are, never copied to the workspace: both values describe that truthfully
    requested("disable_copying_constants", "1")
    for name in attributes:
        if name.startswith("dev_"):
            raise TvmcError(f"--target-ethos-u-{name} {_DEVELOPER}")
        raise TvmcError(f"--target-ethos-u-{name}: target ethos-u has no attribute {name!r}")
    return accelerator, cascader, striping


def switch(option: str, value: str) -> bool:
    """The value of an option that is on or off."""
    values = {"0": False, "1": True, "false": False, "true": True}
    if value.lower() not in values:
        raise TvmcError(f"{option}={value} is neither 0 nor 1")
    return values[value.lower()]
