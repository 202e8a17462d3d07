"""`--constant-pools`: the caller supplies pools that it initialises from the header, as in the legacy flow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.codegen.mlf import Library
from npu_memplan.planners import PlanningError
from npu_memplan.tvmc import TvmcError
from npu_memplan.tvmc.compile import compile_to_mlf
from npu_memplan.tvmc.options import parse_compile
from tests.support.demo_library import DATE, DEMO, EXAMPLE, empty_outputs, tensors
from tests.support.mlf_host import Application, address, aligned, metadata_main

NPU, HOST = tuple(DEMO), ("--target=c",)


def library(base: tuple[str, ...], *options: str) -> Library:
    return compile_to_mlf(parse_compile([*base, *options, str(EXAMPLE)]), DATE)


def header_of(made: Library) -> str:
    return made.files["codegen/host/include/tvmgen_default.h"].decode()


def initialised(header: str, pool: str) -> np.ndarray:
    """The array that a caller defines as `uint8_t pool[SIZE] = {DATA}`."""
    size = re.search(rf"#define TVMGEN_DEFAULT_{pool}_CONSTANT_POOL_SIZE (\d+)", header)
    data = re.search(rf"#define TVMGEN_DEFAULT_{pool}_CONSTANT_POOL_DATA \\\n((?:.*\\\n)*.*)\n", header)
    assert size is not None
    assert data is not None
    content = bytes(int(x, 16) for x in re.findall(r"0x(\w\w)", data[1]))
    assert len(content) == int(size[1])
    array = aligned(len(content))
    array[:] = np.frombuffer(content, np.uint8)
    return array


@pytest.mark.parametrize("base", [NPU, HOST], ids=["npu", "host"])
def test_code_reads_weights_in_the_callers_pools(base: tuple[str, ...], tmp_path: Path) -> None:
    made = library(base, "--constant-pools=near,flash", "--constant-pools-size-hint-bytes=near:1024")
    header = header_of(made)
    struct = header[header.index("struct tvmgen_default_workspace_pools {") :].split("}")[0]
    assert struct.index("void* near;") < struct.index("void* flash;")
    pools = [initialised(header, name) for name in ("NEAR", "FLASH")]
    application = Application([made], tmp_path)
    inputs, expected = tensors(EXAMPLE, 8)
    device = [[address(aligned(16))]] if base is NPU else []

    def outputs() -> np.ndarray:
        found = empty_outputs(expected)
        structs = ([address(inputs[0])], [address(found[0])], [address(p) for p in pools], *device)
        assert application.run("default", *structs) == 0
        return found[0]

    assert np.array_equal(outputs(), expected[0])
    assert pools[0].size <= 1024
    if base is HOST:  # an NPU's weight stream of zeros would be no stream
        for pool in pools:
            pool[:] = 0  # the code has no other copy of them
        assert not np.array_equal(outputs(), expected[0])


def test_the_npu_finds_its_weights_at_base_address_zero(tmp_path: Path) -> None:
    made = library(NPU, "--constant-pools=flash", "--workspace-pools=sram")
    flash = initialised(header_of(made), "FLASH")
    sram = aligned(metadata_main(made)["workspace_size_bytes"])
    application = Application([made], tmp_path)
    inputs, expected = tensors(EXAMPLE, 9)
    outputs, device = empty_outputs(expected), aligned(16)
    structs = ([address(inputs[0])], [address(outputs[0])], [address(sram), address(flash)], [address(device)])
    assert application.run("default", *structs) == 0
    assert np.array_equal(outputs[0], expected[0])
    assert application.launches[0][0] == flash.size
    assert b"_weights[" not in b"".join(made.files.values())
    assert metadata_main(made)["constants_size_bytes"] == flash.size + made.payload_bytes


def test_without_constant_pools_nothing_changes() -> None:
    header = header_of(library(NPU))
    assert "CONSTANT_POOL" not in header
    assert "workspace_pools" not in header


def test_what_does_not_fit_says_so() -> None:
    with pytest.raises(PlanningError, match=r"do not fit pool 'flash': required [0-9]+ bytes, available 512") as caught:
        library(HOST, "--constant-pools=flash", "--constant-pools-size-hint-bytes=flash:512")
    assert caught.value.excess_bytes == caught.value.required_bytes - 512 > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--constant-pools=a", "--workspace-pools=a"], "--constant-pools=a is a workspace pool too"),
        (["--constant-pools-targets=a:c"], "pool 'a' is not in --constant-pools"),
        (["--constant-memory-pools=a"], "give --constant-pools=NAME"),
    ],
)
def test_nonsense_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(TvmcError, match=message):
        parse_compile([*options, str(EXAMPLE)])
