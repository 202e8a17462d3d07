"""An input that comes row by row: its last rows in a rolling buffer, which the caller goes on writing.

Invariant: the program reads each row after it was written and before another row takes its place. Stripes are chosen
as for any cascade, with an operation in front that stands for the caller: it copies the input into a map of the same
rows, its parts say when rows have to be there, and it is taken out again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from .. import planners
from ..errors import RefusalError
from ..ethosu.lower.emit import Builder
from ..ethosu.lower.operands import Operand, Output, TensorView, Window
from ..ethosu.lower.scaling import UNITY
from ..ethosu.program.access import FeatureMap
from ..ethosu.program.primfunc import from_primfunc, to_primfunc
from ..ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram, parts
from ..ethosu.schedule.constants import loaded_table, read_table, share_bytes
from ..ethosu.schedule.stripes.cascade_space import CascadeSpace, apply
from ..ethosu.stream.isa import Op, PoolMode
from ..ethosu.stream.isa import Register as R
from ..ethosu.time import default_memory_map
from ..extract.program import Invoke, RelaxTensor, View
from ..frontend.attributes import quantised_tensors
from ..names import Names
from ..problem import BufferKind
from ..request import Loaded, StripeOptions
from ..stages import Planned, extract_problem
from ..vocabulary import STREAMED_ROWS, is_npu
from .candidate import with_attributes_of
from .cascades import best_choice

_ELEMENTS = {"int8": 1, "uint8": 1, "int16": 2}


class StreamedInputError(RefusalError):
    """An input that cannot be streamed; the message says why."""


def stream_input(loaded: Loaded, options: StripeOptions) -> Loaded:
    """`loaded` with the input that `--io rows=NAME` names as a rolling buffer of rows."""
    name, module = loaded.request.options.stream_input, loaded.module
    tensor, call, position = _reader(loaded, name)
    primfunc = module[module.get_global_var(call.function)]
    program = from_primfunc(primfunc)
    parameters = [b.name for b in program.buffers if b.role.is_parameter]
    places = [i for i, a in enumerate(call.arguments) if isinstance(a, View) and a.tensor is tensor]
    made = _Streaming(program, parameters[places[0]], tensor, name).cut_program(options)
    kept = next(b.shape for b in made.buffers if b.role is BufferRole.STREAMED)
    function = with_attributes_of(primfunc, to_primfunc(made))
    function = function.with_attr(STREAMED_ROWS, [int(tensor.shape[1]), kept[1]])
    functions = {v: function if v.name_hint == call.function else f for v, f in module.functions.items()}
    functions[module.get_global_var("main")] = _with_rows(module["main"], position, kept)
    return replace(loaded, module=tvm.IRModule(functions, module.attrs))


def note_the_others(planned: Planned) -> Planned:
    """`planned` with a note where the other buffers need the whole pool without the rows of the input."""
    problem, plan = planned.extracted.problem, planned.plan
    rows = {stream.buffer for stream in problem.streams}
    others = replace(
        problem,
        buffers=tuple(b for b in problem.buffers if b.name not in rows),
        conflicts=tuple(pair for pair in problem.conflicts if not rows & {*pair}),
        aliases=tuple(group for group in problem.aliases if not rows & {name for name, _ in group.members}),
        overlaps=tuple(o for o in problem.overlaps if not rows & {o.first, o.second}),
        accesses=tuple(known for known in problem.accesses if known.buffer not in rows),
        streams=(),
    )
    homes = {place.pool for place in plan.placements if place.buffer in rows}
    alone = {u.pool: u.lower_bound_bytes for u in planners.plan(others, plan.planner, seed=plan.seed).usage}
    notes = tuple(
        f"the rows take no bytes of their own in pool {usage.pool}: without them the other buffers need "
        f"{usage.used_bytes:,} too, so a smaller input would save nothing there"
        for usage in plan.usage
        if usage.pool in homes and usage.used_bytes == alone[usage.pool]
    )
    loaded = planned.extracted.loaded
    loaded = replace(loaded, notes=(*loaded.notes, *notes))
    return replace(planned, extracted=replace(planned.extracted, loaded=loaded))


def _with_rows(main: Any, position: int, shape: tuple[int, ...]) -> Any:
    """`main` with an input of another shape."""
    old = main.params[position]
    new = relax.Var(old.name, relax.TensorType(shape, old.ty.dtype))
    return tvm_ffi.structural_map(main, (ir.Var, lambda var: new if var.same_as(old) else var))


def _reader(loaded: Loaded, name: str) -> tuple[RelaxTensor, Invoke, int]:
    """The input, the NPU call that alone reads it, before anything else runs, and which parameter of main it is."""
    program = extract_problem(loaded).program
    named = [tensor.name for tensor in quantised_tensors(loaded.module["main"], "input")]
    if name not in named:
        raise StreamedInputError(f"--io rows={name}: no such input; the model's inputs are: {', '.join(named)}")
    inputs = [t for t in program.inputs if t.kind is not BufferKind.STATE]
    tensor = inputs[named.index(name)]
    shape = tuple(map(int, tensor.shape))
    if len(shape) != 4 or shape[0] != 1 or shape[1] < 2 or tensor.dtype not in _ELEMENTS:
        raise _input_error(
            name, f"it is {tensor.dtype}{list(shape)}, and rows are of an int8, uint8 or int16 [1, H, W, C]"
        )
    readers = [c for c in program.calls if any(isinstance(a, View) and a.tensor is tensor for a in c.arguments)]
    if not readers or any(view.tensor is tensor for view in program.results):
        raise _input_error(name, "nothing reads it, or it is a result itself")
    first = readers[0]
    if not is_npu(first.primfunc):
        raise _input_error(
            name, f"the host's {first.function} reads it first, as a whole", "put that operator on the NPU or before it"
        )
    if len(readers) > 1 or sum(c.function == first.function for c in program.calls) > 1:
        raise _input_error(
            name, f"{readers[-1].function} reads it again after {first.function}, when its rows are gone"
        )
    if first is not program.calls[0]:
        raise _input_error(name, f"{program.calls[0].function} runs before {first.function}, which reads it")
    views = [a for a in first.arguments if isinstance(a, View) and a.tensor is tensor]
    if len(views) > 1 or views[0].partial or views[0].offset_bytes:
        raise _input_error(name, f"{first.function} reads a part of it, or reads it as two arguments")
    return tensor, first, next(i for i, p in enumerate(program.function.params) if p.same_as(tensor.var))


class _Streaming:
    """One program whose parameter `given` becomes a rolling buffer."""

    def __init__(self, program: NpuProgram, given: str, tensor: RelaxTensor, name: str) -> None:
        self.program, self.given, self.tensor, self.name = program, given, tensor, name
        self.rows, width, channels = (int(extent) for extent in tensor.shape[1:])
        self.shape = self.rows, width, channels
        self.row_bytes = width * channels * _ELEMENTS[tensor.dtype]
        self.outside = Names(b.name for b in program.buffers).unique_name(f"{given}_outside")  # where the caller has it

    def cut_program(self, options: StripeOptions) -> NpuProgram:
        """The program in the stripes that suit the memory best."""
        fronted = self._put_copy_in_front(options)
        groups = CascadeSpace(
            fronted,
            io_in_pools=options.io_in_pools,
            reuse_inputs=options.reuse_inputs,
            memory_map=options.memory_map,
            streamed=True,
        )
        chosen = best_choice(groups, options.capacity_bytes).groups
        first = chosen[0] if chosen and chosen[0].first == 0 else None
        if first is None or self.given not in first.rolling_buffer_bytes:
            raise self.input_error(self._reason(groups))
        return self._with_tables(self._without_front(apply(fronted, chosen, groups.costs.blocks)))

    def _put_copy_in_front(self, options: StripeOptions) -> NpuProgram:
        """The program behind an operation that copies the input, which lies elsewhere, into a map of its own."""
        buffers = [
            replace(b, role=BufferRole.FEATURE_MAP, shape=(), dtype="uint8") if b.name == self.given else b
            for b in self.program.buffers
        ]
        size = self.rows * self.row_bytes
        outside = NpuBuffer(self.outside, size, BufferRole.STATE, shape=(size,))
        builder = Builder(self.program.accelerator, options.memory_map or default_memory_map(self.program.accelerator))
        places = {
            builder.buffer("outside", size, BufferRole.STATE): self.outside,
            builder.buffer("inside", size, BufferRole.FEATURE_MAP): self.given,
        }
        dtype, element_bytes = self.tensor.dtype, _ELEMENTS[self.tensor.dtype]
        source, target = (Operand(TensorView.dense(b, self.shape, element_bytes), dtype) for b in places)
        bits = 8 * element_bytes
        low = 0 if dtype.startswith("u") else -(1 << bits - 1)
        builder.pool(PoolMode.MAX, source, target, Window(), Output((low, low + (1 << bits) - 1), UNITY))
        (front,) = builder.finish("front", ())[0].operations
        front = replace(front, addresses={r: (places[b], at) for r, (b, at) in front.addresses.items()})
        return NpuProgram(
            self.program.accelerator, (outside, *buffers), (front, *self.program.operations), self.program.name
        )

    def _without_front(self, cut: NpuProgram) -> NpuProgram:
        """The program without the copies, and of every operation the rows of the input that it reads."""
        kept = cut.buffer(self.given).size_bytes // self.row_bytes
        operations: list[NpuOperation] = []
        there = 0
        for index, operation in enumerate(cut.operations):
            if any(buffer == self.outside for buffer, _ in operation.addresses.values()):
                there += operation.registers[R.OFM_HEIGHT_M1] + 1
                continue
            operations.append(replace(operation, input_rows=self._rows_read(cut, index, kept, there)))
        role, shape = BufferRole.STREAMED, (1, kept, *self.shape[1:])
        buffers = tuple(
            replace(b, role=role, shape=shape, dtype=self.tensor.dtype) if b.name == self.given else b
            for b in cut.buffers
            if b.name != self.outside
        )
        ordered = {b.name: b for b in self.program.buffers} | {b.name: b for b in buffers}
        return NpuProgram(cut.accelerator, tuple(ordered.values()), tuple(operations), cut.name)

    def _rows_read(self, cut: NpuProgram, index: int, kept: int, there: int) -> tuple[int, int]:
        """The rows that operation `index` reads, the last `kept` of the first `there` rows being in the buffer."""
        operation = cut.operations[index]
        views = {"IFM": FeatureMap.ifm, "IFM2": FeatureMap.ifm2}
        found = []
        for view, read in views.items():
            place = operation.addresses.get(R[f"{view}_BASE0"])
            if place is not None and place[0] == self.given:
                seen = read(cut.at_zero(index))
                assert seen is not None
                slot = place[1] // self.row_bytes
                first = there - kept + (slot - there) % kept
                found.append((first, first + seen.height))
        return (min(f for f, _ in found), max(s for _, s in found)) if found else (0, 0)

    def _with_tables(self, made: NpuProgram) -> NpuProgram:
        """The program whose parts each load the tables that they read: programs that run on the NPU between two parts
        may overwrite them.

        Such a load says that it needs the rows of the operation that the part begins with, so that it is in that part.
        """
        kept = made.buffer(self.given).shape[1]
        operations: list[NpuOperation] = []
        known: list[tuple[range, NpuOperation]] = []  # all loads so far
        for part in parts(made.operations, kept):
            there: list[range] = []
            for operation in (made.operations[index] for index in part):
                if (table := loaded_table(made, operation)) is not None:
                    there.append(table)
                    known.append((table, operation))
                elif (table := read_table(operation)) is not None and not any(share_bytes(table, t) for t in there):
                    loaded, load = next((k for k in reversed(known) if share_bytes(table, k[0])), (range(0), None))
                    if load is None or not (loaded.start <= table.start and table.stop <= loaded.stop):
                        raise self.input_error("operations on its rows look values up in several tables at once")
                    there.append(loaded)
                    operations.append(replace(load, input_rows=made.operations[part.start].input_rows))
            operations += [made.operations[index] for index in part]
        return replace(made, operations=tuple(operations))

    def _reason(self, groups: CascadeSpace) -> str:
        """Why no rows of the input can be dropped before the others come."""
        readers = [i for i, o in enumerate(groups.program.operations) if self._reads(o)]
        for index in readers:
            if groups.chains.layers[index] is None:
                kind = groups.program.operations[index].op.name
                return f"operation {index - 1} ({kind}), which reads it, cannot be made row by row"
        if readers and readers[-1] - readers[0] > 2:
            return f"it is read by operations {readers[0] - 1} to {readers[-1] - 1}: no row can go before the last"
        return "what reads its first rows needs all of them"

    def _reads(self, operation: NpuOperation) -> bool:
        written = R.DMA0_DST if operation.op is Op.DMA_START else R.OFM_BASE0
        return any(b == self.given for r, (b, _) in operation.addresses.items() if r is not written)

    def input_error(self, reason: str) -> StreamedInputError:
        return _input_error(self.name, reason)


def _input_error(name: str, reason: str, step: str = "leave --io rows=NAME out") -> StreamedInputError:
    return StreamedInputError(f"--io rows={name}: {reason}; {step}")
