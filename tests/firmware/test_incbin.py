"""`--incbin`: large constants are files, and nothing else changes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import RunnerError
from fvp_runner.host.runner import LocalRunner
from npu_memplan import compile as compile_model
from npu_memplan.codegen.builds import LEAST_BYTES
from tests.support.needs import need
from tests.support.real_data import real_model


@pytest.mark.parametrize("more", [{}, {"constant_pools": {"flash": None}}], ids=["arrays", "pool"])
def test_the_program_is_the_same(tmp_path: Path, more: dict[str, Any]) -> None:
    runs = []
    for incbin in (False, True):
        folder = tmp_path / str(incbin)
        artifact = compile_model(real_model("micro_speech_quantized"), folder, incbin=incbin, **more)
        inputs = [np.arange(np.prod(s.shape)).astype(s.dtype).reshape(s.shape) for s in artifact.inputs]
        runs.append(LocalRunner(folder).run(inputs).pools_after)
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))
    files = sorted((tmp_path / "True" / "src").glob("*.bin"))
    texts = sum(path.stat().st_size for path in (tmp_path / "True" / "src").glob("*.c"))
    assert files
    assert all(path.stat().st_size >= LEAST_BYTES for path in files)
    assert 3 * texts < sum(path.stat().st_size for path in (tmp_path / "False" / "src").glob("*.c"))
    assert "-Wa,-I," in (tmp_path / "True" / "src" / "micro_speech_quantized.cmake").read_text()
    files[0].unlink()
    with pytest.raises(RunnerError, match=files[0].name):
        LocalRunner(tmp_path / "True")


def test_an_arm_object_has_the_bytes_in_the_section(tmp_path: Path) -> None:
    need("arm-none-eabi-gcc")
    compile_model(real_model("micro_speech_quantized"), tmp_path / "a", incbin=True)
    source = tmp_path / "a" / "src"
    (constants,) = source.glob("*_npu_constants_0.bin")
    target = tmp_path / "npu.o"
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-O2", "-c", f"-I{source}", f"-Wa,-I,{source}"]
    subprocess.run([*command, str(source / "micro_speech_quantized_npu.c"), "-o", str(target)], check=True)
    section = tmp_path / "section"
    copy = ["arm-none-eabi-objcopy", "-O", "binary", "--only-section=.rodata.npu_memplan", str(target), str(section)]
    subprocess.run(copy, check=True)
    at = section.read_bytes().find(constants.read_bytes())
    assert at >= 0
    assert at % 16 == 0
