"""The command line as a shell calls it."""

from __future__ import annotations

import pytest

from npu_memplan.cli import main


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Of `npu-memplan ARGUMENTS...`, run in this process through its real entry point."""
    monkeypatch.setattr("sys.argv", ["npu-memplan", *map(str, arguments)])
    try:
        main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0
