"""A Relax function as a short list of statements over named storages, and the points of its time.

Invariant: every byte that the program touches belongs to exactly one `RelaxTensor` (a storage that
Relax sees) or `Internal` (an allocation inside a PrimFunc), and every touch is a `StepAccess` of a
`Step`. Steps carry the points of time: point t is the t-th step in textual order. `extract`
turns this into a planning problem, `rewrite` turns it back into Relax; neither looks at the
original bindings again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import NpuMemplanError
from ..problem import Agent, AllowedOverlap, BufferKind
from ..problem.spans import Spans
from ..vocabulary import VIEW_ALIGNMENT
from .sizes import element_alignment


class ExtractionError(NpuMemplanError):
    """A module cannot be planned: what is missing or not understood, in which function, and what to do about it."""


@dataclass(eq=False, slots=True)
class RelaxTensor:
    """A storage that Relax sees: one buffer however many names and shapes look at it.

    `shape` and `dtype` are those of its definition; `size_bytes` is None while the shape has
    symbols without an upper bound. `external` is the reason why it cannot be planned ("" when
    it can); `view` is True when something outside PrimFuncs needs it as a tensor object.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str
    size_bytes: int | None
    kind: BufferKind = BufferKind.TENSOR
    external: str = ""
    view: bool = False
    agents: set[Agent] = field(default_factory=set)
    alignment: int = 1
    var: Any = None  # the Relax variable that defined it
    device: int = 0  # number of its virtual device
    scope: str = "global"  # memory scope on that device
    region: int = -1  # of the NPU stream that first used it; -1: none did
    content: bytes = b""  # of a constant
    scratch: bool = False  # nothing defines its content: a workspace of calls that are not looked into

    @property
    def least_alignment(self) -> int:
        """Of its first byte: what its elements, the calls that use it, and a tensor object on it require."""
        return max(self.alignment, element_alignment(self.dtype), VIEW_ALIGNMENT if self.view else 1)

    @property
    def whole(self) -> View:
        """All of it, as it was defined."""
        return View(self, self.shape, self.dtype)

    def touched(self, *, writes: bool, exact: bool = False) -> StepAccess:
        """An access to all of it."""
        return StepAccess(self, ((0, self.size_bytes or 1),), writes, exact)

    def as_object(self) -> None:
        """Something on the host needs it as a tensor object."""
        self.view = True
        self.agents.add(Agent.HOST)


@dataclass(eq=False, slots=True)
class Internal:
    """An allocation inside one call of a PrimFunc. `allocation` is its AllocBuffer statement."""

    name: str
    size_bytes: int | None
    alignment: int
    kind: BufferKind
    agent: Agent
    allocation: Any
    role: str = ""
    original: tuple[int, int] | None = None  # (region, offset) in the stream it was lifted from
    shape: tuple[Any, ...] = ()  # in the symbols of the calling Relax function
    device: int = 0  # that the call runs on

    @property
    def dtype(self) -> str:
        """Of its elements."""
        return str(self.allocation.buffer.dtype)

    @property
    def least_alignment(self) -> int:
        """Of its first byte: what its elements and the call require."""
        return max(self.alignment, element_alignment(self.dtype))


class StepAccess(NamedTuple):  # not a dataclass: a large stream has tens of thousands
    """Bytes of a storage touched in one step, one at least.

    `exact` says that all of these bytes are written, or that their content is used; otherwise that may be.
    """

    storage: RelaxTensor | Internal
    spans: Spans
    writes: bool
    exact: bool = False


@dataclass(eq=False, slots=True)
class Step:
    """What happens at one point of time."""

    label: str
    accesses: tuple[StepAccess, ...]
    point: int = -1
    origin: Any = None  # tir.walk.Origin of a statement that runs once in its call


