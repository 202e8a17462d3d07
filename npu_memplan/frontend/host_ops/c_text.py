"""Host code that is C already: the files in `c/`, each of which defines static functions.

Invariant: a text is whole in itself or follows those it needs; what it defines for the preprocessor it takes back.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_FOLDER = Path(__file__).parent / "c"


@functools.cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.c").read_text(encoding="utf-8")


def c_text(name: str, suffix: str = "", macros: Mapping[str, str] = MappingProxyType({})) -> str:
    """The file `name`, for elements of the type that `macros` describe; `suffix` makes its functions' names unique."""
    if not macros:
        return _text(name)
    defined = "".join(f"#define {head} {body}\n".replace("SUFFIX", suffix) for head, body in macros.items())
    taken_back = "".join(f"#undef {head.split('(')[0]}\n" for head in macros)
    return f"{defined}\n{_text(name).replace('SUFFIX', suffix)}\n{taken_back}"
