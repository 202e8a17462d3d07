"""The claims about the code of operators: how far it is proven, against which reference, and why it is not exact.

Invariant: code is called exact only where a row here says so; every row is run against its reference by
tests/exactness, and what has no row is unproven. See docs/exactness.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum


class Exactness(Enum):
    """How results relate to those of a reference."""

    EXACT = "exact"  # the same bits
    ULPS = "within ulps"  # the same operations, of which a function of the C library may differ in its last bits
    STEP = "within a step"  # one step of the output's scale at most
    UNPROVEN = "unproven"
    DIFFERS = "differs"  # a check found more than was claimed


class Code(Enum):
    """Who made the code that an operator got."""

    LIFTED = "Vela's NPU operations"
    LOWERED = "our NPU operations"
    HOST = "our host code"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim on an operator's results; `reason` says why they are not exact, if they are not."""

    exactness: Exactness = Exactness.UNPROVEN
    reference: str = ""  # "": none
    reason: str = ""


UNKNOWN = Claim(reason="the plan does not say")
MICRO, LITERT, TOSA = "tflite-micro", "LiteRT", "TOSA's reference model"

# Operators of ONNX and PyTorch, which mean real numbers.
REAL = Claim(Exactness.STEP, "its framework", "real numbers rounded once; halves and float biases may go the other way")
FLOAT = Claim(reason="TVM's float code, whose last bits depend on the compiler and its library")


def _name_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


MOVES = _name_set(
    "RESIZE_NEAREST_NEIGHBOR PAD PADV2 RESHAPE SQUEEZE EXPAND_DIMS CONCATENATION SPLIT SPLIT_V PACK UNPACK SLICE "
    "STRIDED_SLICE TRANSPOSE"
)
_BLOCKS = _name_set("BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND DEPTH_TO_SPACE SPACE_TO_DEPTH")
HOST_MOVES = MOVES | _BLOCKS | _name_set("MIRROR_PAD REVERSE_V2 GATHER BROADCAST_TO SHAPE")
# Operators that hand on stored values; NPUs' compilers rescale them where the output has another scale.
KEEP_STORED = (MOVES - _name_set("RESHAPE SQUEEZE EXPAND_DIMS")) | _name_set(
    "RESIZE_BILINEAR MAX_POOL_2D AVERAGE_POOL_2D RELU6 REDUCE_MAX REDUCE_MIN"
)
_REAL_TABLES = _name_set("LOG GELU RELU_0_TO_1 RELU_N1_TO_1")
_VELAS = _name_set("REDUCE_MAX REDUCE_MIN TILE")
_COMMON = _name_set(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED AVERAGE_POOL_2D MAX_POOL_2D MEAN ADD SUB MUL MINIMUM MAXIMUM RELU RELU6 "
    "LEAKY_RELU LOGISTIC TANH QUANTIZE"
)
_COMPARED = _name_set("EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL")
_OF_NUMBERS = _COMPARED | _name_set("ADD SUB MUL MAXIMUM MINIMUM NEG SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD CUMSUM")
_OF_FLOATS = _name_set(
    "DIV FLOOR_DIV FLOOR_MOD SQUARED_DIFFERENCE ADD_N ABS SQUARE SQRT RSQRT FLOOR CEIL ROUND RELU RELU6 RELU_N1_TO_1 "
    "RELU_0_TO_1 LEAKY_RELU PRELU HARD_SWISH L2_NORMALIZATION MEAN ARG_MAX ARG_MIN CONV_2D DEPTHWISE_CONV_2D "
    "TRANSPOSE_CONV FULLY_CONNECTED BATCH_MATMUL AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D RESIZE_BILINEAR QUANTIZE SVDF"
)
_SELECTED = _name_set("SELECT SELECT_V2")
_CHOOSING = _SELECTED | _name_set("CAST GATHER_ND EMBEDDING_LOOKUP ONE_HOT FILL RANK TILE DYNAMIC_UPDATE_SLICE")
_SHAPES = _name_set("ZEROS_LIKE RANGE BROADCAST_ARGS")

# Operators of float32 that call a function of the C library: which, and how many ulps newlib 3.3's was away on 25,600
# elements of several magnitudes (QEMU). Equal with the host's own library, which tflite-micro calls as well.
LIBRARY: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("EXP", "LOGISTIC", "SOFTMAX"), ("expf", 0)),
    **{"LOG": ("logf", 0), "SIN": ("sinf", 0), "COS": ("cosf", 0), "LOG_SOFTMAX": ("expf and logf", 0)},
    **{"TANH": ("tanhf", 2), "ELU": ("expm1f", 1), "UNIDIRECTIONAL_SEQUENCE_LSTM": ("expf and tanhf", 2)},
}

