"""The arrays a user gives to a run and keeps from it: .npy files, or random values from a seed.

Invariant: an array that is returned has exactly the shape and type requested; a file is
written whole or not at all.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..errors import NpuMemplanError
from ..sizes import count_text
from .paths import open_file, write_whole

EXTREME = "extreme"  # in place of a file


class InputError(NpuMemplanError):
    """The inputs or outputs requested do not fit the model, or their files cannot be used."""


class Wanted(Protocol):
    """The form that an input must have."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def index_range(self) -> tuple[int, int] | None:
        """The values that one that is an index may have, half-open; None: it is none."""


def read_inputs(model: str, wanted: Sequence[Wanted], given: Sequence[str]) -> list[Any]:
    """Arrays for all inputs of `model`, from files, `random:SEED` or `extreme`; no seed is 0, no input is random:0.

    Indices that are not from files are in their range.
    """
    import numpy as np

    given = list(given) or ["random:0"]
    if given == [EXTREME]:
        return [extreme_array(tensor) for tensor in wanted]
    if len(given) == 1 and _is_random(given[0]):
        generator = np.random.default_rng(_parse_seed(given[0]))
        return [random_array(tensor, generator) for tensor in wanted]
    if len(given) != len(wanted):
        names = ", ".join(tensor.name for tensor in wanted)
        raise InputError(
            f"{model} has {count_text(len(wanted), 'input')} ({names}), --input was given "
            f"{count_text(len(given), 'time')}"
        )

    def make_input(text: str, tensor: Wanted) -> Any:
        if text == EXTREME:
            return extreme_array(tensor)
        if _is_random(text):
            return random_array(tensor, np.random.default_rng(_parse_seed(text)))
        return _load_array(Path(text), tensor)

    return [make_input(text, tensor) for text, tensor in zip(given, wanted, strict=True)]


class _Stacked(NamedTuple):
    """An input of several steps at once."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    index_range: tuple[int, int] | None


def read_steps(model: str, wanted: Sequence[Wanted], given: Sequence[str], steps: int) -> list[list[Any]]:
    """Inputs of `steps` inferences one after another; a file holds them all, the steps as its first dimension."""
    stacked = [_Stacked(tensor.name, tensor.dtype, (steps, *tensor.shape), tensor.index_range) for tensor in wanted]
    arrays = read_inputs(model, stacked, given)
    return [[array[step] for array in arrays] for step in range(steps)]


def check_unused(name: str, what: str, options: Mapping[str, object]) -> None:
    """`InputError` when one of `options` was given for the file called `name`, which is `what`."""
    given = [option for option, value in options.items() if value]
    if given:
        raise InputError(f"{name} is {what}, and {given[0]} is not for those; leave it out")


def check_outputs(model: str, names: Sequence[str], given: Sequence[Path]) -> None:
    """`InputError` unless `given` has a file for each output of `model`, or none."""
    if given and len(given) != len(names):
        raise InputError(
            f"{model} has {count_text(len(names), 'output')} ({', '.join(names)}), "
            f"--output was given {count_text(len(given), 'time')}"
        )


def save_arrays(paths: Sequence[Path], arrays: Sequence[Any]) -> None:
    """Write the arrays as .npy files, as many as there are paths."""
    import numpy as np

    for path, array in zip(paths, arrays, strict=False):
        sink = io.BytesIO()
        np.save(sink, array)
        write_whole(path, sink.getvalue())


def _is_random(text: str) -> bool:
    return text == "random" or text.startswith("random:")


def seed_of(given: Sequence[str]) -> int:
    """The seed where all inputs are random ones: of nothing, 0, or of `random:SEED`."""
    if len(given) > 1 or not all(map(_is_random, given)):
        raise InputError(f"--input {given[0]}: inputs are random ones here; give random:SEED alone")
    return _parse_seed(given[0]) if given else 0


def _parse_seed(text: str) -> int:
    seed = text.removeprefix("random").removeprefix(":") or "0"
    if not re.fullmatch("[0-9]{1,18}", seed):
        raise InputError(f"--input {text}: the seed must be a whole number >= 0 of up to 18 digits, as in random:7")
    return int(seed)


def random_array(tensor: Wanted, generator: Any) -> Any:
    """Values over the whole range of an integer type, or of an index; floats of the normal distribution."""
    import numpy as np

    kind = np.dtype(tensor.dtype)
    if tensor.index_range is not None:  # an index may be a float that the network casts
        return generator.integers(*tensor.index_range, tensor.shape).astype(kind)
    if kind == np.bool_:
        return generator.integers(0, 2, tensor.shape).astype(kind)
    if kind.kind not in "iu":
        return generator.standard_normal(tensor.shape).astype(kind)
    bounds = np.iinfo(kind)
    return generator.integers(bounds.min, bounds.max, tensor.shape, kind, endpoint=True)


def extreme_array(tensor: Wanted) -> Any:
    """The least and the greatest value of the type and its zero point, in turn, shifted by one every three elements.

    Of an index (integers without a scale are one, as a rule): the first and the last that is known to be right; of
    floats -100, 100 and 0, which saturate what is quantised from them.
    """
    import numpy as np

    kind = np.dtype(tensor.dtype)
    place = np.arange(math.prod(tensor.shape))
    turn = ((place + place // 3) % 3).reshape(tensor.shape)
    bounds, scale = tensor.index_range, getattr(tensor, "scale", 0.0)
    if bounds is not None:
        values = (bounds[0], bounds[1] - 1, bounds[0])
    elif kind == np.bool_ or (kind.itemsize >= 4 and kind.kind in "iu" and not scale):
        values = (0, 1, 0)
    elif kind.kind in "iu":
        values = (np.iinfo(kind).min, np.iinfo(kind).max, getattr(tensor, "zero_point", 0))
    else:
        values = (-100, 100, 0)
    return np.array(values).astype(kind)[turn]


def _load_array(path: Path, tensor: Wanted) -> Any:
    import numpy as np

    try:
        with open_file(path) as file:
            start = file.read(6)
        if start[:2] == b"PK":
            raise InputError(f"cannot read input {path}: it is an archive of arrays; save one array with numpy.save")
        if start != b"\x93NUMPY":
            raise InputError(f"cannot read input {path}: it is no .npy file; save it with numpy.save")
        with open_file(path) as file:
            array = np.load(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read input {path}: {error.strerror or error}; save it with numpy.save") from None
    except (ValueError, EOFError, MemoryError):  # numpy's words are for those who wrote the file's reader
        raise InputError(
            f"cannot read input {path}: it is damaged, or no array of numbers; save it with numpy.save"
        ) from None
    if array.dtype.name != tensor.dtype or array.shape != tensor.shape:
        raise InputError(
            f"{path} holds {array.dtype.name}{list(array.shape)}, "
            f"but input {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}"
        )
    return array
