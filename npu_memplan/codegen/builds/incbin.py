"""Large constants as files next to the C, included by the assembler: `--incbin`.

Invariant: the array has the same name, type, bytes, alignment and section as without; only its text is elsewhere. A C
file of megabytes of constants is slow to write, to compile and to look at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..c_array import c_type

LEAST_BYTES = 4096  # smaller arrays stay in the C
SECTION = ".rodata.npu_memplan"


def included(
    name: str, values: npt.NDArray[np.generic], files: dict[str, bytes], alignment: int = 16, pool: str = ""
) -> str:
    """C that declares the array `name` and has the assembler take it in from a file, which is put into `files`.

    The assembler looks for it where `-Wa,-I` says. `pool`: the array is that constant pool's, which other files see.
    """
    section = f"{SECTION}.{pool}" if pool else SECTION
    files[f"{name}.bin"] = np.ascontiguousarray(values).tobytes()
    lines = (
        f'.pushsection {section},\\"a\\",%progbits',
        f".balign {alignment}",
        *([f".global {name}"] if pool else []),
        f".type {name}, %object",
        f".size {name}, {values.nbytes}",
        f"{name}:",
        f'.incbin \\"{name}.bin\\"',
        ".popsection",
    )
    declared = "" if pool else f"extern const {c_type(values.dtype.name)} {name}[{values.size}];\n"
    text = "\n".join(f'        "{line}\\n"' for line in lines)
    return f"{declared}__asm__(\n{text});\n"