# Host code of operators that have no one type of activations; tests/states and tests/custom hold it.
EXACT_AS_A_WHOLE = _name_set(
    "IF WHILE CALL_ONCE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE CIRCULAR_BUFFER SignalWindow SignalFftAutoScale "
    "SignalRfft SignalIrfft SignalEnergy SignalFilterBank SignalPCAN SignalFilterBankSquareRoot "
    "SignalFilterBankSpectralSubtraction SignalFilterBankLog SignalFramer SignalStacker SignalDelay SignalOverlapAdd "
    "TFLite_Detection_PostProcess"
)

# who made the code -> type of the activations -> operators that equal their reference
EXACT: dict[Code, dict[str, frozenset[str]]] = {
    Code.LIFTED: {
        "int8": (_COMMON - _name_set("FULLY_CONNECTED LOGISTIC TANH LEAKY_RELU")) | MOVES | _VELAS | _name_set(
            "LOG RELU_0_TO_1 RELU_N1_TO_1 TRANSPOSE_CONV BATCH_MATMUL SQUARED_DIFFERENCE ABS HARD_SWISH RSQRT "
            "SOFTMAX ARG_MAX RESIZE_BILINEAR UNIDIRECTIONAL_SEQUENCE_LSTM"
        ),
        "int16": (_COMMON - _name_set("FULLY_CONNECTED MUL LEAKY_RELU RELU")) | MOVES | _VELAS | _name_set(
            "TRANSPOSE_CONV SQUARED_DIFFERENCE ABS EXP RESIZE_BILINEAR"
        ),
        "uint8": (_COMMON - _name_set("FULLY_CONNECTED LOGISTIC LEAKY_RELU")) | (
            MOVES - _name_set("TRANSPOSE EXPAND_DIMS")
        ) | _name_set(
            "REDUCE_MAX REDUCE_MIN TILE PRELU SOFTMAX ARG_MAX RESIZE_BILINEAR HARD_SWISH RELU_0_TO_1 RELU_N1_TO_1"
        ),
    },
    Code.LOWERED: {
        "int8": _COMMON | HOST_MOVES | _COMPARED | _SELECTED | _name_set(
            "TRANSPOSE_CONV SUM REDUCE_MAX SQUARED_DIFFERENCE PRELU ABS HARD_SWISH EXP RSQRT SOFTMAX RESIZE_BILINEAR "
            "UNIDIRECTIONAL_SEQUENCE_LSTM BATCH_MATMUL ARG_MAX ARG_MIN REDUCE_MIN ELU NEG TILE EMBEDDING_LOOKUP "
            "GATHER_ND"
        ) | _REAL_TABLES,
        "int16": _COMMON | (HOST_MOVES - _name_set("DEPTH_TO_SPACE SPACE_TO_DEPTH")) | _SELECTED | _name_set(
            "TRANSPOSE_CONV SUM REDUCE_MAX REDUCE_MIN ABS BATCH_MATMUL TILE EMBEDDING_LOOKUP SOFTMAX PRELU "
            "SQUARED_DIFFERENCE RESIZE_BILINEAR GATHER_ND"
        ),
        "uint8": _COMMON | (HOST_MOVES - {"EXPAND_DIMS"}) | _COMPARED | _SELECTED | _name_set(
            "SUM REDUCE_MAX REDUCE_MIN SOFTMAX RESIZE_BILINEAR ARG_MAX ARG_MIN HARD_SWISH TILE "
            "EMBEDDING_LOOKUP GATHER_ND"
        ) | (_REAL_TABLES - {"LOG"}),
    },
    Code.HOST: {
        "int8": _COMMON | _COMPARED | HOST_MOVES | _CHOOSING | _REAL_TABLES | _name_set(
            "ZEROS_LIKE ADD_N CUMSUM TRANSPOSE_CONV BATCH_MATMUL SUM REDUCE_MAX REDUCE_MIN SQUARED_DIFFERENCE DIV "
            "PRELU ABS ELU HARD_SWISH RSQRT SOFTMAX LOG_SOFTMAX L2_NORMALIZATION ARG_MAX ARG_MIN RESIZE_BILINEAR "
            "DEQUANTIZE SVDF UNIDIRECTIONAL_SEQUENCE_LSTM EXP NEG"
        ),
        "int16": _COMMON | (HOST_MOVES - {"DEPTH_TO_SPACE", "SPACE_TO_DEPTH"}) | (_CHOOSING - {"ONE_HOT"}) | _name_set(
            "SUM ABS RSQRT SOFTMAX DEQUANTIZE BATCH_MATMUL TRANSPOSE_CONV PRELU SQUARED_DIFFERENCE "
            "UNIDIRECTIONAL_SEQUENCE_LSTM EXP LOG RESIZE_BILINEAR"
        ),
        "uint8": _COMMON | _COMPARED | HOST_MOVES | _CHOOSING | (_REAL_TABLES - {"LOG"}) | _name_set(
            "TRANSPOSE_CONV SUM REDUCE_MAX REDUCE_MIN PRELU SOFTMAX ARG_MAX ARG_MIN RESIZE_BILINEAR DEQUANTIZE DIV "
            "LOG_SOFTMAX L2_NORMALIZATION HARD_SWISH"
        ),
        "float32": _OF_NUMBERS | _OF_FLOATS | HOST_MOVES | _CHOOSING | _name_set("ZEROS_LIKE RANGE"),
        "int32": _OF_NUMBERS | HOST_MOVES | _CHOOSING | _SHAPES | _name_set(
            "DIV FLOOR_DIV SQUARED_DIFFERENCE ADD_N ABS ARG_MAX ARG_MIN QUANTIZE"
        ),
        "int64": _OF_NUMBERS | (HOST_MOVES - _name_set("RESIZE_NEAREST_NEIGHBOR UNPACK")) | _CHOOSING | _SHAPES,
        "bool": (HOST_MOVES - _name_set("SPLIT SPLIT_V PACK SPACE_TO_DEPTH DEPTH_TO_SPACE")) | _CHOOSING | _name_set(
            "EQUAL NOT_EQUAL LOGICAL_AND LOGICAL_OR LOGICAL_NOT REDUCE_ANY REDUCE_ALL"
        ),
        "uint32": (_CHOOSING - _name_set("GATHER_ND ONE_HOT")) | {"CONCATENATION"},
    },
}  # fmt: skip

