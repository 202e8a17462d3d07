"""The instructions that QEMU's Cortex-M55 executes for the host operators of one inference.

    python -m benchmarks.host_instructions [--cpu CPU] [--calls] [--kernels KERNELS] [--rows] MODEL.tflite...

Each model is compiled for the host alone and its C by GCC (`-O2`, and the flags that all builds need) for `--cpu`: with
Helium by default, `cortex-m55+nomve` has the DSP instructions only, `cortex-m55+nomve+nodsp` none. QEMU counts
instructions (`-icount`), of which the system timer sees one tick in 31.25. `--calls` prints each operator too, beside
the estimate that `compile` prints. In place of a model stands the folder of an artifact, of any commit, too: then its
calls of the NPU do nothing, and the CPU's find arbitrary bytes where their results would be.

`--rows`: what interleaved rows would give on the CPU, where no row is computed twice and an output trails the rows of
an input that ends. The bytes of the best cuts into groups of operators, beside those of one operator after the other by
the same rules (not those of a planner); and the instructions where convolutions are called for a row each, and the
rows that the next one needs are moved, beside those of whole calls.

Invariant: instructions are counted, not cycles: most of Helium's take two cycles or more on a Cortex-M55.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.compiler import compile_model
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions

_SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")
EMULATOR = ("qemu-system-arm", "-M", "mps3-an547", "-nodefaults", "-display", "none", *_SEMIHOSTING)
TICK = 31.25  # instructions of 1 ns, of a timer of 32 MHz
_ABI = ("-mthumb", "-mfloat-abi=hard")
LINK_SCRIPT = """
MEMORY { code (rx) : ORIGIN = 0x0, LENGTH = 512K
         data (rwx) : ORIGIN = 0x60000000, LENGTH = 64M }
ENTRY(reset)
SECTIONS {
  .vectors : { KEEP(*(.vectors)) } > code
  .all : { *(.text*) *(.rodata*) *(.ARM.ex*) *(.data*) *(.bss*) *(COMMON) end = .; } > data
}
"""
STARTUP = """
#include <stdint.h>
extern char end[];
void reset(void);
volatile uint32_t laps; /* of the system timer */
void count_lap(void) { laps++; }
__attribute__((section(".vectors"), used)) static const uint32_t vectors[16] = {
    0x63FFFFF0u, (uint32_t)&reset, [15] = (uint32_t)&count_lap};
void *_sbrk(int by) { static char *at = end; char *was = at; at += by; return was; }
__attribute__((naked)) void reset(void) { /* floating point and Helium on, then main */
  __asm__ volatile("ldr r0, =0xE000ED88\\n ldr r1, [r0]\\n orr r1, #0xF00000\\n str r1, [r0]\\n dsb\\n isb\\n bl main");
}
"""
_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "{name}.h"
extern volatile uint32_t laps;
static uint64_t now(void) {{
  return ((uint64_t)laps << 24) + 0xFFFFFFu - *(volatile uint32_t *)0xE000E018u;
}}
static void stop(const char *text) {{
  register int32_t what __asm__("r0") = 0x04;
  register const char *with __asm__("r1") = text;
  __asm__ volatile("bkpt 0xab" : "+r"(what) : "r"(with) : "memory");
  register int32_t leave __asm__("r0") = 0x18;
  register int32_t well __asm__("r1") = 0x20026;
  __asm__ volatile("bkpt 0xab" : : "r"(leave), "r"(well));
  for (;;) {{ }}
}}
{pools}
static uint64_t ticks[{calls} + 1];
int32_t npu_memplan_npu_launch(const uint32_t *stream, uint32_t bytes, const void *const bases[],
                               const uint32_t *base_bytes, uint32_t count) {{
  (void)stream, (void)bytes, (void)bases, (void)base_bytes, (void)count;
  return 0;
}}
{wraps}
int main(void) {{
  static char text[1 << 16];
  uint8_t *const pools[] = {{{names}}};
  uint32_t state = 1u;
  {fill}
  *(volatile uint32_t *)0xE000E014u = 0xFFFFFFu;
  *(volatile uint32_t *)0xE000E018u = 0u;
  *(volatile uint32_t *)0xE000E010u = 7u;
  while (*(volatile uint32_t *)0xE000E018u == 0u) {{ }}
  const uint64_t start = now();
  {name}_run(pools);
  ticks[{calls}] = now() - start;
  char *at = text;
  for (int i = 0; i <= {calls}; i++)
    at += sprintf(at, "%lu %lu\\n", (unsigned long)(ticks[i] >> 32), (unsigned long)ticks[i]);
  uint32_t sum = 2166136261u;
  {sums}
  sprintf(at, "0 %lu\\n", (unsigned long)sum);
  stop(text);
}}
"""


