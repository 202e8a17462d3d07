"""The packages that npu_memplan's own metadata requires, and the command that installs those that are missing.

Invariant: names and versions are read from the metadata of what is installed, so they are in pyproject.toml alone.
"""

from __future__ import annotations

import re
import shlex

# Module -> package, where the names differ.
_PACKAGES = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "ethosu": "ethos-u-vela", "elftools": "pyelftools"}


def package_requirements(extra: str = "") -> dict[str, str]:
    """Package -> requirement, of everybody or of an extra; nothing where the package runs without being installed."""
    from importlib import metadata  # it takes longer to import than a command line to parse

    try:
        listed = metadata.requires("npu_memplan") or []
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in listed:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        of = re.search(r"extra *== *[\"'](\w+)[\"']", marker)
        if (of[1] if of else "") == extra:
            found[re.split(r"[^\w.-]", requirement)[0]] = requirement
    return found


def install_command(*needed: str) -> str:
    """The `pip install` of these requirements."""
    return f"pip install {shlex.join(needed)}"


def missing_package(error: ModuleNotFoundError) -> str:
    """The text about a module that was not found: the package to install; "" if none of ours should have it."""
    root = (error.name or "").partition(".")[0]
    package = _PACKAGES.get(root, root)
    listed = package_requirements()
    if package not in listed:
        return ""
    missing = [requirement for name, requirement in listed.items() if not _is_installed(name)]
    return (
        f"this needs the package {package}, which is not installed (without it, `plan` and `verify` work); install it "
        f"with: {install_command(*(missing or [listed[package]]))}"
    )


def _is_installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return package == "tomli"  # of Python 3.10 alone
    return True
