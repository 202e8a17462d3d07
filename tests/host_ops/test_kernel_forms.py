"""C kernels give the reference's bytes in each of their forms: portable, with DSP instructions, with Helium.

On the PC (portable C, with sanitizers), on QEMU's Cortex-M55 and on Unicorn's Cortex-M33.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.host_instructions import EMULATOR, LINK_SCRIPT, STARTUP
from fvp_runner.firmware_build.build import Elf
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.models.tflite import read_network
from tests.exactness.test_host_operators import values
from tests.host_ops.test_cmsis_nn import cases, weights
from tests.support.many_operators import Together, run_sanitized
from tests.support.operator_models import overflowing_model
from tests.support.tflite_builder import TensorSpec, constant, write_model

COMPILER = "arm-none-eabi-gcc"
FORMS = {"helium": "cortex-m55", "dsp": "cortex-m55+nomve", "portable": "cortex-m55+nomve+nodsp"}
FORMS |= {"dsp on M33": "cortex-m33"}
ONCE = {"DilationHFactor": 1, "DilationWFactor": 1}
_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void initialise_monitor_handles(void);
int32_t many_run(uint8_t *const pools[]);
static uint8_t pool[BYTES + 64] __attribute__((aligned(64)));
int main(void) {
  uint8_t *const pools[] = {pool};
  initialise_monitor_handles();
  FILE *file = fopen("before", "rb");
  if (fread(pool, 1, BYTES, file) != BYTES || many_run(pools) != 0) _Exit(1);
  file = fopen("after", "wb");
  _Exit(fwrite(pool, 1, BYTES, file) == BYTES && fclose(file) == 0 ? 0 : 1);
}
"""

_MAIN_M33 = """
#include <stdint.h>
int32_t many_run(uint8_t *const pools[]);
volatile int32_t failed = 1;
uint8_t pool[BYTES + 64] __attribute__((aligned(64)));
__attribute__((noinline)) void finish(void) { for (;;) { } }
int main(void) {
  uint8_t *const pools[] = {pool};
  failed = many_run(pools);
  finish();
}
"""

needs_emulator = pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which(EMULATOR[0]) is None or not importlib.util.find_spec("unicorn"),
    reason=f"{COMPILER}, {EMULATOR[0]} or the package unicorn is not here",
)


def run_emulated(together: Together, cpu: str, level: str) -> list[list[np.ndarray]]:
    """The outputs of each network where GCC makes the C for `cpu` and QEMU's Cortex-M55 runs it, or Unicorn's M33."""
    folder, pool, on_unicorn = together.folder, together.pool(), cpu == "cortex-m33"
    (folder / "before").write_bytes(pool.tobytes())
    for name, text in (
        ("main.c", _MAIN_M33 if on_unicorn else _MAIN),
        ("startup.c", STARTUP),
        ("link.ld", LINK_SCRIPT),
    ):
        (folder / name).write_text(text)
    flags = [f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=hard", level, *REQUIRED_FLAGS, f"-DBYTES={pool.size}"]
    sources = ["startup.c", "main.c", "many.c", "many_host.c"]
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    specs = "--specs=nosys.specs" if on_unicorn else "--specs=rdimon.specs"
    link = ["-nostartfiles", specs, "-Wl,--no-warn-rwx-segments", "-T", "link.ld", "-lm"]
    command = [COMPILER, *flags, *warnings, *sources, *link, "-o", "many.elf"]
    subprocess.run(command, cwd=folder, check=True)
    if on_unicorn:
        pool[:] = np.frombuffer(run_on_unicorn(Elf.load(folder / "many.elf"), pool.tobytes()), np.uint8)
        return together.outputs(pool)
    subprocess.run([*EMULATOR, "-kernel", "many.elf"], cwd=folder, check=True, timeout=300)
    pool[:] = np.frombuffer((folder / "after").read_bytes(), np.uint8)
    return together.outputs(pool)


def run_on_unicorn(program: Elf, given: bytes) -> bytes:
    """The pool of `program` after its run on Unicorn's Cortex-M33, which has no semihosting: `given` before."""
    import unicorn
    from unicorn import arm_const

    machine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    machine.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M33)
    for base, size in ((0, 0x80000), (0x60000000, 0x1000000), (0xE0000000, 0x100000)):  # code, data, system
        machine.mem_map(base, size)
    for segment in program.segments:
        if segment.file_bytes:
            machine.mem_write(segment.physical, program.image[segment.offset : segment.offset + segment.file_bytes])
    pool, failed = program.find_symbol("pool").address, program.find_symbol("failed").address
    machine.mem_write(pool, given)
    machine.reg_write(arm_const.UC_ARM_REG_SP, 0x60FFFFF0)
    machine.emu_start(program.entry | 1, program.find_symbol("finish").address)
    assert bytes(machine.mem_read(failed, 4)) == bytes(4)
    return bytes(machine.mem_read(pool, len(given)))


