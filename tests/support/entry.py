"""The command line, run in this process."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from npu_memplan.cli import cli, main

QUICK = ("--objective", "bytes", "--effort", "quick")  # of a compile whose search is not asked about


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Of `npu-memplan ARGUMENTS...`, through its real entry point, as a shell calls it."""
    monkeypatch.setattr("sys.argv", ["npu-memplan", *map(str, arguments)])
    try:
        main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


def invoke(*arguments: object, code: int | None = 0) -> Result:
    """What a command printed or raised; it ends with `code` (None: with any)."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert code in (None, result.exit_code), result.output
    return result