# Of float32 with int8 weights, which become int8 when the operator runs; tests/exactness/test_hybrids.py holds them.
HYBRID = _name_set("CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED BATCH_MATMUL SVDF EMBEDDING_LOOKUP")
HYBRID_LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"

_VELA_ROUNDS = "Vela's stream is a step away in about one element of a thousand"
_VELA_TABLES = "Vela's table is of the real function, the reference computes in fixed point"
_VELA_DOUBLES = "Vela's table is of doubles, the reference computes in float32: ties differ"
_VELA_MULTIPLIES = "float32 scales: ties differ"
STEP: dict[tuple[Code, str, str], str] = {
    (Code.LIFTED, "FULLY_CONNECTED", "int8"): _VELA_MULTIPLIES,
    (Code.LIFTED, "FULLY_CONNECTED", "int16"): _VELA_MULTIPLIES,
    (Code.LIFTED, "ELU", "int8"): _VELA_DOUBLES,
    (Code.LIFTED, "EXP", "int8"): _VELA_DOUBLES,
    (Code.LIFTED, "GELU", "int8"): _VELA_DOUBLES,
    (Code.LIFTED, "LEAKY_RELU", "int8"): _VELA_MULTIPLIES,
    (
        Code.LIFTED,
        "LEAKY_RELU",
        "uint8",
    ): "Vela's slope is of double precision, the reference's of float32: ties differ",
    (Code.LIFTED, "PRELU", "int8"): _VELA_MULTIPLIES,
    (Code.LIFTED, "LOGISTIC", "int8"): _VELA_TABLES,
    (Code.LIFTED, "TANH", "int8"): _VELA_TABLES,
    (Code.LIFTED, "LEAKY_RELU", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "MUL", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "RELU", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "PRELU", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "SOFTMAX", "int16"): _VELA_ROUNDS,
    (Code.LIFTED, "LOGISTIC", "uint8"): _VELA_DOUBLES,
    (Code.LIFTED, "FULLY_CONNECTED", "uint8"): "the reference rounds once, Vela's stream twice",
}

# What Vela 5.2 compiles to a stream that computes something else, or cannot be lifted, stays on the host.
_QUANTISED = ("int8", "int16", "uint8")
NOT_BY_VELA: dict[tuple[str, str], str] = {
    **{("MIRROR_PAD", dtype): "Vela's stream for it walks backwards through memory, which cannot be lifted"
       for dtype in _QUANTISED},
    ("MIRROR_PAD", "int32"): "Vela's stream for it writes the middle alone",
    **{("SUM", dtype): "Vela's stream for it leaves out the scales" for dtype in _QUANTISED},
    **{("DIV", dtype): "Vela's stream for it leaves out scales and zero points" for dtype in _QUANTISED},
    ("LOG", "int16"): "Vela's table for it ends too low, and wraps where the range ends",
    ("NEG", "int8"): "Vela's stream for it limits the least number, which the reference leaves as it is",
    ("RSQRT", "int16"): "Vela's table for it wraps where it is steep",
    ("SUM", "int32"): "Vela's stream for it sums one axis of several, and others than of the file",
    ("TRANSPOSE", "uint8"): "Vela's stream for it reads uint8 as int8 and clamps to 127",
}  # fmt: skip

