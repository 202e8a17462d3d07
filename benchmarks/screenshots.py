"""Draw the pictures of the README and of docs/: report page (light, dark) and map, as small PNGs.

    python -m benchmarks.screenshots BUILD_DIRECTORY [NAME]

BUILD_DIRECTORY is a compiled model. Writes docs/images/report-NAME.png, report-NAME-dark.png,
map-NAME.png and terminal-NAME.png. Needs Chromium.
"""

from __future__ import annotations

import html
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from npu_memplan.artifact import Artifact
from npu_memplan.report.page.html import html_report
from npu_memplan.report.text.memory_txt import print_memory

REPOSITORY = Path(__file__).resolve().parent.parent
IMAGES = REPOSITORY / "docs" / "images"


def browser() -> Any:
    """The headless Chromium of the tests."""
    from tests.support.browser import Browser

    return Browser(1240, 950)


def terminal_page(artifact: Artifact) -> str:
    """The coloured table as a page that looks like a terminal."""
    console = Console(
        file=io.StringIO(), record=True, width=80, force_terminal=True, color_system="truecolor", highlight=False
    )
    print_memory(artifact, console)
    text = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    style = (
        "body{margin:0;background:#12161b;color:#e6eaef}"
        "pre{margin:0;padding:18px 22px;font:13px/1.35 'DejaVu Sans Mono',monospace}"
    )
    board = f" --board {artifact.target.board}" if artifact.target.board else ""
    head = f"$ npu-memplan compile {html.escape(artifact.source)}{html.escape(board)} -o build/{artifact.name}\n\n"
    return f"<meta charset=utf-8><style>{style}</style>" + text.replace("<pre>", "<pre>" + head, 1)


def main() -> None:
    """Draw everything."""
    artifact = Artifact.load(sys.argv[1])
    name = sys.argv[2] if len(sys.argv) > 2 else artifact.name
    IMAGES.mkdir(parents=True, exist_ok=True)
    page = browser()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        report.write_text(html_report(artifact, Path(sys.argv[1])), encoding="utf-8")
        page.open(report)
        page.picture(IMAGES / f"report-{name}.png")
        box = page.run(
            "(() => { const b = document.querySelector('.plot[data-pool]').getBoundingClientRect();"
            " return {x: b.x, y: b.y, width: b.width, height: b.height}; })()"
        )
        page.picture(IMAGES / f"map-{name}.png", **box)
        largest = max(artifact.problem.buffers, key=lambda b: b.size_bytes)
        page.run(f"npuMemplan.pick({largest.name!r}); document.getElementById('theme').click()")
        page.frame()
        page.picture(IMAGES / f"report-{name}-dark.png")
        page.run("document.getElementById('theme').click()")
        terminal = Path(folder) / "terminal.html"
        terminal.write_text(terminal_page(artifact), encoding="utf-8")
        page.size(700, 400)
        page.open(terminal)
        height = page.run("document.querySelector('pre').getBoundingClientRect().height")
        page.size(700, int(height))
        page.picture(IMAGES / f"terminal-{name}.png")
    page.close()


if __name__ == "__main__":
    main()