@dataclass(eq=False, slots=True)
class Branch:
    """Either `then` or `other` runs. `merges` are (result, value in then, value in other).

    The three of one merge share a placement; a branch that has no storage of its own for the
    result writes the result itself, and its entry is the result.
    """

    then: list[Node]
    other: list[Node]
    merges: list[tuple[RelaxTensor, RelaxTensor, RelaxTensor]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Loop:
    """`body` runs any number of times. `local` storages have no content between iterations."""

    body: list[Node]
    local: tuple[Internal, ...] = ()


Node = Step | Branch | Loop


@dataclass(slots=True)
class Body:
    """What runs in one block: for the rewriter, and for the analysis."""

    statements: list[Statement] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def steps(nodes: Sequence[Node]) -> Iterator[Step]:
    """All steps in textual order, which is the order of their points."""
    for node in nodes:
        if isinstance(node, Step):
            yield node
        elif isinstance(node, Loop):
            yield from steps(node.body)
        else:
            yield from steps(node.then)
            yield from steps(node.other)


# -- what runs, for the rewriter ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A storage seen with a shape and dtype of its own, from byte `offset_bytes` of it on.

    `partial` views have fewer bytes than the storage; those at an offset are, always.
    """

    tensor: RelaxTensor
    shape: tuple[Any, ...]
    dtype: str
    offset_bytes: int = 0
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant (of type `ir.GenericConst`) that is not in a pool; never written."""

    expr: Any


@dataclass(frozen=True, slots=True)
class Plain:
    """A Relax value that holds no planned bytes: a shape, a scalar, an object."""

    expr: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple."""

    fields: tuple[Value, ...]


Value = View | Fixed | Plain | Several


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the steps from `step` to `last` allow, in which the second storage is born and the first one dies.

    The rest of the program decides whether it holds.
    """

    allowed: AllowedOverlap
    step: Step
    last: Step


@dataclass(eq=False, slots=True)
class Invoke:
    """A call of a PrimFunc, destination last. `arguments[i]` belongs to parameter i."""

    index: int
    function: str
    primfunc: Any
    arguments: tuple[View | Fixed | Plain, ...]
    internals: tuple[Internal, ...]
    agent: Agent
    nodes: list[Node] = field(default_factory=list)
    label: str = ""
    device: int = 0  # number of the virtual device that it runs on
    foreign: bool = False  # works in a memory scope that has no pools
    results: Collection[int] = ()  # arguments that are new tensors, which it defines
    overlaps: list[Candidate] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class External:
    """A call of a packed function in destination-passing style: arguments, then results."""

    function: Any
    arguments: tuple[Value, ...]
    results: tuple[View, ...]


@dataclass(eq=False, slots=True)
class Evaluate:
    """Any other Relax expression: packed calls, shape computations. `result` is None if unused."""

    expr: Any
    arguments: dict[Any, Value]  # Relax variable -> what it stands for
    var: Any
    result: Value


@dataclass(eq=False, slots=True)
class Cast:
    """A match_cast that defines shape symbols or must be checked at run time."""

    source: Value
    ty: Any
    var: Any
    result: Value


@dataclass(eq=False, slots=True)
class Choose:
    """`if`. The value of the `if` is in the tensors of `branch.merges`, or one of `objects`.

    Those are (what stands for it, its value in then, its value in other), where it holds no bytes, or has no known
    shape.
    """

    condition: Value
    then: list[Statement]
    other: list[Statement]
    branch: Branch
    objects: list[tuple[Value, Value, Value]] = field(default_factory=list)


Statement = Invoke | External | Evaluate | Cast | Choose


@dataclass(eq=False, slots=True)
class Program:
    """A Relax function: `statements` for the rewriter, `nodes` for the analysis."""

    name: str
    function: Any
    inputs: list[RelaxTensor]
    result: Value
    statements: list[Statement]
    nodes: list[Node]
    tensors: list[RelaxTensor]
    calls: list[Invoke]
    values: dict[Any, Value] = field(default_factory=dict)  # what each Relax variable stands for
    bounds: dict[Any, int] = field(default_factory=dict)  # greatest values promised for shape symbols
    vdevices: tuple[Any, ...] = ()  # of the module; empty: one device without a name
    kept: tuple[RelaxTensor, ...] = ()  # tensors that something which outlasts the function may hold

    @property
    def results(self) -> list[View]:
        """What is returned, as far as it is tensors."""
        return list(views(self.result))

    def number_points(self) -> list[Step]:
        """Gives every step its point and returns the steps in that order."""
        ordered = list(steps(self.nodes))
        for point, step in enumerate(ordered):
            step.point = point
        return ordered


def result_views(value: Value) -> Iterator[View | Fixed | Plain]:
    """The leaves of a (nested) tuple, left to right."""
    if isinstance(value, Several):
        for item in value.fields:
            yield from result_views(item)
    else:
        yield value


def views(value: Value) -> Iterator[View]:
    """Those of the leaves that are tensors."""
    return (leaf for leaf in result_views(value) if isinstance(leaf, View))
