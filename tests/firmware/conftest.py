"""What the tests of firmware of a user's own share: tools or a skip, the built example, small programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import fvp_runner
from npu_memplan import compile as compile_model
from tests.support.needs import need
from tests.support.real_data import REPOSITORY, real_model

EXAMPLE = REPOSITORY / "examples" / "firmware"
DRIVER = Path(fvp_runner.__file__).parent / "firmware"


@pytest.fixture(scope="session")
def tools() -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")


@pytest.fixture(scope="session")
def artifact(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keyword spotter, compiled with driver payloads: the same sources serve both drivers."""
    folder = tmp_path_factory.mktemp("firmware") / "kws"
    compile_model(real_model("kws_ref_model"), folder, launch="arm-core-driver", objective="bytes", effort="quick")
    return folder


@pytest.fixture(scope="session")
def built(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`built(NPU_CONSTANTS="DDR")` -> the example's ELF by CMake, with these settings; `example`: a changed copy."""
    folder = tmp_path_factory.mktemp("build")

    def build(example: Path = EXAMPLE, **settings: str) -> Path:
        made = folder / "-".join(("fw", example.name, *settings.values()))
        configure = ["cmake", "-S", str(example), "-B", str(made), "-G", "Ninja", f"-DARTIFACT={artifact}"]
        configure += [f"-DCMAKE_TOOLCHAIN_FILE={EXAMPLE / 'cmake' / 'arm-none-eabi.cmake'}", f"-DDRIVER={DRIVER}"]
        for command in ([*configure, *(f"-D{k}={v}" for k, v in settings.items())], ["cmake", "--build", str(made)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "warning:" not in done.stdout + done.stderr
        return made / "firmware.elf"

    return build


@pytest.fixture(scope="session")
def program(tools: None, built: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`program(name, source, *more)` -> ELF of one C file with the example's startup; `more` go to the compiler.

    Our small driver is in it unless `driver=False`.
    """
    folder = tmp_path_factory.mktemp("programs")
    regions = built().parent

    def build(name: str, source: str, *more: str, driver: bool = True) -> Path:
        (folder / f"{name}.c").write_text(source)
        elf = folder / f"{name}.elf"
        files = [str(DRIVER / f"{module}.c") for module in ("startup", "uart", "exit", *(["ethosu"] if driver else []))]
        linker = [f"-L{EXAMPLE / 'linker'}", f"-L{regions}", f"-T{EXAMPLE / 'linker' / 'firmware.ld'}"]
        command = ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-O2", "-nostartfiles"]
        command += [f"-I{DRIVER}", f"-I{EXAMPLE / 'src'}", "-Wl,--defsym=__stack_bytes=0x4000"]
        command += ["-Wall", "-Wextra", "-Werror", *linker, str(folder / f"{name}.c"), *files, *more, "-o", str(elf)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return elf

    return build