def multiplied(times: int) -> bytes:
    """A depthwise convolution from each of three channels to `times`, as a first layer has."""
    out = 3 * times
    return write_model(
        "DEPTHWISE_CONV_2D",
        [TensorSpec((1, 7, 6, 3), "int8", 0.05, 4), weights((1, 3, 3, out), out, 3)],
        [TensorSpec((1, 4, 3, out), "int8", 0.1, -9)],
        ("DepthwiseConv2DOptions", {"StrideH": 2, "StrideW": 2, "DepthMultiplier": times} | ONCE),
    )


def grouped() -> bytes:
    """A convolution of two groups from five channels to six."""
    return write_model(
        "CONV_2D", [TensorSpec((1, 5, 6, 10), "int8", 0.05, 4), weights((12, 3, 3, 5), 12)],
        [TensorSpec((1, 5, 6, 12), "int8", 0.1, -9)], ("Conv2DOptions", {"StrideH": 1, "StrideW": 1} | ONCE),
    )  # fmt: skip


@needs_emulator
@pytest.mark.qemu
@pytest.mark.parametrize("form", FORMS)
def test_a_form_gives_the_references_bytes(form: str, tmp_path: Path) -> None:
    """Convolutions, depthwise and dense layers with all kinds of sizes, and sums that leave int32."""
    models = [
        model for model in cases() if read_network(model).cpu_operators[0].name.endswith(("CONV_2D", "CONNECTED"))
    ]
    models += [multiplied(times) for times in (4, 8)] + [grouped()]
    models += [overflowing_model(seed) for seed in range(15)]
    networks, rng = [read_network(model) for model in models], np.random.default_rng(7)
    inputs = [values(rng, network) for network in networks]
    together = Together(networks, inputs, tmp_path)
    text = (tmp_path / "many_host.c").read_text()
    assert {f"npu_memplan_kernel_{kind}" in text for kind in ("convolution", "depthwise", "dense")} == {True}
    expected = [TFLiteReference(model).run(given)[0] for model, given in zip(models, inputs, strict=True)]
    for level in ("-O2", "-Os"):
        for made, right in zip(run_emulated(together, FORMS[form], level), expected, strict=True):
            np.testing.assert_array_equal(made[0].reshape(-1), right.reshape(-1))


