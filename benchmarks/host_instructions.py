"""The instructions that QEMU's Cortex-M55 executes for the host operators of one inference.

    python -m benchmarks.host_instructions [--cpu CPU] [--calls] [--kernels KERNELS] [--rows] MODEL.tflite...

Each model is compiled for the host alone and its C by GCC (`-O2`, and the flags that all builds need) for `--cpu`: with
Helium by default, `cortex-m55+nomve` has the DSP instructions only, `cortex-m55+nomve+nodsp` none. QEMU counts
instructions (`-icount`), of which the system timer sees one tick in 31.25. `--calls` prints each operator too, beside
the estimate that `compile` prints. In place of a model stands the folder of an artifact, of any commit, too: then its
calls of the NPU do nothing, and the CPU's find arbitrary bytes where their results would be.

`--rows`: bytes and instructions of the plan that has operators in turn, by rows (`--objective bytes`), beside those of
the plan of whole maps; outputs have to be the same.

Invariant: instructions are counted, not cycles: most of Helium's take two cycles or more on a Cortex-M55.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.compiler import compile_model
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
    fill.append("state = 1u;")  # inputs are the same wherever they lie
    for i in re.findall(rf"#define {upper}_INPUT_(\d+)_POOL", header):
        at, of = f"pools[{upper}_INPUT_{i}_POOL] + {upper}_INPUT_{i}_OFFSET", f"{upper}_INPUT_{i}"
        if f"#define {of}_TYPE float" in header:
            made = f"((float *)({at}))[i] = (float)(int32_t)state * (1.0f / 1073741824.0f)"
            fill.append(f"for (int32_t i = 0; i < {of}_ELEMENTS; i++) {{ {step}; {made}; }}")
        else:
            fill.append(f"for (int32_t i = 0; i < {of}_BYTES; i++) {{ {step}; ({at})[i] = (uint8_t)(state >> 24); }}")
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


def print_rows(models: Sequence[Path], cpu: str) -> None:
    """A row a model."""
    print("| model | bytes, whole maps | rows | ratio | instructions | rows | ratio | estimate / instructions |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for model in models:
        found = []
        for objective in ("auto", "bytes"):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary) / "out"
                artifact = compile_model(model, CompileOptions("none", objective=objective), folder)
                total, _, digest = counted(folder, cpu)
            found.append(
                (sum(usage.used_bytes for usage in artifact.plan.usage), total, digest, artifact.host_cycles or 0)
            )
        (whole, before, given, _), (rows, after, made, cycles) = found
        assert given == made, "other results row by row"
        cells = f"{whole:,} | {rows:,} | {rows / whole:.2f} | {before:,} | {after:,} | {after / before:.3f}"
        print(f"| {model.stem} | {cells} | {cycles / after:.2f} |", flush=True)


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
            costs: dict[str, int] = {}
            for layer in artifact.host_layers:
                costs[layer.function] = costs.get(layer.function, 0) + layer.cycles
            for symbol, count in each.items():
                cost = costs.get(symbol, 0)
                print(f"| {symbol} | {cost:,} | {count:,} | {cost / max(count, 1):.2f} | |")


if __name__ == "__main__":
    main()
