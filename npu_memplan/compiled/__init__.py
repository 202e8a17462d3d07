"""The searches that are compiled: C sources of this package, built once on a machine by the user's C compiler.

Searches are plain Python where that is quick enough. The planners' exact searches, those over distances and the passes
over a hundred thousand buffers look at every item at every choice, and are C: `planners/exact/*.c`, `general/*.c`,
`scale/*.c`. So is the search for copies of constants, which runs the estimate's clock a million times:
`ethosu/schedule/prefetch/*.c`. What they share is `common.h` here.

Why C, built by the user: running or shipping what this package generates needs a C compiler, it builds all of it in
about a second (a just-in-time compiler took 12 to 28), and the result loads in a millisecond (that compiler and its
libraries took over a second of every process, and 200 MB of disk). A wheel that was made where there is a compiler has
the library already; without either, plans are those of first fit and of changes of its order, no copies of constants
are searched, and the plan says what is missing.

`library.py` builds into a cache of the user's and loads it; `arrays.py` passes arrays to C. Random numbers come from
`common.h`, so placements depend on seed and budget only, on every machine.
"""

from __future__ import annotations

from .arrays import Struct as Struct
from .arrays import float_array as float_array
from .arrays import header_structure as header_structure
from .arrays import int32s as int32s
from .arrays import int64s as int64s
from .arrays import random_state as random_state
from .library import CFunctions as CFunctions
from .library import c_library as c_library

FOUND, INFEASIBLE, LIMIT, NO_MEMORY = 1, 0, -1, -2  # of common.h


def check_verdict(answer: int) -> int:
    """Return the answer of a compiled search; `MemoryError` when it had no memory."""
    if answer == NO_MEMORY:
        raise MemoryError("a compiled search found no memory for its state")
    return answer