def conversions() -> Iterator[tuple[bytes, np.ndarray]]:
    """Models that convert between floats and 8 bits, or resize an image, and inputs: halves, ends, no numbers."""
    rng = np.random.default_rng(3)
    odd = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-42, -0.0, 2147483648.0], np.float32)
    for scale, zero, dtype in ((0.0117, -3, "int8"), (2.0, 127, "int8"), (1 / 255, 0, "uint8"), (0.3, 255, "uint8")):
        steps = np.arange(-300, 301, dtype=np.float32) / np.float32(2) * np.float32(scale)
        near = [np.nextafter(steps, np.float32(end)) for end in (np.inf, -np.inf)]
        given = np.concatenate([odd, steps, *near, rng.normal(0, 60 * scale, 401).astype(np.float32)])[None]
        stored = TensorSpec(given.shape, dtype, scale, zero)
        yield write_model("QUANTIZE", [TensorSpec(given.shape, "float32")], [stored], None), given
        levels = np.resize(np.arange(256, dtype=np.uint8).view(dtype), given.shape)
        yield write_model("DEQUANTIZE", [stored], [TensorSpec(given.shape, "float32")], None), levels
        for count in (3, 16, 307):  # a table
            part, shape = np.resize(levels, (1, count)), (1, count)
            made = TensorSpec(shape, dtype, scale * 0.7, zero // 2)
            yield write_model("RELU", [TensorSpec(shape, dtype, scale, zero)], [made]), part
    for depth, centers, height, width, dtype in (
        (1, True, 11, 13, "uint8"), (3, False, 11, 13, "uint8"), (8, True, 11, 13, "uint8"),
        (21, False, 11, 13, "uint8"), (1, True, 10, 8, "uint8"), (3, True, 10, 8, "uint8"), (8, True, 10, 8, "uint8"),
        (21, True, 20, 16, "uint8"), (21, False, 9, 13, "uint8"), (8, True, 40, 32, "uint8"), (9, True, 5, 4, "uint8"),
        (1, True, 11, 13, "int8"), (21, False, 11, 13, "int8"), (1, True, 10, 8, "int8"), (21, True, 20, 16, "int8"),
        (21, False, 9, 13, "int8"), (6, True, 40, 32, "int8"), (9, True, 5, 4, "int8"), (8, True, 3, 3, "int8"),
    ):  # fmt: skip
        image, made = TensorSpec((2, 5, 4, depth), dtype, 0.1, 9), TensorSpec((2, height, width, depth), dtype, 0.1, 9)
        size = constant(np.array([height, width]), "int32")
        options = ("ResizeBilinearOptions", {"AlignCorners": not centers, "HalfPixelCenters": centers})
        given = rng.integers(0, 256, image.shape).astype(np.uint8).view(dtype)
        yield write_model("RESIZE_BILINEAR", [image, size], [made], options), given


def searches() -> Iterator[tuple[bytes, np.ndarray]]:
    """Models that look for the first largest or smallest, with ties, and inputs."""
    rng = np.random.default_rng(5)
    for number, depth in enumerate((1, 3, 4, 5, 15, 16, 17, 21, 32, 67)):
        for name, dtype in (("ARG_MAX", "int8"), ("ARG_MAX", "uint8"), ("ARG_MIN", "int8"), ("ARG_MIN", "uint8")):
            given = rng.integers(0, 256, (1, 40, depth)).astype(np.uint8)
            given[:, ::2] = rng.integers(0, 3, (1, 20, depth)) * 127
            kind = "int64" if number % 3 == 0 else "int32"
            options = (
                "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions",
                {"OutputType": 4 if kind == "int64" else 2},
            )
            data, axis = TensorSpec(given.shape, dtype, 0.1, 3), constant(np.array([2]), "int32")
            yield write_model(name, [data, axis], [TensorSpec((1, 40), kind)], options), given.view(dtype)


def memories() -> Iterator[bytes]:
    """SVDFs of all kinds of sizes: a state of int8 with a zero point or of int16, bias or none, several batches."""
    rng = np.random.default_rng(11)
    for number, (batches, depth, filters, memory, rank) in enumerate(
        ((1, 40, 16, 9, 1), (2, 7, 6, 16, 2), (1, 16, 32, 17, 1), (1, 3, 5, 1, 1), (3, 8, 12, 33, 4))
    ):
        for kind, zero in (("int8", -50), ("int8", 0), ("int16", 0)):
            units = filters // rank
            bias = rng.integers(-3000, 3000, units).astype(np.int32)
            most = 127 if kind == "int8" else 32767
            yield write_model(
                "SVDF",
                [
                    TensorSpec((batches, depth), "int8", 0.05, -7),
                    constant(rng.integers(-127, 128, (filters, depth)).astype(np.int8), "int8", 0.01),
                    constant(rng.integers(-most, most + 1, (filters, memory)).astype(kind), kind, 1 / most),
                    constant(bias, "int32", 0.01 / most) if number % 2 else None,
                    TensorSpec((batches, filters * memory), kind, 2.0 / most, zero, is_variable=True),
                ],
                [TensorSpec((batches, units), "int8", 0.02, 11)],
                ("SVDFOptions", {"Rank": rank}),
            )


@needs_emulator
@pytest.mark.qemu
def test_an_svdf_gives_the_references_bytes_in_all_forms(tmp_path: Path) -> None:
    """As the loops that they stand for, with states as inferences leave them."""
    rng, networks = np.random.default_rng(2), [read_network(model) for model in memories()]
    inputs = [values(rng, network) for network in networks]
    found = []
    for kernels in (False, True):
        together = Together(networks, inputs, tmp_path, kernels)
        states = np.random.default_rng(13)
        for n, network in enumerate(networks):
            for index in network.states:
                ends, tensor = np.iinfo(network.tensors[index].dtype), network.tensors[index]
                held = states.integers(ends.min, ends.max + 1, tensor.shape).astype(tensor.dtype)
                together.states[f"m{n}_i{index}"] = held
        text = (tmp_path / "many_host.c").read_text()
        assert text.count("  npu_memplan_kernel_svdf(") == (len(networks) if kernels else 0)
        found.append(run_sanitized(together))
    found += [run_emulated(together, cpu, level) for cpu in FORMS.values() for level in ("-O2", "-Os")]
    loops, *forms = found
    assert len({made[0].tobytes() for made in loops}) == len(networks)
    for form in forms:
        for made, right in zip(form, loops, strict=True):
            np.testing.assert_array_equal(made[0], right[0])


@needs_emulator
@pytest.mark.qemu
def test_the_place_of_an_extremum_is_the_same_in_all_forms(tmp_path: Path) -> None:
    models, inputs = zip(*searches(), strict=True)
    together = Together([read_network(model) for model in models], [[given] for given in inputs], tmp_path)
    assert (tmp_path / "many_host.c").read_text().count("  npu_memplan_kernel_arg_extremum(") == len(models)
    run = run_sanitized(together), *(run_emulated(together, c, "-O2") for c in FORMS.values())
    for model, given, *found in zip(models, inputs, *run, strict=True):
        index = np.argmax if read_network(model).cpu_operators[0].name == "ARG_MAX" else np.argmin
        for made in found:
            np.testing.assert_array_equal(made[0].reshape(1, 40), index(given, axis=2))


@needs_emulator
@pytest.mark.qemu
def test_conversions_give_the_same_bytes_in_all_forms(tmp_path: Path) -> None:
    models, inputs = zip(*conversions(), strict=True)
    together = Together([read_network(model) for model in models], [[given] for given in inputs], tmp_path)
    assert (tmp_path / "many_host.c").read_text().count("  npu_memplan_kernel_") == len(models)
    expected = run_sanitized(together)
    for model, given, right in zip(models, inputs, expected, strict=True):
        finite = np.isfinite(given) & (np.abs(given) < 1e6) if given.dtype == np.float32 else slice(None)
        reference = TFLiteReference(model).run([given])[0].reshape(right[0].shape)
        np.testing.assert_array_equal(right[0][finite], reference[finite])
    for cpu in FORMS.values():
        for made, right in zip(run_emulated(together, cpu, "-O2"), expected, strict=True):
            assert made[0].tobytes() == right[0].tobytes()
