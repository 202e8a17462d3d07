"""Instructions of a model's host operators: our C beside CMSIS-NN's functions, on an emulated Cortex-M55.

    python -m benchmarks.cmsis_nn CMSIS-NN-FOLDER [--board BOARD] MODEL.tflite...

Each model is compiled for the host alone (with `--board`: for that board's NPU, whose calls then do nothing), once with
our kernels and once with `--host-kernels`. GCC builds both for a Cortex-M55, with the firmware's own flags, with
Helium and without. QEMU's clock advances a nanosecond an instruction (-icount shift=0); SysTick, at 32 MHz, measures
`NAME_run`, so a count is a multiple of 31.25.

Invariant: instructions are counted, not cycles: a Cortex-M55 takes two or more cycles for most Helium instructions.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from fvp_runner.base import RunOptions
from fvp_runner.firmware_build import build as firmware
from npu_memplan.artifact import Artifact
from npu_memplan.codegen.interface import c_files
from npu_memplan.compiler import compile_model
from npu_memplan.names import identifier
from npu_memplan.options import CompileOptions

MACHINE = "mps3-an547"
CPUS = ("cortex-m55", "cortex-m55+nomve")
_TICK_NS = 31.25
_MAIN = """\
#include "{name}.h"
#include "npu_memplan_runtime.h"
#include "uart.h"
#define SYST(offset) (*(volatile uint32_t *)(0xE000E010u + (offset)))
{pools}
int32_t npu_memplan_npu_launch(const uint32_t *s, uint32_t b, const void *const p[], const uint32_t n[], int32_t c) {{
  (void)s, (void)b, (void)p, (void)n, (void)c;
  return 0;
}}
void npu_interrupt(void);
void npu_interrupt(void) {{
}}
int main(void) {{
  uint8_t *const pools[] = {{{names}}};
  uart_init();
  SYST(4) = 0xFFFFFFu, SYST(8) = 0, SYST(0) = 5; /* the largest reload, the processor's clock */
  uint32_t before = SYST(8);
  int32_t status = {name}_run(pools);
  uint32_t ticks = (before - SYST(8)) & 0xFFFFFFu;
  uart_text("TICKS ");
  uart_decimal(status == 0 ? ticks : 0u);
  uart_text(" END\\n");
  for (;;) {{
  }}
}}
"""


def executed(folder: Path, cpu: str) -> int:
    """Instructions of one run of the artifact in `folder`, on pools of zeros."""
    artifact = Artifact.load(folder)
    name = identifier(artifact.name)
    built = firmware.build(folder, RunOptions(timeout_s=600, board="corstone-300-u55"), "cortex-m55")
    work = folder / "counted"
    work.mkdir(exist_ok=True)
    pools = "".join(
        f"static uint8_t pool_{i}[{max(1, artifact.pool_bytes(p.name))}] __attribute__((aligned(32), "
        f'section(".bss.npu_memplan_pool_{i}")));\n'
        for i, p in enumerate(artifact.run_pools)
    )
    names = ", ".join(f"pool_{i}" for i in range(len(artifact.run_pools)))
    (work / "main.c").write_text(_MAIN.format(name=name, pools=pools, names=names), encoding="utf-8")
    sources = [work / "main.c", *(firmware.FIRMWARE / f"{m}.c" for m in ("startup", "uart", "exit"))]
    sources += [folder / "src" / file for file in c_files(artifact)]
    elf = work / f"{cpu}.elf"
    includes = [f"-I{built.path.parent}", f"-I{firmware.FIRMWARE}", f"-I{folder / 'src'}"]
    flags = [f"-mcpu={cpu}", *(flag for flag in firmware._COMPILE if flag != "-Werror"), *firmware._LINK]
    line = [firmware.COMPILER, *flags, *includes, f"-Wl,-T,{built.path.parent / 'firmware.ld'}", *map(str, sources)]
    subprocess.run([*line, "-lm", "-lc", "-lgcc", "-o", str(elf)], check=True)
    return round(_ticks(elf) * _TICK_NS)


def _ticks(elf: Path) -> int:
    command = ["qemu-system-arm", "-M", MACHINE, "-icount", "shift=0", "-nodefaults", "-display", "none"]
    command += ["-monitor", "none", "-kernel", str(elf), "-serial", "stdio"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            words = next(line for line in process.stdout if "TICKS" in line).split()
        finally:
            process.kill()
    return int(words[words.index("TICKS") + 1])


def main() -> None:
    """A row a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", default="")
    given = parser.parse_args()
    print("| model | our C | CMSIS-NN, Helium | CMSIS-NN, no Helium | host calls by CMSIS-NN | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    for model in given.models:
        counts, calls = [], ""
        for kernels, cpus in (("", CPUS[:1]), (f"cmsis-nn={given.folder}", CPUS)):
            options = CompileOptions(host_kernels=kernels, accelerator="none")
            if given.board:
                options = CompileOptions(host_kernels=kernels, board=given.board, accelerator="ethos-u55-256")
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary) / "out"
                compile_model(model, options, folder)
                counts += [executed(folder, cpu) for cpu in cpus]
                notes = Artifact.load(folder).notes
                calls = next((note.split(" runs ")[1].split(" host")[0] for note in notes if "CMSIS-NN" in note), "-")
        shown = " | ".join(f"{count:,}" for count in counts)
        print(f"| {model.stem} | {shown} | {calls} | {counts[1] / counts[0]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
