"""Files that tests give to what they test."""

from __future__ import annotations

from pathlib import Path


def save(path: Path, content: bytes | str) -> Path:
    """Write a file; its path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
