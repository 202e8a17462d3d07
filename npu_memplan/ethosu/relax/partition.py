"""Partitioning: which operators of a Relax module the NPU runs, and why the others stay.

Invariant: every operator of `main` is either inside a composite of a function with `Codegen = "ethos-u"`, or
listed with a reason in main's attribute `npu.host_operators`. A call of exact host code that the NPU can run as one
layer becomes a composite: the same call in a function of its own, with the host code's description (`LAYER`) as an
attribute; a reader without that attribute still has code that computes the right values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns

from ...vocabulary import ACCELERATOR, ARITHMETIC, HOST_OPERATORS, LAYER
from ..arch import Architecture
from ..arch import accelerator as find_accelerator
from ..layers import COMPOSITES, parse
from ..lower.tensors import Arithmetic
from ..reading.patterns import PREFIX
from ..reading.reader import Reader, RejectedError, bindings_of, name_of
from .enlarged import join_enlargements
from .grouping import NamedPattern, group_calls
from .normalise import normalise

NO_PATTERN = "no NPU pattern matches it"
# calls that only carry quantisation or shapes: never work of their own
_CARRIERS = ("quantize", "dequantize", "astype", "clip", "reshape", "permute_dims", "nn.relu")


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator that stays on the host: its variable, its Relax operator, why."""

    name: str
    kind: str
    reason: str

    @property
    def carries(self) -> bool:
        """Whether it only carries quantisation or shapes, which is no work of its own."""
        return self.kind in _CARRIERS


# variables of main that stay on the host, where to say why others do (variable -> kind of layer, reason), and the NPU
_under_way: ContextVar[tuple[Collection[str], Rejections, Architecture | None] | None] = ContextVar(
    "_under_way", default=None
)


def _check(kind: str) -> Callable[[Any], bool]:
    def check(context: Any) -> bool:
        bindings = dict(context.matched_bindings.items())
        kept, rejections, target = _under_way.get() or ((), {}, None)
        if any(str(variable.name) in kept for variable in bindings):
            return False
        try:
            parse(kind, Reader(bindings), context.matched_expr, target)
        except RejectedError as reason:
            for variable in bindings:
                # the highest priority pattern speaks first: it is the most specific
                rejections.setdefault(str(variable.name), (kind, str(reason)))
            return False
        return True

    return check


_registered: set[str] = set()  # with TVM


def _register() -> None:
    """Tell TVM of the composites that it does not know yet: layers may be added at any time."""
    for composite in [c for c in COMPOSITES.values() if c.kind not in _registered]:
        _registered.add(composite.kind)
        patterns = [(f"{PREFIX}.{composite.kind}.{n}", pattern) for n, pattern in enumerate(composite.patterns())]
        register_patterns([(name, pattern, {}, _check(composite.kind)) for name, pattern in patterns])


_register()


def kind_of(composite: str) -> str:
    """Kind of a composite's name: `ethos-u.conv2d.3` is a conv2d."""
    return composite.split(".")[1]


def partition_for_ethosu(
    mod: Any, accelerator: str = "ethos-u55-256", exclude: Collection[str] = (), keep: Mapping[str, str] | None = None
) -> Any:
    """Group what the NPU can run into functions with `Codegen = "ethos-u"`.

    `mod` is a quantised Relax module as TVM's TFLite, ONNX or PyTorch frontend makes it (QDQ form, before any
    legalisation); mark those of ONNX and PyTorch by `with_arithmetic`. `exclude` are kinds of composites
    that stay on the host, `keep` are variables of main whose operators do, and why. Every rejection is kept:
    `host_operators(mod)` reads main's attribute. Raises `AcceleratorError` for an unknown accelerator.
    """
    target = find_accelerator(accelerator)
    _register()
    arithmetic = arithmetic_of(mod["main"])
    mod = join_enlargements(normalise(mod), keep or {})
    rejections: Rejections = {}
    keep = keep or {}
    token = _under_way.set((keep, rejections, target))
    try:
        mod = group_host_calls(mod, target, exclude, rejections)
        patterns = [p for p in get_patterns_with_prefix(PREFIX) if kind_of(str(p.name)) not in exclude]
        named = [NamedPattern(str(p.name), p.pattern, _check(kind_of(str(p.name)))) for p in patterns]
        merged = group_calls(mod, named)
        if merged is None:
            merged = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(mod)
            merged = relax.transform.MergeCompositeFunctions()(merged)
    finally:
        _under_way.reset(token)
    for variable, function in offloaded(merged).items():
        merged.update_func(variable, stated(function, arithmetic))
    main = merged["main"]
    remaining = [[o.name, o.kind, keep.get(o.name, o.reason)] for o in _remaining(main, rejections)]
    merged.update_func(
        merged.get_global_var("main"), main.with_attr(HOST_OPERATORS, remaining).with_attr(ACCELERATOR, accelerator)
    )
    return merged