# Where tflite-micro takes uint8.
MICRO_TAKES_UINT8 = _name_set("QUANTIZE DEQUANTIZE RESHAPE SQUEEZE")
# Other types that tflite-micro does not have, but LiteRT.
_NEVER_MICRO = _name_set("ONE_HOT RANGE RANK SELECT TILE")
_SUMS = _name_set("SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD CUMSUM NEG")
_ONLY_LITERT: dict[str, frozenset[str]] = {
    "int8": _name_set("EXP NEG") | _REAL_TABLES | _NEVER_MICRO,
    "int16": _BLOCKS | _NEVER_MICRO | _name_set(
        "EXP LOG REDUCE_MAX REDUCE_MIN RESIZE_BILINEAR GATHER MIRROR_PAD GATHER_ND EMBEDDING_LOOKUP FILL"
    ),
    "float32": _name_set("RELU_N1_TO_1 RELU_0_TO_1 REDUCE_PROD") | _NEVER_MICRO,
    "uint32": _CHOOSING - {"CAST"} | {"CONCATENATION"},
    "int32": _BLOCKS | _SUMS | (_CHOOSING - _name_set("CAST FILL DYNAMIC_UPDATE_SLICE")) | _name_set(
        "GATHER MIRROR_PAD RESIZE_NEAREST_NEIGHBOR TRANSPOSE EXPAND_DIMS ABS ADD_N ARG_MAX ARG_MIN FLOOR_DIV RANGE"
    ),
    "int64": _BLOCKS | _SUMS | _CHOOSING | _name_set(
        "GATHER MIRROR_PAD TRANSPOSE EXPAND_DIMS ADD SUB MUL PAD PADV2 SPLIT SPLIT_V SLICE STRIDED_SLICE RANGE"
    ),
    "bool": _BLOCKS | (_CHOOSING - {"CAST"}) | _name_set(
        "RESIZE_NEAREST_NEIGHBOR PAD PADV2 MIRROR_PAD UNPACK TRANSPOSE GATHER EXPAND_DIMS REDUCE_ANY"
    ),
}  # fmt: skip


def reference_of(kind: str, dtype: str) -> str:
    """Name of the reference that has a kernel of this operator and type of activations."""
    unsigned = dtype == "uint8" and kind not in MICRO_TAKES_UINT8
    return LITERT if unsigned or kind in _ONLY_LITERT.get(dtype, ()) else MICRO


