"""The process that a checked run happens in: generated C and a reference's kernels may end it.

Invariant: it takes one request from stdin and writes one line of JSON for each phase and for the result, on the
descriptor that it was given; it prints nothing else anywhere, and ends when its caller has ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from npu_memplan.process.ending import lacks_room
from npu_memplan.process.lazy_imports import compile_methods_late, import_lazily, import_schema_lazily
from npu_memplan.process.setup import collect_rarely

from .facts import FACTS, FAULT, PHASE, RunFacts, RunRequest

# Parts of tflite-micro that an interpreter does without, and that take longer to import than the rest.
_UNUSED = frozenset({
    "tflite_micro.tensorflow.lite.micro.compression", "tflite_micro.tensorflow.lite.micro.python.schema_py_generated",
})  # fmt: skip


def main(descriptor: int) -> None:
    """Serve one request."""
    collect_rarely()
    compile_methods_late()
    import_schema_lazily()
    import_lazily(_UNUSED)
    from .compare import compare_file, compare_runs

    text = sys.stdin.buffer.readline()
    if not text:  # the caller has ended, or needs no check
        return
    request = msgspec.convert(json.loads(text), RunRequest)
    with os.fdopen(descriptor, "w", encoding="utf-8") as answers:

        def say(**values: Any) -> None:
            answers.write(json.dumps(msgspec.to_builtins(values)) + "\n")
            answers.flush()

        def report_phase(phase: str, facts: RunFacts) -> None:
            say(**{PHASE: phase, FACTS: facts})

        try:
            compared = compare_file if Path(request.directory).is_file() else compare_runs
            found = compared(request, report_phase)
        except Exception as error:
            if lacks_room(error):
                say(**{FACTS: RunFacts(refused=f"there is not enough room here for a run: {error}")})
            else:
                say(**{FAULT: traceback.format_exc()})
        else:
            say(**{FACTS: found})
    os._exit(0)  # C that hangs may still run in a thread, and libraries need no farewell
