"""What tests need that a machine may lack, and how they skip without it.

Each reason to skip names what is missing, so that a run says in one line at its start and one at its end what it leaves
out, counted by cause. Where more tests skip than `NPU_MEMPLAN_MOST_SKIPPED` allows, the run fails: a tool that vanished
from CI is no success.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fvp_runner.runner import missing
from tests.support import browser

PACKAGES = {  # of Debian, by the program that tests look for; .ci/packages has what `make test` installs
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "chromium": "chromium",
    "cmake": "cmake",
    "ninja": "ninja-build",
    "clang": "clang",
}
_DATA = "data outside of the repository"
_CAUSES = (  # the first one that is found in a reason; group 1, or the text, is the cause
    (r"NPU_MEMPLAN_SHARED", _DATA),
    (r"could not import '(\w+)", None),
    (r"(arm-none-eabi-gcc|qemu-system-arm|cmake|ninja\b|unicorn|CMSIS_NN|ETHOS_U_CORE_DRIVER)", None),
    (r"(tosa-tools|onnx|torch|C compiler|Chromium|extra)", None),
)


def is_there(tool: str) -> bool:
    """Whether a program of PACKAGES is on PATH."""
    return (browser.executable() if tool == "chromium" else shutil.which(tool)) is not None


def need(*tools: str) -> None:
    """Skip the test where one of these programs of PACKAGES is missing."""
    for tool in tools:
        if not is_there(tool):
            pytest.skip(f"needs {tool} (apt-get install {PACKAGES[tool]})")


def need_runner(name: str) -> None:
    """Skip the test where `run --on name` cannot run, for the runner's own reason."""
    if reason := missing(name):
        pytest.skip(reason)


def need_data(path: Path) -> Path:
    """`path`, a file or folder of data beside the repository; skip the test where it is not there."""
    if not path.exists():
        pytest.skip(f"needs {path} (set NPU_MEMPLAN_SHARED)")
    return path


def cause_of(reason: str) -> str:
    """What is missing, by the reason of a skip."""
    for pattern, cause in _CAUSES:
        if found := re.search(pattern, reason):
            return cause or found.group(1)
    return reason.removeprefix("Skipped: ")


class Skips:
    """Says what a run leaves out for want of something."""

    def pytest_report_header(self) -> str | None:
        absent = [tool for tool in PACKAGES if not is_there(tool)]
        return f"not here, so that tests skip: {', '.join(absent)}" if absent else None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        reports = terminalreporter.stats.get("skipped", ())
        causes = Counter(cause_of(report.longrepr[2]) for report in reports if isinstance(report.longrepr, tuple))
        if causes:
            counted = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
            terminalreporter.write_line(f"skipped for want of: {counted}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        most = os.environ.get("NPU_MEMPLAN_MOST_SKIPPED")
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if most is None or reporter is None or hasattr(session.config, "workerinput"):
            return
        skipped = len(reporter.stats.get("skipped", ()))
        if skipped > int(most):
            message = f"{skipped} tests were skipped, at most {most} may be (NPU_MEMPLAN_MOST_SKIPPED)"
            reporter.write_line(message, red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
