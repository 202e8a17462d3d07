"""How far the code of an operator is proven: against which reference, and why it is not exact where it is not.

Invariant: code is called exact only where a row here says so; every row is run against its reference by
tests/exactness, and what has no row is unproven. See docs/exactness.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Exactness(Enum):
    """How results relate to those of a reference."""

    EXACT = "exact"  # the same bits
    STEP = "within a step"  # one step of the output's scale at most
    UNPROVEN = "unproven"


class Code(Enum):
    """Who made the code that an operator got."""

    LIFTED = "Vela's NPU operations"
    LOWERED = "our NPU operations"
    HOST = "our host code"
    TVM = "TVM's host code"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is known of an operator's results; `reason` says why they are not exact, if they are not."""

    exactness: Exactness = Exactness.UNPROVEN
    reference: str = ""  # "": none
    reason: str = ""


UNKNOWN = Claim(reason="the plan does not say")
MICRO, LITERT = "tflite-micro", "LiteRT"

# Operators of ONNX and PyTorch, which mean real numbers.
REAL = Claim(Exactness.STEP, "its framework", "real numbers rounded once; halves and float biases may go the other way")
FLOAT = Claim(reason="TVM's float code, whose last bits depend on the compiler and its library")

MOVES = frozenset(
    (
        *("RESIZE_NEAREST_NEIGHBOR", "PAD", "PADV2", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CONCATENATION", "SPLIT"),
        *("SPLIT_V", "PACK", "UNPACK", "SLICE", "STRIDED_SLICE", "TRANSPOSE"),
    )
)
HOST_MOVES = MOVES | frozenset(
    (
        *("MIRROR_PAD", "REVERSE_V2", "GATHER", "BROADCAST_TO", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"),
        *("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "SHAPE"),
    )
)
_WEIGHTED = frozenset(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"))
_POOLED = frozenset(("AVERAGE_POOL_2D", "MAX_POOL_2D", "MEAN"))
_PAIRS = frozenset(("ADD", "SUB", "MUL", "MINIMUM", "MAXIMUM"))
_SINGLES = frozenset(("RELU", "RELU6", "LEAKY_RELU", "LOGISTIC", "TANH", "QUANTIZE"))
_VELAS = frozenset(("REDUCE_MAX", "REDUCE_MIN", "TILE"))
_COMMON = _WEIGHTED | _POOLED | _PAIRS | _SINGLES
_COMPARED = frozenset(("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"))

# Host code of operators that have no one type of activations; tests/states and tests/custom hold it.
EXACT_AS_A_WHOLE = frozenset(("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"))

# who made the code -> type of the activations -> operators that equal their reference
EXACT: dict[Code, dict[str, frozenset[str]]] = {
    Code.LIFTED: {
        "int8": (_COMMON - {"FULLY_CONNECTED"}) | MOVES | _VELAS | {
            *("TRANSPOSE_CONV", "BATCH_MATMUL", "SQUARED_DIFFERENCE", "PRELU", "ABS", "ELU", "HARD_SWISH", "EXP"),
            *("RSQRT", "SOFTMAX", "ARG_MAX", "RESIZE_BILINEAR", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
        },
        "int16": (_COMMON - {"FULLY_CONNECTED", "MUL", "LEAKY_RELU"}) | MOVES | _VELAS | {
            *("TRANSPOSE_CONV", "SQUARED_DIFFERENCE", "ABS", "EXP", "SOFTMAX", "RESIZE_BILINEAR"),
        },
        "uint8": (_COMMON - {"FULLY_CONNECTED"}) | (MOVES - {"TRANSPOSE", "EXPAND_DIMS"}) | _VELAS | {
            *("PRELU", "SOFTMAX", "ARG_MAX", "RESIZE_BILINEAR"),
        },
    },
    Code.LOWERED: {
        "int8": _COMMON | MOVES | {
            *("TRANSPOSE_CONV", "SUM", "REDUCE_MAX", "SQUARED_DIFFERENCE", "PRELU", "ABS", "HARD_SWISH", "EXP"),
            *("RSQRT", "SOFTMAX", "RESIZE_BILINEAR", "UNIDIRECTIONAL_SEQUENCE_LSTM", "SHAPE"),
        },
        "int16": (_COMMON - {"LEAKY_RELU"}) | MOVES | {"TRANSPOSE_CONV", "SUM", "REDUCE_MAX", "ABS", "SHAPE"},
        "uint8": _COMMON | (MOVES - {"EXPAND_DIMS"}) | {"SUM", "REDUCE_MAX", "SOFTMAX", "RESIZE_BILINEAR", "SHAPE"},
    },
    Code.HOST: {
        "int8": _COMMON | _COMPARED | HOST_MOVES | {
            *("TRANSPOSE_CONV", "BATCH_MATMUL", "SUM", "REDUCE_MAX", "REDUCE_MIN", "SQUARED_DIFFERENCE", "DIV"),
            *("PRELU", "ABS", "ELU", "HARD_SWISH", "RSQRT", "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", "ARG_MAX"),
            *("ARG_MIN", "RESIZE_BILINEAR", "DEQUANTIZE", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
        },
        "int16": _COMMON | (HOST_MOVES - {"DEPTH_TO_SPACE", "SPACE_TO_DEPTH"}) | {
            *("SUM", "ABS", "SOFTMAX", "DEQUANTIZE"),
        },
        "uint8": _COMMON | _COMPARED | (HOST_MOVES - {"DEPTH_TO_SPACE", "EXPAND_DIMS"}) | {
            *("SUM", "REDUCE_MAX", "REDUCE_MIN", "PRELU", "SOFTMAX", "ARG_MAX", "ARG_MIN", "RESIZE_BILINEAR"),
            "DEQUANTIZE",
        },
        "int32": (HOST_MOVES - {"DEPTH_TO_SPACE", "EXPAND_DIMS"}) | {"MINIMUM", "MAXIMUM", "QUANTIZE"},
        "float32": frozenset(("QUANTIZE",)),
    },
}  # fmt: skip

_VELA_ROUNDS = "Vela's stream is a step away in about one element of a thousand"
_VELA_MULTIPLIES = "float32 scales: ties differ"
STEP: dict[tuple[Code, str, str], str] = {
    (Code.LIFTED, "FULLY_CONNECTED", "int8"): _VELA_MULTIPLIES,
    (Code.LIFTED, "FULLY_CONNECTED", "int16"): _VELA_MULTIPLIES,
    (Code.LIFTED, "LEAKY_RELU", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "MUL", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "PRELU", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "FULLY_CONNECTED", "uint8"): "the reference rounds once, Vela's stream twice",
}

# What Vela 5.2 compiles to a stream that computes something else, or cannot be lifted, stays on the host.
NOT_BY_VELA: dict[tuple[str, str], str] = {
    ("MIRROR_PAD", "int8"): "Vela's stream for it walks backwards through memory, which cannot be lifted",
    ("MIRROR_PAD", "int16"): "Vela's stream for it walks backwards through memory, which cannot be lifted",
    ("MIRROR_PAD", "uint8"): "Vela's stream for it walks backwards through memory, which cannot be lifted",
    ("SUM", "int8"): "Vela's stream for it leaves out the scales",
    ("SUM", "int16"): "Vela's stream for it leaves out the scales",
    ("SUM", "uint8"): "Vela's stream for it leaves out the scales",
    ("TRANSPOSE", "uint8"): "Vela's stream for it reads uint8 as int8 and clamps to 127",
}

# Where tflite-micro takes uint8.
MICRO_TAKES_UINT8 = frozenset(("QUANTIZE", "DEQUANTIZE", "CAST", "RESHAPE", "SQUEEZE", "EXPAND_DIMS"))
# Other types that tflite-micro does not have, but LiteRT.
_ONLY_LITERT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("EXP", "TILE"), ("int8", "int16")),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), ("int16",)),
    "RESIZE_BILINEAR": ("int16",),
    **dict.fromkeys(("GATHER", "MIRROR_PAD", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND"), ("int16", "int32")),
    **dict.fromkeys(("RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH", "TRANSPOSE"), ("int32",)),
}


def reference_of(kind: str, dtype: str) -> str:
    """Name of the reference that has a kernel of this operator and type of activations."""
    unsigned = dtype == "uint8" and kind not in MICRO_TAKES_UINT8
    return LITERT if unsigned or dtype in _ONLY_LITERT.get(kind, ()) else MICRO


def claim(code: Code, kind: str, dtype: str) -> Claim:
    """What is known of an operator of TFLite; `dtype` is the type of its activations."""
    if code is Code.TVM:
        return Claim(reason="TVM's float form, as a rule within a step of TFLite")
    if kind in EXACT[code].get(dtype, ()) or (code is Code.HOST and kind in EXACT_AS_A_WHOLE):
        return Claim(Exactness.EXACT, reference_of(kind, dtype))
    if (code, kind, dtype) in STEP:
        return Claim(Exactness.STEP, reference_of(kind, dtype), STEP[code, kind, dtype])
    return Claim(reason=f"no test holds {code.value} for {dtype} to a reference")


def summary(claims: Iterable[tuple[str, Claim]]) -> list[str]:
    """Lines about (kind of operator, claim) pairs: one that counts, and one for each thing that is not exact."""
    claims = list(claims)
    if not claims:
        return []
    exact = [c for _, c in claims if c.exactness is Exactness.EXACT]
    against = " and ".join(dict.fromkeys(c.reference for c in exact))
    operators = f"{len(claims)} operator{'s' if len(claims) > 1 else ''}"
    how_many = "all" if len(exact) == len(claims) else str(len(exact) or "none")
    lines = [f"Results: {operators}, {how_many} exact" + (f" against {against}" if exact else "")]
    others = Counter((c, kind) for kind, c in claims if c.exactness is not Exactness.EXACT)
    groups: dict[Claim, list[str]] = {}
    for (known, kind), count in others.items():
        groups.setdefault(known, []).append(f"{count} {kind}" if count > 1 else kind)
    for known, kinds in groups.items():
        of = f" of {known.reference}" if known.reference else ""
        lines.append(f"  {known.exactness.value}{of}: {', '.join(kinds)} ({known.reason})")
    return lines
