"""States that are updated in place, in a `main` that other passes have ordered.

Invariant: an update comes after every binding that uses what the state held before; nothing else moves. Where
passes look for dead code, main returns the updates as its last results until `settled` takes these away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax

from ...ethosu.reading.reader import bindings_of, name_of
from ...models.flatbuffer import UnsupportedModelError
from ...vocabulary import RELAX_VIEWS


def settled(main: Any, returned: int = 0) -> Any:
    """`main` with every update of a state where it may be, and without its last `returned` results."""
    bindings = bindings_of(main)
    result = main.body.body
    if not any(_is_update(b.value) for b in bindings):
        return main
    if returned:
        bindings, result = _without_results(bindings, result, returned)
    for update in [b for b in bindings if _is_update(b.value)]:
        bindings = _moved(bindings, update)
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    return relax.Function(main.params, body, result.ty, main.is_pure, main.attrs)


def _is_update(value: Any) -> bool:
    return name_of(value) == "call_tir_inplace"


def _without_results(bindings: Sequence[Any], whole: Any, count: int) -> tuple[list[Any], Any]:
    """The bindings, and what main returns less the last `count` fields."""
    made = {b.var: b.value for b in bindings}
    fields = list(made.get(whole, whole).fields)[:-count]
    kept = [b for b in bindings if b.var != whole]
    return kept, fields[0] if len(fields) == 1 else relax.Tuple(fields)


def _moved(bindings: Sequence[Any], update: Any) -> list[Any]:
    """`update` after the last binding that looks at the bytes as they were before it."""
    arguments = update.value.args[1].fields
    old = {arguments[int(i)] for i in update.value.attrs.inplace_indices if int(i) >= 0}
    place = next(i for i, b in enumerate(bindings) if b is update)
    last = place
    for index, binding in enumerate(bindings):
        if binding is update or not old & set(relax.analysis.free_vars(binding.value)):
            continue
        if _looks(binding.value):
            old.add(binding.var)
        last = max(last, index)
    for between in bindings[place + 1 : last + 1]:
        if update.var in relax.analysis.free_vars(between.value):
            raise UnsupportedModelError(
                f"state {update.var.name!r} is read anew while something still needs what it held before; no order of "
                "the operators does both in place: copy the old content in the model"
            )
    return [*bindings[:place], *bindings[place + 1 : last + 1], update, *bindings[last + 1 :]]


def _looks(value: Any) -> bool:
    """Whether a binding is another name for the same bytes."""
    return isinstance(value, ir.Var) or f"relax.{name_of(value)}" in RELAX_VIEWS
