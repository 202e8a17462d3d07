"""The hook of the wheel: made where there is a C compiler, it has the compiled searches and is for that platform.

Invariant: without a compiler, and in an editable install, nothing changes: users' machines build the searches, or do
without them.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltSearches(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `npu_memplan/compiled/prebuilt.so` and the file that says of which sources it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from npu_memplan.compiled.library import prebuild_library

        built = prebuild_library(Path(tempfile.mkdtemp(prefix="npu-memplan-wheel-")))
        if not built:
            self.app.display_info("no C compiler: the wheel has no compiled searches")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"] |= {str(path): f"npu_memplan/compiled/{path.name}" for path in built}