# Operators of TOSA in Vela's streams for Ethos-U85 -> types of operands and results in tests that equal the reference
# model (`benchmarks.tosa_conformance`).
_INTEGERS, _WIDE = _name_set("int8 int16 int32"), _name_set("int8 int16 int32 int64")
_MOVED = _INTEGERS | {"bool"}
TOSA_EXACT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("ABS", "ADD", "CLZ", "INTDIV", "MAXIMUM", "MINIMUM", "REDUCE_SUM", "SUB"), frozenset(("int32",))),
    **dict.fromkeys(("EQUAL", "GREATER", "GREATER_EQUAL"), frozenset(("bool", "int32"))),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "LOGICAL_XOR"), frozenset(("bool",))),
    **dict.fromkeys(("REDUCE_ALL", "REDUCE_ANY"), frozenset(("bool",))),
    **dict.fromkeys(("AVG_POOL2D", "CLAMP", "MAX_POOL2D"), frozenset(("int8", "int16"))),
    **dict.fromkeys(("ARGMAX", "ARITHMETIC_RIGHT_SHIFT", "BITWISE_AND", "BITWISE_NOT", "BITWISE_OR"), _INTEGERS),
    **dict.fromkeys(("BITWISE_XOR", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT", "MUL", "NEGATE"), _INTEGERS),
    **dict.fromkeys(("GATHER", "REDUCE_MAX", "REDUCE_MIN", "SCATTER", "TABLE"), _INTEGERS),
    **dict.fromkeys(("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "MATMUL", "RESCALE", "RESIZE"), _WIDE),
    **dict.fromkeys(("CAST", "CONCAT", "PAD", "RESHAPE", "REVERSE", "SELECT", "SLICE", "TILE", "TRANSPOSE"), _MOVED),
    "IDENTITY": _WIDE | {"bool"},
}


def operator_claim(code: Code, kind: str, dtype: str) -> Claim:
    """The claim on an operator of TFLite; `dtype` is the type of its activations."""
    whole = code is Code.HOST or (code is Code.LOWERED and not dtype)  # variables that stay in the NPU's file
    if kind in EXACT[code].get(dtype, ()) or (whole and kind in EXACT_AS_A_WHOLE):
        return Claim(Exactness.EXACT, reference_of(kind, dtype))
    if code is Code.HOST and dtype == "float32" and kind in LIBRARY:
        function, ulps = LIBRARY[kind]
        apart = f"within {ulps} ulp" if ulps else "equal where measured"
        why = f"{function} of the C library: equal with the local runner's; newlib's is {apart}"
        return Claim(Exactness.ULPS, reference_of(kind, dtype), why)
    if (code, kind, dtype) in STEP:
        return Claim(Exactness.STEP, reference_of(kind, dtype), STEP[code, kind, dtype])
    return Claim(reason=f"no test holds {code.value} for {dtype} to a reference")


def hybrid_claim(kind: str) -> Claim:
    """The claim on our host code of an operator with float32 activations and int8 weights."""
    if kind in HYBRID:
        return Claim(Exactness.EXACT, MICRO if kind == "EMBEDDING_LOOKUP" else LITERT)
    if kind == HYBRID_LSTM:
        return Claim(reason="LiteRT's functions are polynomials, ours the C library's: 3e-7 apart as a rule")
    return Claim(reason=f"no test holds hybrid {kind} to a reference")


def tosa_claim(kind: str, types: Collection[str], tried: bool) -> Claim:
    """The claim on a TOSA operator in Vela's stream; `types` of all tensors, `tried`: `TOSA_EXACT`'s NPU."""
    if tried and frozenset(types) <= TOSA_EXACT.get(kind, frozenset()):
        return Claim(Exactness.EXACT, TOSA)
    return Claim(reason=f"no test holds Vela's {kind} of {', '.join(sorted(types))} on this NPU to {TOSA}")


# Operators of TOSA that native lowering takes, of int8 and some of int16: tests/tosa/test_lowering.py holds each to the
# reference model.
TOSA_LAYERS = _name_set(
    "CONV2D DEPTHWISE_CONV2D TRANSPOSE_CONV2D MATMUL ADD SUB MUL MAXIMUM MINIMUM ABS NEGATE REDUCE_SUM REDUCE_MAX "
    "REDUCE_MIN RESCALE CLAMP AVG_POOL2D MAX_POOL2D TABLE RESIZE RESHAPE IDENTITY TRANSPOSE SLICE CONCAT PAD TILE "
    "ARGMAX GATHER EQUAL GREATER GREATER_EQUAL SELECT REVERSE SCATTER"
)


def tosa_layer_claim(kind: str) -> Claim:
    """The claim on an operator of a TOSA file in native lowering."""
    if kind in TOSA_LAYERS:
        return Claim(Exactness.EXACT, TOSA)
    return Claim(reason=f"no test holds the layer of {kind} to {TOSA}")


def claim_lines(claims: Iterable[tuple[str, Claim]], ran: bool = True) -> list[str]:
    """Lines about (kind of operator, claim) pairs: a count, and what is not exact; not `ran`: only expected."""
    claims = list(claims)
    if not claims:
        return []
    exact = [c for _, c in claims if c.exactness is Exactness.EXACT]
    against = " and ".join(dict.fromkeys(c.reference for c in exact))
    operators = f"{len(claims)} operator{'s' if len(claims) > 1 else ''}"
    how_many = "all" if len(exact) == len(claims) else str(len(exact) or "none")
    word = "exact" if ran else "expected exact (not run)" if exact else "exact (not run)"
    lines = [f"Results: {operators}, {how_many} {word}" + (f" against {against}" if exact else "")]
    others = Counter((c, kind) for kind, c in claims if c.exactness is not Exactness.EXACT)
    groups: dict[Claim, list[str]] = {}
    for (known, kind), count in others.items():
        groups.setdefault(known, []).append(f"{count} {kind}" if count > 1 else kind)
    for known, kinds in groups.items():
        link = "from" if known.exactness is Exactness.DIFFERS else "of"
        of = f" {link} {known.reference}" if known.reference else ""
        lines.append(f"  {known.exactness.value}{of}: {', '.join(kinds)} ({known.reason})")
    return lines