def counted(folder: Path, cpu: str) -> tuple[int, dict[str, int], int]:
    """Instructions of one run of the artifact in `folder`, and of each of its host calls; a hash of the outputs."""
    (place,) = (p for p in (folder / "src").glob("*.h") if p.name != "npu_memplan_runtime.h")
    name, upper, header = place.stem, place.stem.upper(), place.read_text()
    defined = (folder / "src" / f"{name}_host.c").read_text()
    declared: list[str] = re.findall(r"int32_t (\w+)\(uint8_t \*const pools\[\]\);", header)
    symbols = [s for s in declared if re.search(rf"int32_t {s}\(uint8_t \*const pools\[\]\) {{", defined)]
    wraps = "".join(
        f"int32_t __real_{s}(uint8_t *const *);\nint32_t __wrap_{s}(uint8_t *const *pools) {{\n"
        f"  const uint64_t start = now();\n  const int32_t result = __real_{s}(pools);\n"
        f"  ticks[{i}] += now() - start;\n  return result;\n}}\n"
        for i, s in enumerate(symbols)
    )
    sizes = [int(size) for size in re.findall(rf"#define {upper}_\w+_BYTES (\d+) /\* pools\[", header)]
    pools = "".join(
        f"static uint8_t pool_{i}[{max(s, 1)}] __attribute__((aligned(64)));\n" for i, s in enumerate(sizes)
    )
    step = "state = state * 1664525u + 1013904223u"
    fill = [
        f"for (int32_t i = 0; i < {size}; i++) {{ {step}; pool_{number}[i] = (uint8_t)(state >> 24); }}"
        for number, size in enumerate(sizes)
    ]
    for i in re.findall(rf"#define {upper}_INPUT_(\d+)_TYPE float", header):
        at = f"((float *)(pools[{upper}_INPUT_{i}_POOL] + {upper}_INPUT_{i}_OFFSET))[i]"
        made = f"{at} = (float)(int32_t)state * (1.0f / 1073741824.0f)"
        fill.append(f"for (int32_t i = 0; i < {upper}_INPUT_{i}_ELEMENTS; i++) {{ {step}; {made}; }}")
    sums = "".join(
        f"for (uint32_t i = 0; i < {upper}_OUTPUT_{i}_BYTES; i++) sum = (sum ^ "
        f"(pools[{upper}_OUTPUT_{i}_POOL] + {upper}_OUTPUT_{i}_OFFSET)[i]) * 16777619u;\n  "
        for i in re.findall(rf"#define {upper}_OUTPUT_(\d+)_POOL", header)
    )
    names = ", ".join(f"pool_{i}" for i in range(len(sizes)))
    text = _MAIN.format(
        name=name, pools=pools, calls=len(symbols), wraps=wraps, names=names, fill="\n  ".join(fill), sums=sums
    )
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "main.c").write_text(text)
        (place / "link.ld").write_text(LINK_SCRIPT)
        (place / "startup.c").write_text(STARTUP)
        sources = [str(place / "startup.c"), *(str(p) for p in (folder / "src").glob("*.c"))]
        flags = [f"-mcpu={cpu}", *_ABI, "-std=gnu11", "-O2", *REQUIRED_FLAGS, f"-I{folder / 'src'}"]
        link = ["-nostartfiles", "--specs=nosys.specs", "-Wl,--no-warn-rwx-segments", "-T", str(place / "link.ld")]
        link += [*(f"-Wl,--wrap={symbol}" for symbol in symbols), "-lm", "-o", str(place / "all.elf")]
        subprocess.run(["arm-none-eabi-gcc", *flags, str(place / "main.c"), *sources, *link], check=True)
        ran = subprocess.run(
            [*EMULATOR, "-icount", "shift=0", "-kernel", str(place / "all.elf")],
            check=True, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    lines = re.findall(r"^(\d+) (\d+)$", ran.stderr + ran.stdout, re.MULTILINE)
    if len(lines) != len(symbols) + 2:
        raise SystemExit(ran.stderr + ran.stdout)
    *found, total, digest = ((int(high) << 32) + int(low) for high, low in lines)
    each = {s.removeprefix(f"{name}_"): round(t * TICK) for s, t in zip(symbols, found, strict=True)}
    return round(total * TICK), each, digest


_VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
_ROW_BY_ROW = (
    "ADD", "SUB", "MUL", "RELU", "RELU6", "LEAKY_RELU", "LOGISTIC", "TANH", "HARD_SWISH", "PRELU", "QUANTIZE",
    "DEQUANTIZE", "CONCATENATION", "SOFTMAX", "CAST",
)  # fmt: skip
_LONGEST = 40  # operators of a group


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of an input that one row of an output needs."""

    reach: int
    stride: int
    before: int
    sums: bool = False  # of a whole map, which is summed up row by row

    def begin(self, row: int) -> int:
        """The first one."""
        return max(row * self.stride - self.before, 0)


def window_of(network: Network, one: CpuOperator) -> Window | None:
    """None: the operator needs whole maps, or is not known here."""
    given, made = network.tensors[one.inputs[0]].shape, network.tensors[one.outputs[0]].shape
    if len(one.outputs) != 1 or len(given) != 4 or given[0] != 1:
        return None
    if one.name == "MEAN":
        return Window(given[1], 1, 0, sums=True)
    if len(made) != 4:
        return None
    if one.name in _ROW_BY_ROW:
        return Window(1, 1, 0)
    if one.name == "PAD":
        top = network.tensors[one.inputs[1]].array()
        return Window(1, 1, int(top[1][0]))
    kinds = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    if one.name not in (*kinds, "AVERAGE_POOL_2D", "MAX_POOL_2D"):
        return None
    options, pool = one.options(kinds.get(one.name, "Pool2DOptions")), one.name not in kinds
    assert options is not None
    if pool:
        reach = int(options.FilterHeight())
    else:
        reach = (network.tensors[one.inputs[1]].shape[1] - 1) * int(options.DilationHFactor()) + 1
    if pool and reach == given[1]:
        return Window(reach, 1, 0, sums=True)
    stride = int(options.StrideH())
    missing = (made[1] - 1) * stride + reach - given[1] if options.Padding() == 0 else 0
    return Window(reach, stride, max(missing, 0) // 2)


class Interleaved:
    """Bytes of groups of operators, the rows of which are interleaved."""

    def __init__(self, network: Network) -> None:
        self.network, alike = network, dict[int, int]()
        for one in network.cpu_operators:
            if one.name in _VIEWS:
                alike[one.outputs[0]] = alike.get(one.inputs[0], one.inputs[0])
        self.operators = [one for one in network.cpu_operators if one.name not in _VIEWS]
        self.inputs = [self._reads(one, alike) for one in self.operators]
        self.windows = [window_of(network, one) for one in self.operators]
        self.first, self.last = dict.fromkeys(network.inputs, -1), dict.fromkeys(network.inputs, -1)
        for number, one in enumerate(self.operators):
            self.last |= dict.fromkeys((*one.outputs, *self.inputs[number]), number)
            self.first |= dict.fromkeys(one.outputs, number)
        self.last |= {alike.get(tensor, tensor): len(self.operators) for tensor in network.outputs}

    def _reads(self, one: CpuOperator, alike: dict[int, int]) -> list[int]:
        found = (alike.get(i, i) for i in one.inputs if i >= 0 and not self.network.tensors[i].is_variable)
        return list(dict.fromkeys(i for i in found if self.network.tensors[i].data is None))

    def _size(self, tensor: int) -> int:
        return self.network.tensors[tensor].size_bytes

    def _rows(self, tensor: int) -> int:
        shape = self.network.tensors[tensor].shape
        return shape[1] if len(shape) == 4 else 1

    def group_bytes(self, begin: int, end: int) -> float:
        """Bytes while the operators from `begin` to `end` run; infinite where their rows cannot be interleaved."""
        members = range(begin, end + 1)
        outside = [t for t, made in self.first.items() if made <= end and self.last[t] >= begin]
        outside = [t for t in outside if self.first[t] < begin or self.last[t] > end]
        windows = {k: w for k in members if (w := self.windows[k]) is not None}
        if len(windows) < len(members) or any(windows[k].sums for k in range(begin, end)):
            return sum(map(self._size, outside)) if begin == end else math.inf
        by = {self.operators[k].outputs[0]: k for k in members}
        inner = {t: 0 for t, k in by.items() if k != end and t not in outside}  # rows at most
        dying = {t: 0 for t in outside if self.first[t] < begin and self.last[t] <= end}  # bytes that trail it at most
        readers = {t: [k for k in members if t in self.inputs[k]] for t in (*inner, *dying)}
        done, target = dict.fromkeys(members, 0), self.operators[end].outputs[0]

        def count(k: int) -> int:
            return self._rows(self.inputs[k][0] if windows[k].sums else self.operators[k].outputs[0])

        def free(tensor: int) -> int:
            """Rows that nobody reads any more."""
            least = (self._rows(tensor) if done[k] >= count(k) else windows[k].begin(done[k]) for k in readers[tensor])
            return min(self._rows(tensor), *least)

        def make(k: int, rows: int) -> None:
            while done[k] < rows:
                row, window = done[k], windows[k]
                need = row + 1 if window.sums else row * window.stride - window.before + window.reach
                for tensor in self.inputs[k]:
                    if tensor in by:
                        make(by[tensor], min(need, self._rows(tensor)))
                made = self.operators[k].outputs[0]
                if made in inner:
                    inner[made] = max(inner[made], row + 1 - free(made))
                for tensor in dying if k == end and not window.sums else ():
                    ahead = (row + 1) * (self._size(made) // self._rows(made))
                    gone = free(tensor) * (self._size(tensor) // self._rows(tensor))
                    dying[tensor] = max(dying[tensor], ahead - gone)
                done[k] += 1

        make(end, count(end))
        size, total = self._size(target), sum(map(self._size, outside))
        total += sum(self._size(t) // self._rows(t) * rows for t, rows in inner.items())
        if windows[end].sums:
            return total + 4 * math.prod(self.network.tensors[target].shape)
        joint = (size + self._size(t) - max(size, self._size(t) + over) for t, over in dying.items())
        return total - max(joint, default=0)

    def least_bytes(self, longest: int) -> float:
        """The bytes of the best cut into groups of at most `longest` operators."""
        best = [0.0]
        for end in range(len(self.operators)):
            starts = range(max(0, end + 1 - longest), end + 1)
            best.append(min(max(best[start], self.group_bytes(start, end)) for start in starts))
        return best[-1]


def call_by_row(match: re.Match[str]) -> str:
    """The call of a convolution's C kernel as a call for each row of its output."""
    given = match[2].split(", ")
    pointers, numbers = given[:7], [int(number) for number in given[7:]]
    in_c, out_c = numbers[2] * (1 if match[1] == "depthwise" else numbers[1]), numbers[3]
    in_h, out_h, kernel, stride, dilation, before, in_w, out_w = numbers[4:12]
    row, reach = in_w * in_c, (kernel - 1) * dilation + 1
    counts, steps, rest = (", ".join(map(str, part)) for part in (numbers[:4], numbers[6:9], numbers[10:]))
    return f"""  static uint8_t kept[{reach * row}];
  for (int32_t y = 0; y < {out_h}; y++) {{
    const int32_t first = y * {stride} - {before}, from = first < 0 ? 0 : first;
    const int32_t to = first + {reach} > {in_h} ? {in_h} : first + {reach};
    npu_memplan_kernel_{match[1]}({pointers[0]} + from * {row}, {", ".join(pointers[1:6])},
        {pointers[6]} + y * {out_w * out_c}, {counts}, to - from, 1, {steps}, from - first, {rest});
    memmove(kept, kept + {min(stride, reach) * row}, {max(reach - stride, 0) * row});
    __asm__ volatile("" : : "r"(kept) : "memory");
  }}
"""


def print_rows(models: Sequence[Path], cpu: str) -> None:
    """A row a model."""
    print("| model | bytes, whole maps | rows | ratio | instructions | rows | ratio |\n|---|--:|--:|--:|--:|--:|--:|")
    for model in models:
        network = Interleaved(read_network(model.read_bytes(), model.name))
        whole, rows = network.least_bytes(1), network.least_bytes(_LONGEST)
        with tempfile.TemporaryDirectory() as temporary:
            folder, copied = Path(temporary) / "out", Path(temporary) / "rows"
            compile_model(model, CompileOptions("none", effort="quick"), folder)
            shutil.copytree(folder, copied)
            (source,) = (copied / "src").glob("*_host.c")
            calls = r"  npu_memplan_kernel_(convolution|depthwise)\((\(&[^;]*)\);\n"
            source.write_text(re.sub(calls, call_by_row, source.read_text()))
            (before, _, given), (after, _, made) = counted(folder, cpu), counted(copied, cpu)
        assert given == made, "other results row by row"
        cells = f"{whole:,} | {rows:,} | {rows / whole:.2f} | {before:,} | {after:,} | {after / before:.2f}"
        print(f"| {model.stem} | {cells} |", flush=True)


def main() -> None:
    """A row a model, or a row an operator."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", default="cortex-m55")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--kernels", default="")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rows", action="store_true")
    chosen = parser.parse_args()
    if chosen.rows:
        print_rows(chosen.models, chosen.cpu)
        return
    print("| model | estimate, cycles | instructions | estimate / instructions | outputs |\n|---|--:|--:|--:|--:|")
    for model in chosen.models:
        with tempfile.TemporaryDirectory() as temporary:
            folder = model
            if model.is_file():
                folder = Path(temporary) / "out"
                compile_model(model, CompileOptions("none", host_kernels=chosen.kernels), folder)
            artifact = Artifact.load(folder)
            total, each, digest = counted(folder, chosen.cpu)
        estimate = artifact.host_cycles or 0
        print(f"| {model.stem} | {estimate:,} | {total:,} | {estimate / total:.2f} | {digest:08x} |", flush=True)
        if chosen.calls:
            costs = {layer.function: layer.cycles for layer in artifact.host_layers}
            for symbol, count in each.items():
                cost = costs.get(symbol, 0)
                print(f"| {symbol} | {cost:,} | {count:,} | {cost / max(count, 1):.2f} | |")


if __name__ == "__main__":
    main()
