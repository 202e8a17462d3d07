"""Host PrimFuncs as plain C functions, printed by TVM's c target.

Invariant: what C computes is what the PrimFunc says, bit for bit: float constants are printed as C99 hexadecimal floats
(TVM's own printer keeps 7 digits and loses scales), pointers are the planned ones, and no runtime library is called. A
result that is not proven to stay in int32 or int64 is computed in the unsigned type of the same width, so that every
compiler keeps its low bits, as the reference kernels' do; arithmetic on loop variables and shapes is left as it is: it
addresses memory that is there. A buffer is read again wherever the PrimFunc reads it: TVM's printer would take the
operands of min and max from variables that it made for an earlier one with the same text, whatever was stored since.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from ..errors import InternalError, NpuMemplanError, describe_error
from ..process.ending import raise_lack_of_memory
from ..rewrite.primfunc import compact_symbols, with_values
from ..vocabulary import C_SOURCES, KERNEL, NONE
from . import CodegenError
from .c_text import OPAQUE, c_float, local_name

_KINDS = {tirx.Add: "add", tirx.Sub: "sub", tirx.Mul: "mul", tirx.LShift: "shl"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "shl": "<<"}
WRAPPING = re.compile(r"npu_memplan_(?P<what>add|sub|mul|shl)_(?P<dtype>int32|int64)")
"""Names of the functions that `with_wrapping` calls."""
_WRAPPED = ("int32", "int64")
_WIDEST_SHIFT = 63


@dataclass(frozen=True, slots=True)
class Range:
    """The integers `low` to `high`, both included; `has_elements`: it depends on an element of a buffer."""

    low: int
    high: int
    has_elements: bool = True

    def union_with(self, other: Range) -> Range:
        """The smallest range that has both."""
        return Range(min(self.low, other.low), max(self.high, other.high), self.has_elements or other.has_elements)


def with_wrapping(function: Any, constants: Sequence[npt.NDArray[np.generic] | None] = ()) -> Any:
    """The PrimFunc with calls of `npu_memplan_{add,sub,mul,shl}_{int32,int64}` where a result may leave its type.

    `constants[i]` is what parameter i holds, if that is known.
    """
    known = zip(function.params, constants, strict=False)
    ranges = _Ranges(function.body, {p: _range_of(a) for p, a in known if a is not None and _is_known(p, a)})

    def replace_node(node: Any) -> Any:
        dtype = str(node.ty.dtype)
        if dtype not in _WRAPPED:
            return node
        exact = ranges.of_operation(node)
        if not exact.has_elements or _holds_values(dtype, exact):
            return node
        return tirx.call_pure_extern(dtype, f"npu_memplan_{_KINDS[type(node)]}_{dtype}", node.a, node.b)

    body = tvm_ffi.structural_map(function.body, (tuple(_KINDS), replace_node), order="post")
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def wrapping_function(what: str, dtype: str) -> str:
    """The C function that `with_wrapping` calls for `what` of two numbers of type `dtype`."""
    kind, unsigned = f"{dtype}_t", f"u{dtype}_t"
    result = f"({kind})(({unsigned})a {_SIGNS[what]} ({unsigned})b)"
    return f"static inline {kind} npu_memplan_{what}_{dtype}({kind} a, {kind} b) {{ return {result}; }}"


def _is_known(parameter: Any, values: npt.NDArray[np.generic]) -> bool:
    return values.size > 0 and values.dtype.kind in "iu" and str(parameter.dtype) == str(values.dtype)


def _range_of(values: npt.NDArray[np.generic]) -> Range:
    return Range(int(values.min()), int(values.max()))


def _type_range(dtype: str, has_elements: bool = True) -> Range:
    if dtype == "bool":
        return Range(0, 1, has_elements)
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return Range(0, (1 << bits) - 1, has_elements)
    return Range(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, has_elements)


def _holds_values(dtype: str, values: Range) -> bool:
    limits = _type_range(dtype)
    return limits.low <= values.low and values.high <= limits.high


class _Ranges:
    """The integers that expressions of a body can be; of scalars that C keeps in registers, over all that is stored
    there.
    """

    def __init__(self, body: Any, known: Mapping[Any, Range]) -> None:
        self._known = known
        self._stores: dict[Any, list[Any]] = {}
        self._extents: dict[Any, Any] = {}
        self._locals: dict[Any, Range | None] = {}  # None: it is being found out
        tvm_ffi.structural_walk(
            body, [(tirx.BufferStore, self._visit_store), (tirx.For, self._visit_loop)], order="pre"
        )

    def _visit_store(self, store: Any) -> None:
        if str(store.buffer.scope()) == "local":
            self._stores.setdefault(store.buffer, []).append(store.value)

    def _visit_loop(self, loop: Any) -> None:
        self._extents[loop.loop_var] = loop

    def range_of(self, node: Any) -> Range:
        """The range of an expression, within its type."""
        dtype = str(node.ty.dtype)
        found = self._raw_range(node, dtype)
        return found if _holds_values(dtype, found) else _type_range(dtype, found.has_elements)

    def _raw_range(self, node: Any, dtype: str) -> Range:
        if isinstance(node, tirx.IntImm):
            return Range(int(node.value), int(node.value), False)
        if type(node) in _KINDS:
            return self.of_operation(node)
        if isinstance(node, ir.TensorLoad):
            if node.source in self._known:
                return self._known[node.source]
            return self._of_local(node.source, dtype) if node.source in self._stores else _type_range(dtype)
        if isinstance(node, ir.Var):
            return self._of_variable(node, dtype)
        if isinstance(node, tirx.Cast):
            kind = str(node.value.ty.dtype)
            return self.range_of(node.value) if _is_integer(kind) else _type_range(dtype)
        if isinstance(node, tirx.Select):
            return self.range_of(node.true_value).union_with(self.range_of(node.false_value))
        if isinstance(node, (tirx.Min, tirx.Max, tirx.RShift, tirx.FloorDiv, tirx.FloorMod, tirx.BitwiseAnd)):
            return _combine_ranges(node, self.range_of(node.a), self.range_of(node.b), dtype)
        return _type_range(dtype)

    def of_operation(self, node: Any) -> Range:
        """The range of the exact result of a sum, difference, product or left shift."""
        a, b = self.range_of(node.a), self.range_of(node.b)
        elements = a.has_elements or b.has_elements
        if isinstance(node, tirx.Add):
            return Range(a.low + b.low, a.high + b.high, elements)
        if isinstance(node, tirx.Sub):
            return Range(a.low - b.high, a.high - b.low, elements)
        if isinstance(node, tirx.LShift):
            if a.low < 0 or b.low < 0 or b.high > _WIDEST_SHIFT:  # C leaves a shift of what is negative undefined
                return Range(-(1 << 64), 1 << 64, elements)
            return Range(a.low << b.low, a.high << b.high, elements)
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Range(min(corners), max(corners), elements)

    def _of_local(self, buffer: Any, dtype: str) -> Range:
        if buffer in self._locals:
            return self._locals[buffer] or _type_range(dtype, False)
        self._locals[buffer] = None
        found, *others = (self.range_of(value) for value in self._stores[buffer])
        for other in others:
            found = found.union_with(other)
        self._locals[buffer] = found
        return found

    def _of_variable(self, variable: Any, dtype: str) -> Range:
        loop = self._extents.get(variable)
        if loop is None or not isinstance(loop.min, tirx.IntImm) or not isinstance(loop.extent, tirx.IntImm):
            return _type_range(dtype, False)
        low = int(loop.min.value)
        return Range(low, max(low, low + int(loop.extent.value) - 1), False)


def _is_integer(dtype: str) -> bool:
    return dtype == "bool" or dtype.lstrip("u").startswith("int")


def _combine_ranges(node: Any, a: Range, b: Range, dtype: str) -> Range:
    """The range of an operation that never leaves its type, of operands in `a` and `b`."""
    elements = a.has_elements or b.has_elements
    if isinstance(node, tirx.Min):
        return Range(min(a.low, b.low), min(a.high, b.high), elements)
    if isinstance(node, tirx.Max):
        return Range(max(a.low, b.low), max(a.high, b.high), elements)
    if isinstance(node, tirx.RShift) and b.low >= 0:
        low, high = (a.low >> b.low, a.low >> b.high), (a.high >> b.low, a.high >> b.high)
        return Range(min(low), max(high), elements)
    if isinstance(node, tirx.FloorDiv) and 0 < b.low == b.high:
        return Range(a.low // b.low, a.high // b.low, elements)
    if isinstance(node, tirx.FloorMod) and 0 < b.low == b.high:
        return Range(0, b.low - 1, elements)
    if isinstance(node, tirx.BitwiseAnd) and min(a.high, b.high) >= 0 and max(a.low, b.low) >= 0:
        return Range(0, min(r.high for r in (a, b) if r.low >= 0), elements)
    return _type_range(dtype, elements)


Values = npt.NDArray[np.generic]

_EXTERN = '(?:#ifdef __cplusplus\nextern "C"\n#endif\n)TVM_DLL '
_DECLARATION = re.compile(_EXTERN + r"(?P<type>[\w ]+?\**) (?P<name>\w+)\((?P<arguments>[^)\n]*)\);\n")
_DEFINITION = re.compile(_EXTERN + r"(?P<type>\w+\**) (?P<name>\w+)\((?P<arguments>[^)\n]*)\) \{\n")
_FLOAT = re.compile(r"__npu_memplan_(f32|f64)_([0-9a-f]+)\(\)")
_FLOATS = {"float32": ("f32", ">f"), "float64": ("f64", ">d")}  # short name, and how `struct` packs them
_EXTREME = re.compile(r"npu_memplan_(?P<what>min|max)_(?P<dtype>\w+)")
# Declared by <math.h> and <string.h>, which every generated file includes.
_LIBRARY = re.compile(
    r"(?:a?(?:sin|cos|tan)h?|atan2|exp2?|expm1|log(?:2|10|1p)?|sqrt|cbrt|pow|hypot|erf|ldexp|floor|ceil|l?round|trunc"
    r"|nearbyint|rint|fabs|fmod|fmin|fmax|copysign)f?|mem(?:cpy|set|move)"
)


_FUNCTION = re.compile(r"(?m)^[A-Za-z_][\w \t*]*[ \t*](?P<name>\w+)\(")


def defined_in(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(match["name"] for text in texts for match in _FUNCTION.finditer(text))


def print_functions(
    functions: Mapping[str, Any], constants: Mapping[str, Sequence[Values | None]], defined: Collection[str] = ()
) -> str:
    """C text of PrimFuncs, each a static function called by its key.

    `functions` maps the C name to a planned PrimFunc (parameters are flat buffers);
    `constants[name][i]` is what parameter i holds, if it is a constant; it becomes a pointer to const. Functions that
    are `defined` before need no declaration.
    """
    if not functions:
        return ""
    try:
        source = _print_with_tvm(functions, constants)
    except NpuMemplanError:
        raise
    except Exception as error:  # what was lowered has a form in C
        raise_lack_of_memory(error)
        raise InternalError(
            f"TVM prints no C of the host's code ({', '.join(functions)}): {describe_error(error)}"
        ) from error
    return _tidy_source(source, functions, constants, defined)


def _print_with_tvm(functions: Mapping[str, Any], constants: Mapping[str, Sequence[Values | None]]) -> str:
    target = tvm.target.Target("c")
    plain = {name: _without_blocks(_named_for_c(f)) for name, f in functions.items()}
    module = tvm.IRModule({ir.GlobalVar(name): with_wrapping(f, constants[name]) for name, f in plain.items()})
    module = _lowering_passes(target)(module)
    module = tvm.IRModule(
        {gv: _plain_abi(_stack_scalars(f, gv.name_hint), gv.name_hint) for gv, f in module.functions.items()}
    )
    module = tirx.transform.LowerIntrin()(module)
    module = tvm.IRModule({gv: _printable_function(f) for gv, f in module.functions.items()})
    return str(tvm.get_global_func("target.build.c")(module, target).inspect_source())


def _named_for_c(function: Any) -> Any:
    """The PrimFunc with variables that C can name: those of a model may be called anything.

    A parameter is a pointer to its first element: its own symbols of offset and strides have the values of that.
    """
    pointers = [p for p in function.params if isinstance(p.ty, tirx.BufferType)]
    values = {symbol: value for p in pointers for symbol, value in compact_symbols(p).items()}

    def name_variable(variable: Any) -> Any:
        name = local_name(variable.name)
        if _LIBRARY.fullmatch(name):
            name += "_"
        ty = with_values(variable.ty, values) if values else variable.ty
        return variable if name == variable.name and not values else ir.Var(name, ty)

    table: dict[Any, Any] = dict(values)
    entry = (ir.Var, lambda variable: table.setdefault(variable, name_variable(variable)))
    body = tvm_ffi.structural_map(function.body, entry)
    parameters = [table.setdefault(p, name_variable(p)) for p in function.params]
    return tirx.PrimFunc(parameters, body, function.ret_type, function.attrs)


def with_kernel(function: Any) -> Any:
    """The PrimFunc with the call of its C kernel (`vocabulary.KERNEL`) as its body, which does the same on the same
    buffers; as it is where it has none.
    """
    kernel = (function.attrs or {}).get(KERNEL)
    if kernel is None:
        return function
    views: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, views.append), order="pre")
    buffers = {str(buffer.name): buffer for buffer in (*function.params, *(view.buffer for view in views))}
    arguments, used = [], set()
    for argument in kernel["arguments"]:
        if isinstance(argument, float):
            arguments.append(tirx.FloatImm("float64", argument))
        elif not isinstance(argument, str):
            arguments.append(tirx.IntImm("int32", int(argument)))
        elif not argument:
            arguments.append(tirx.call_extern("handle", NONE))
        else:
            used.add(argument)
            buffer = buffers[argument]
            arguments.append(tirx.address_of(tirx.BufferLoad(buffer, [tirx.IntImm("int32", 0)] * len(buffer.shape))))
    call = tirx.Evaluate(tirx.call_extern("void", str(kernel["symbol"]), *arguments))
    body = tirx.SeqStmt([*(view for view in views if str(view.buffer.name) in used), call])
    attributes = {C_SOURCES: list(kernel["sources"])}
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs).with_attr(attributes)


def used_parameters(function: Any) -> tuple[Any, list[int]]:
    """The PrimFunc without the parameters its body never names, and the indices it keeps."""
    used: set[Any] = set()
    tvm_ffi.structural_walk(function.body, (ir.Var, used.add), order="pre")
    kept = [index for index, parameter in enumerate(function.params) if parameter in used]
    trimmed = tirx.PrimFunc([function.params[i] for i in kept], function.body, function.ret_type, function.attrs)
    return trimmed, kept


def _without_blocks(function: Any) -> Any:
    """A PrimFunc without schedule blocks: those of TVM's legalisation are lowered here."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, blocks.append), order="pre")
    if not blocks:
        return function
    name = ir.GlobalVar("main")
    module = tvm.ir.transform.Sequential(
        [
            s_tir.transform.CanonicalizeLoop(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.LowerOpaqueBlock(),
        ]
    )(tvm.IRModule({name: function}))
    return module[name]


def _lowering_passes(target: Any) -> Any:
    return tvm.ir.transform.Sequential(
        [
            tirx.transform.BindTarget(target.with_host(target)),
            tirx.transform.FlattenBuffer(),
            tirx.transform.NarrowDataType(32),
            s_tir.transform.LoopPartition(),
            tirx.transform.VectorizeLoop(False),
            tirx.transform.UnrollLoop(),
            tirx.transform.StmtSimplify(),
            tirx.transform.RemoveNoOp(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.CommonSubexprElim(),
        ]
    )


def _stack_scalars(function: Any, name: str) -> Any:
    """Allocations of scope "local" (accumulators) become C arrays on the stack.

    They are not planned: a compiler keeps them in registers. TVM's C printer has only the
    scope "global", in which an allocation that planning has left over is such an array.
    """
    allocations: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, allocations.append), order="pre")
    table: dict[Any, Any] = {}
    for allocation in allocations:
        buffer = allocation.buffer
        if str(buffer.scope()) != "local":
            raise CodegenError(
                f"the allocation {buffer.name} of {name} has scope {buffer.scope()} and is not placed in a pool; "
                "plan the module first"
            )
        table[buffer] = tirx.decl_buffer(buffer.shape, str(buffer.dtype), name=buffer.name, layout=None)
    body = tvm_ffi.structural_map(function.body, (ir.Var, lambda variable: table.get(variable, variable)))
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _plain_abi(function: Any, name: str) -> Any:
    """Buffer parameters become pointers, so that the C function takes plain pointers."""
    pointers, views = [], []
    for parameter in function.params:
        if not tirx.is_buffer_var(parameter):  # a shape symbol
            pointers.append(parameter)
            continue
        pointer = tirx.Var(parameter.name, ir.PointerType(ir.PrimType(str(parameter.dtype)), "global"))
        pointers.append(pointer)
        views.append(tirx.DeclBuffer(parameter, data=pointer))
    body = tirx.SeqStmt([*views, function.body])
    return tirx.PrimFunc(pointers, body, function.ret_type, function.attrs).with_attr("global_symbol", name)