def _remaining(main: Any, rejections: Rejections) -> list[HostOperator]:
    found = []
    for binding in bindings_of(main):
        if kind := name_of(binding.value):
            name = str(binding.var.name)
            found.append(HostOperator(name, kind, rejections.get(name, ("", NO_PATTERN))[1]))
    return found


def remaining_operators(mod: Any) -> tuple[HostOperator, ...]:
    """Every operator that `partition_for_ethosu` left in main, with the reasons, in program order."""
    entries = (mod["main"].attrs or {}).get(HOST_OPERATORS, ())
    return tuple(HostOperator(*(str(part) for part in entry)) for entry in entries)


def host_operators(mod: Any) -> tuple[HostOperator, ...]:
    """Those of `remaining_operators` that are work of their own."""
    return tuple(o for o in remaining_operators(mod) if not o.carries)


def offloaded(mod: Any) -> dict[Any, Any]:
    """The functions for the NPU, by global variable."""
    functions = {gv: f for gv, f in mod.functions.items() if isinstance(f, relax.Function)}
    return {gv: f for gv, f in functions.items() if str((f.attrs or {}).get("Codegen", "")) == PREFIX}


def with_arithmetic(mod: Any, arithmetic: Arithmetic) -> Any:
    """`mod`, whose main now says what its quantised operators compute; partitioning hands it on."""
    mod = mod.clone()
    mod.update_func(mod.get_global_var("main"), stated(mod["main"], arithmetic))
    return mod


def stated(function: Any, arithmetic: Arithmetic) -> Any:
    """`function` with `arithmetic` as its attribute."""
    return function.with_attr(ARITHMETIC, arithmetic.value)


def arithmetic_of(function: Any) -> Arithmetic:
    """What a function says; TFLite's when it says nothing."""
    return Arithmetic(str((function.attrs or {}).get(ARITHMETIC, Arithmetic.TFLITE.value)))


Rejections = dict[str, tuple[str, str]]  # variable -> kind of layer, reason


def group_host_calls(mod: Any, target: Architecture, exclude: Collection[str], rejections: Rejections) -> Any:
    """`mod` with composites in place of the calls in `main` that the NPU `target` can run.

    `exclude` are kinds of layers to leave on the host; why others stay there is added to `rejections`.
    """
    mutator = _Grouping(mod, target, exclude, rejections)
    mutator.builder_.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Grouping(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any, target: Architecture, exclude: Collection[str], rejections: Rejections) -> None:
        super().__init__(mod)
        self.target = target
        self.functions = {gv.name_hint: f for gv, f in mod.functions.items()}
        self.exclude, self.rejections = exclude, rejections
        self.variable = ""  # that is being bound

    def visit_var_binding_(self, binding: Any) -> None:
        self.variable = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if name_of(call) != "call_tir":
            return call
        layer = (self.functions[call.args[0].name_hint].attrs or {}).get(LAYER)
        if layer is None or str(layer["kind"]) in self.exclude:
            return call
        kind = str(layer["kind"])
        try:
            match = parse(kind, Reader({}, layer), call, self.target)
        except RejectedError as reason:
            self.rejections[self.variable] = (kind, str(reason))
            return call
        variables = tuple(dict.fromkeys(v for v in match.variables if v is not None))
        composite = _composite(call, variables, {"Composite": f"{PREFIX}.{kind}.0", LAYER: layer})
        return ir.Call(self.builder_.add_func(composite, f"composite_{kind}"), list(variables))


def _composite(call: Any, variables: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """A function of `variables` that makes `call`."""
    parameters = {v: relax.Var(v.name, v.ty) for v in variables}
    arguments = relax.Tuple([parameters.get(a, a) for a in call.args[1].fields])
    result = relax.Var("result", call.ty)
    inner = ir.Call(call.op, [call.args[0], arguments, *call.args[2:]], call.attrs, call.ty_args, ret_ty=call.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, inner)])], result)
    function = relax.Function(list(parameters.values()), body, call.ty, is_pure=True)
    return function.with_attr("Primitive", True).with_attr(attributes)
