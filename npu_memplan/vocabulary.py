"""The names in the IR: every attribute that this package writes into a module, and the operators that only view bytes.

Invariant: a word that more than one module reads or writes is defined here and nowhere else; it imports nothing, so
that writers and readers of a word depend on this file alone.
"""

from __future__ import annotations

from typing import Any

# -- of an NPU function (a PrimFunc) ------------------------------------------------------------------

KIND = "npu.kind"
KIND_ETHOSU = "ethosu"
ACCELERATOR = "npu.accelerator"  # also of a partitioned main
PARAM_ROLES, PARAM_REGIONS, PARAM_OFFSETS = "npu.param_roles", "npu.param_regions", "npu.param_offsets"
RESIDENT = "resident"  # a parameter's role: constants that are in a writable pool
OPERATORS = "npu.operators"
"""Of each NPU operation in order, the operator of the source model that it works for, by index; -1: unknown."""
REGIONS = "npu.regions"  # once planned: the NPU region of each pool parameter; 0 are read-only ones

# -- of an allocation in an NPU function: annotations -------------------------------------------------

ROLE, ALIGN, REGION, OFFSET = "npu.role", "npu.align", "npu.region", "npu.offset"

# -- of a main: the source model ----------------------------------------------------------------------

STATES = "npu.states"  # parameters of main that keep their content between runs, by name
STATE_STARTS = "npu.state_starts"  # their first content in hexadecimal; "" is the zero point in every element
HOST_OPERATORS = "npu.host_operators"  # of a partitioned main: (name, kind, reason) of what stays on the host
ARITHMETIC = "npu.arithmetic"  # of main, and of every function for the NPU: what its quantised operators mean

C_SOURCES = "npu.c_sources"
"""Attribute of host code that calls C functions: texts, each of which defines static functions of its own."""
ONLY_READ = "npu.only_read"
"""Attribute of the same: buffers, by name, that no function it calls writes."""
UNTIMED = "npu.untimed"
"""Attribute of host code that stands for a function of others: what it does says nothing of its time."""
KERNEL = "npu.kernel"
"""Attribute of host code that C of ours does faster: the `symbol` and the `sources` (as above) of a function that
computes what the body says, and its `arguments`: buffers by name, "" for none, and int32 or double numbers. It reads
and writes in the body's order, in blocks of which it reads everything before it writes: what is proven of the body
holds."""
NONE = "npu_memplan_none"  # the C function that returns a null pointer
ROWS = "npu.rows"
"""Attribute of host code that runs operators in turn: of each branch of its loop, in order, the `kind` of operator, how
many `rows` it makes, how many bytes it has `moved` in all, and where a C kernel makes them its `symbol` and `arguments`
for all rows."""
DISTANCES = "npu.distances"
"""Attribute of host code that calls C functions: (input, output, bytes) by name, as far as the output may begin after
the input so that no byte of it is overwritten before it was read."""
EXTERNAL = "npu.external"
"""Attribute of host code that calls a function that is linked from elsewhere: a line about each of its tensors."""
BY_LIBRARY = "cmsis_nn_"  # what functions that call CMSIS-NN's are called by
EXTERNAL_PREFIX = "npu_memplan_external_"  # what such a function is called before its model has a name

# -- of a planned main --------------------------------------------------------------------------------

POOLS, CONSTANT_POOLS = "npu.pools", "npu.constant_pools"
"""(name, bytes used) of every writable pool, and of every read-only one."""
POOL_DEVICES = "npu.pool_devices"
"""Of a module with virtual devices: the number of each writable pool's device."""
PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES = "npu.placed_inputs", "npu.placed_outputs", "npu.placed_states"
PLACED_CONSTANTS = "npu.placed_constants"
"""Name, dtype, shape, pool, offset_bytes, size_bytes of each tensor."""
SYMBOLS = "npu.symbols"
"""Where the caller supplies the pools: (name, greatest value) of the shape symbols that the last parameter, a
shape, gives; extents of placed tensors are formulas of them."""
KEPT = "npu.kept_pools"
"""Where the caller keeps the pools: the function takes them after its own parameters, uint8 tensors that are at least
as large as `POOLS` says."""
FORMULAS = "npu.formulas"
"""Where sizes depend on shape symbols: (name, formula) of what main computes first, of the symbols and of names that
come earlier; sizes of pools may be such names."""
INITIALISE = "npu.initialise"
"""Where the caller supplies the pools: the name of the function, with the same parameters, that puts constants into
writable pools; to be called once before the first run."""

ORDER_PEAKS = "npu.order_peaks"
"""Of a function whose calls, or layers of whose NPU functions, have another order than the model's: bytes before and
after, by function."""
CALLS = "npu.calls"
"""What finds which storage in the pools, in textual order: (PrimFunc, names of the storages in the order in which it
declares them), and of tensor objects over a pool ("view", name), ("result", name) where a packed function writes it.
Where one begins within its storage, a third field has the bytes before it, for each of the names."""
VIEW, RESULT = "view", "result"
RUN_TIME = "npu.run_time"
"""(name, reason) of every tensor that is still allocated at run time."""

# -- of any Relax function: TVM's word ------------------------------------------------------------------

UPPER_BOUND = "tir_var_upper_bound"
"""Name of a shape symbol -> its greatest value."""

# -- operators whose result is their argument's bytes in another shape ---------------------------------

RESHAPING = ("reshape", "expand_dims", "squeeze", "flatten")  # in Relax
TFLITE_RESHAPING = frozenset(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"))
RELAX_VIEWS = frozenset(f"relax.{name}" for name in (*RESHAPING, "memory.view", "memory.ensure_zero_offset"))
CALLING = frozenset(
    f"relax.{name}"
    for name in ("call_packed", "call_pure_packed", "call_inplace_packed", "call_builtin_with_ctx", "call_py_func")
)
"""Operators that call a packed function, their first argument; it may give back what it is given."""
COPYING = ("vm.builtin.attention_kv_cache_", "vm.builtin.kv_state_", "vm.builtin.paged_attention_kv_cache_")
"""How packed functions begin that copy what they are given into a store of their own."""
VIEW_ALIGNMENT = 64
"""A tensor object on pool bytes begins at a multiple of this, the runtime's own alignment, or has an offset itself."""


def is_npu(function: Any) -> bool:
    """Whether a function is a sequence of NPU operations."""
    attributes = function.attrs
    return attributes is not None and KIND in attributes and str(attributes[KIND]) == KIND_ETHOSU