def _printable_function(function: Any) -> Any:
    """The function with calls in place of what TVM would not print as it must be.

    `tirx.fabs`, for which TVM 0.27 has no C form, is the C library's; minima and maxima are functions that
    `_tidy_source` defines; float constants are named by their bits, which `_tidy_source` prints exactly.
    """

    def library_call(call: Any) -> Any:
        if isinstance(call.op, ir.Op) and call.op.name == "tirx.fabs":
            kind = str(call.ty.dtype)
            return tirx.call_pure_extern(kind, "fabsf" if kind == "float32" else "fabs", *call.args)
        return call

    def extreme_value(node: Any) -> Any:
        what, dtype = "min" if isinstance(node, tirx.Min) else "max", str(node.ty.dtype)
        return tirx.call_pure_extern(dtype, f"npu_memplan_{what}_{dtype}", node.a, node.b)

    def named_constant(constant: Any) -> Any:
        kind = str(constant.ty.dtype)
        if kind not in _FLOATS:
            return constant
        short, form = _FLOATS[kind]
        return tirx.call_pure_extern(kind, f"__npu_memplan_{short}_{struct.pack(form, constant.value).hex()}")

    entries = [(ir.Call, library_call), ((tirx.Min, tirx.Max), extreme_value), (tirx.FloatImm, named_constant)]
    body = tvm_ffi.structural_map(function.body, entries, order="post")
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _tidy_source(
    source: str,
    functions: Mapping[str, Any],
    constants: Mapping[str, Sequence[Values | None]],
    defined: Collection[str],
) -> str:
    declared: dict[str, set[str]] = {}
    inline: dict[str, str] = {}

    def tidy_declaration(match: re.Match[str]) -> str:
        name, kind = match["name"], match["type"]
        extreme = _EXTREME.fullmatch(name)
        if extreme is not None:
            sign = "<" if extreme["what"] == "min" else ">"
            inline[name] = f"static inline {kind} {name}({kind} a, {kind} b) {{ return a {sign} b ? a : b; }}"
            return ""
        if wraps := WRAPPING.fullmatch(name):
            inline[name] = wrapping_function(wraps["what"], wraps["dtype"])
            return ""
        if (
            name not in functions
            and name not in defined
            and not _LIBRARY.fullmatch(name)
            and not name.startswith("__npu_memplan_f")
        ):
            declared.setdefault(name, set()).add(f"{match['type']} {name}({match['arguments'] or 'void'});")
        return ""

    def tidy_definition(match: re.Match[str]) -> str:
        name = match["name"]
        arguments = match["arguments"].split(", ") if match["arguments"] else ["void"]
        for index, values in enumerate(constants[name]):
            if values is not None:
                arguments[index] = f"const {arguments[index]}"
        return f"static {OPAQUE} {match['type']} {name}({', '.join(arguments)}) {{\n"

    source = source[source.index("__tvm_ffi__library_ctx") :].split("\n", 1)[1]
    source = source.replace("#pragma unroll 1\n", "")  # which TVM puts before a while
    source = _DECLARATION.sub(tidy_declaration, source)
    source = _DEFINITION.sub(tidy_definition, source)
    source = _FLOAT.sub(_exact_float, source)
    source = "".join(
        _without_unused_parameters(_without_unused(_without_unread(_plain_scalars(part))))
        for part in re.split(r"(?m)^(?=static )", source)
    )
    externs = []
    for name, signatures in declared.items():
        # One function called with pointers of different types: C99 lets us leave its parameters open.
        result = next(iter(signatures)).split(f" {name}(")[0]
        externs.append(next(iter(signatures)) if len(signatures) == 1 else f"{result} {name}();")
    externs += [inline[name] for name in sorted(inline)]
    return "\n".join([*externs, *([""] if externs else []), source.strip(), ""])


