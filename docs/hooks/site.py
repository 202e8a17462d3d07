"""What the site has beside the pages of docs/: a start page with the README, titles for file names, a page a board.

Invariant: nothing is written here that does not stand elsewhere: the README, the boards' files, the table of boards.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from npu_memplan.report.text.lists import board_text
from npu_memplan.target_data import Board, board_names, load_board

DOCS = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^\| ?(.*?) ?\|$", re.M)


def on_files(files: Any, config: Any) -> Any:
    """MkDocs: add a page for each board."""
    from mkdocs.structure.files import File

    for board in map(load_board, board_names()):
        files.append(File.generated(config, f"boards/{board.name}.md", content=board_page(board)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs: the text of a page before it is rendered."""
    changes: dict[str, Callable[[str], str]] = {
        "README.md": start_page,
        "boards.md": by_board,
        "api.md": whole_docstrings,
    }
    if page.file.src_uri == "boards.md":
        page.meta["hide"] = ["navigation", "toc"]  # the table takes their room
    return changes.get(page.file.src_uri, str)(markdown)


def start_page(pages: str) -> str:
    """The README without its list of links, then `pages`, the list of pages, by their titles."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8").partition("\n## Read on\n")
    picture = re.findall(r"^!\[.*\)$", readme[2], re.M)
    text = "\n".join([readme[0], *picture]).replace("](docs/", "](").replace("](CHANGELOG.md)", "](../CHANGELOG.md)")
    listed = re.sub(r"\[([\w/-]+\.md)\]\(\1\)", lambda found: f"[{title(found[1])}]({found[1]})", pages)
    return f"{text}\n\n{listed.replace('# Documentation', '## Pages', 1)}"


def title(page: str) -> str:
    """The first heading of a page."""
    return re.findall(r"^# (.*)$", (DOCS / page).read_text(encoding="utf-8"), re.M)[0]


def by_board(text: str) -> str:
    """boards.md with a row a board, which links to the board's page: there are more boards than networks."""
    lines = text.replace("A row is `", "A column is `").replace(", turned on its side", "").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| network |"))
    last = next((i for i, line in enumerate(lines) if i > first and not line.startswith("|")), len(lines))
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:last])
    networks = [row[0].replace("_", "_<wbr>") for row in rows]  # long names may break there
    table = [f"| board | {' | '.join(networks)} |", "|---" * (len(rows) + 1) + "|"]
    for column, board in enumerate(heads[1:], 1):
        table.append(f"| [{board}](boards/{board}.md) | {' | '.join(row[column] for row in rows)} |")
    return "\n".join([*lines[:first], *table, *lines[last:]])


def whole_docstrings(text: str) -> str:
    """api.md with the whole docstring of each name in place of its first sentence (`:::` is mkdocstrings')."""
    return re.sub(r"^- `([\w.]+)`: .*$", r"::: \1\n", text, flags=re.M)


def board_page(board: Board) -> str:
    """What is known of a board, and which networks fit."""
    lines = [f"# {board.name}", "", f"{board.description}.", "", "```sh"]
    lines += [f"npu-memplan compile MODEL.tflite --board {board.name} -o build/model", "```", ""]
    lines += ["| network | KiB of planned pools / of constants, estimated ms |", "|---|---|"]
    lines += [f"| {network} | {figures} |" for network, figures in networks(board.name)]
    facts = list(board_text(board))[1:]
    remarks = [fact for fact in facts if fact.startswith(("source: ", "not known: "))]
    known = [fact for fact in facts if fact not in remarks]
    lines += ["", "How to read the figures: [Where networks fit](../boards.md).", "", "```text", *known, "```", ""]
    return "\n".join([*lines, *(f"- {remark}" for remark in remarks), ""])


def networks(board: str) -> Iterator[tuple[str, str]]:
    """(network, figures) of the column of `board` in boards.md."""
    rows = [row.split(" | ") for row in _ROW.findall((DOCS / "boards.md").read_text(encoding="utf-8"))]
    heads = next(row for row in rows if row[0] == "network")
    for row in rows[rows.index(heads) + 2 :]:
        if len(row) == len(heads):
            yield row[0], row[heads.index(board)]
