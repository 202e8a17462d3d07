"""Fixtures shared by all tests: real models, a browser, golden files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from fvp_runner.firmware_build import build as firmware
from fvp_runner.host import runner as host_runner
from npu_memplan.artifact import Artifact
from npu_memplan.process.incidents import STRICT
from tests.support import browser as chromium
from tests.support import slow_tests
from tests.support.frames import remember_frames_without_module
from tests.support.needs import Skips, need, need_data
from tests.support.real_data import REPOSITORY, instances, network, real_model, shared_folder
from tests.support.warnings_of_c import arm_compilers, check_artifact, check_warnings

# `compile` imports less of TVM (see frontend.start); here the next test may want the rest.
os.environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "1"
# Every local runner, also of the command line, has its C built with the compiler's sanitizers.
os.environ["NPU_MEMPLAN_SANITIZE"] = "1"

# No test, and no process that one starts, passes over a fault for which something else stands in.
os.environ[STRICT] = "1"

# Compiles are not checked, but where a test is about that: most tests that run a program compare it themselves.
os.environ["NPU_MEMPLAN_CHECK"] = "never"

# No test takes what another one, or a compile of the user's, has left.
os.environ["NPU_MEMPLAN_PROGRAM_CACHE"] = "off"

remember_frames_without_module()

# A busy machine is no fault of a test: nothing here fails for taking long.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For tests/mutations.py: what fails need not be the smallest example.
settings.register_profile("unshrunk", settings.get_profile("patient"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def strict_c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No local runner builds C of ours that a compiler warns of; `edited_c` marks tests that spoil the C first."""
    if request.node.get_closest_marker("edited_c") is not None:
        return
    build = host_runner.build_library

    def checked(directory: Path, artifact: Artifact, *more: Any) -> Any:
        check_artifact(directory, artifact)
        return build(directory, artifact, *more)

    monkeypatch.setattr(host_runner, "build_library", checked)
    compiled = firmware._compile_firmware

    def compiled_strictly(sources: list[Path], generated: Any, cpu: str, defines: list[str], *more: Any) -> None:
        compiled(sources, generated, cpu, defines, *more)
        folders = {more[0], *(source.parent for source in sources)}
        flags = [f"-mcpu={cpu}", "-mfloat-abi=hard", *(f"-D{d}" for d in defines), *(f"-I{f}" for f in folders)]
        check_warnings(sources, *flags, f"-Wa,-I,{sources[-1].parent}", compilers=arm_compilers())

    monkeypatch.setattr(firmware, "_compile_firmware", compiled_strictly)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files from this run")
    slow_tests.add_options(parser)
    parser.addoption("--every-u85", action="store_true", help="run TOSA's tests on each Ethos-U85, not on one of them")


def pytest_configure(config: pytest.Config) -> None:
    slow_tests.register(config)
    config.pluginmanager.register(Skips(), "skips")


@pytest.fixture(scope="session")
def shared_model() -> Callable[[str], Path]:
    """`shared_model("kws_ref_model")` -> path of a real .tflite, or of its twin, or skips with the reason."""
    return lambda name: need_data(network(name))


@pytest.fixture(scope="session")
def real_network() -> Callable[[str], Path]:
    """The same for tests of figures that the real weights have: no twin stands in."""
    return lambda name: need_data(real_model(name))


@pytest.fixture(scope="session")
def foreign_stream() -> Callable[[str], Path]:
    """`foreign_stream("rnnoise_u55_256_vela")` -> path of a network that others compiled, or skips with the reason."""

    def find(name: str) -> Path:
        return need_data(shared_folder("streams") / f"{name}.tflite")

    return find


@pytest.fixture(scope="session")
def shared_instances() -> Callable[[str], Path]:
    """`shared_instances("usmp")` -> folder or file of planning problems, or skips with the reason."""
    return lambda name: need_data(instances(name))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; skips where there is none."""
    need("chromium")
    running = chromium.Browser()
    yield running
    running.close()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("name.txt", text)` compares with tests/golden/name.txt; --update-golden rewrites it."""

    def check(name: str, text: str) -> None:
        path = REPOSITORY / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"no golden file {path.name}; run pytest --update-golden and review it"
        assert text == path.read_text(encoding="utf-8")

    return check