def _exact_float(match: re.Match[str]) -> str:
    form, suffix = (">f", "f") if match[1] == "f32" else (">d", "")
    return c_float(struct.unpack(form, bytes.fromhex(match[2]))[0], suffix)


def _without_unread(function: str) -> str:
    """`function` without scalars that are set and never read: simplification has removed what used them."""
    while True:
        for name in re.findall(r"(?m)^ +\w+ (\w+);$", function):
            stores = rf"(?m)^ +{name} = .*;\n"
            if not re.search(rf"\b{name}\b", re.sub(rf"(?m)^ +\w+ {name};\n", "", re.sub(stores, "", function))):
                function = re.sub(rf"{stores}|^ +\w+ {name};\n", "", function)
                break
        else:
            return function


def _without_unused(function: str) -> str:
    """`function` without unused variables: TVM's common subexpressions of buffer shapes, which C does not have, and
    views whose loads it has simplified away.
    """
    for name in re.findall(r"(?m)^ +\w+\* (\w+) = ", function):
        if len(re.findall(rf"\b{name}\b", function)) == 1:
            function = re.sub(rf"(?m)^ +\w+\* {name} = .*;\n", "", function)
    for name in reversed(re.findall(r"(?m)^ +int\d+_t (cse_v\d+) = ", function)):
        if len(re.findall(rf"\b{name}\b", function)) == 1:
            function = re.sub(rf"(?m)^ +int\d+_t {name} = .*;\n", "", function)
    return function


def _without_unused_parameters(function: str) -> str:
    """`function` with a statement that names each parameter that simplification has left unused, so that no compiler
    warns of it.
    """
    head, brace, body = function.partition(" {\n")
    names = re.findall(r"(\w+)[,)]", head) if brace and head.startswith(f"static {OPAQUE} void ") else []
    unused = "".join(f"  (void){name};\n" for name in names if name != "void" and not re.search(rf"\b{name}\b", body))
    return head + brace + unused + body


def _plain_scalars(function: str) -> str:
    """`function` with one-element arrays on the stack as scalars."""
    for kind, name in re.findall(r"(?m)^ +(\w+) (\w+_ptr(?:_\d+)?)\[1\];$", function):
        short = re.sub(r"_ptr(_\d+)?$", r"\1", name)
        plain = short if not re.search(rf"\b{short}\b", function) else name
        function = function.replace(f"{kind} {name}[1];", f"{kind} {plain};")
        function = re.sub(rf"\b{name}\[0\]", plain, function)
    return function
