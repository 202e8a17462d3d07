"""Loads the zoo of programs and runs modules on the Relax VM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax

from tests.support import zoo as zoo_of_programs

IN_BENCHMARKS_ONLY = ("pretrainedResnet_quant", "vww_96_int8", "str_ww_ref_model")
"""Big models; here one of each kind."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `program` runs once for every program of the zoo."""
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", [n for n in zoo_of_programs.ZOO if n not in IN_BENCHMARKS_ONLY])


def flatten(value: Any) -> list[Any]:
    """The numpy arrays of a VM result, tuples from left to right."""
    return [value.numpy()] if hasattr(value, "numpy") else [leaf for item in value for leaf in flatten(item)]


def run_on_vm(
    module: Any, inputs: list[list[Any]], function: str = "main", *, default: bool = False
) -> list[list[Any]]:
    """Outputs for each list of inputs, through the pipeline that never plans memory itself or TVM's default one."""
    from npu_memplan.transform import pipeline

    vm = relax.VirtualMachine(
        tvm.compile(module, target="llvm", relax_pipeline="default" if default else pipeline(plan=False)), tvm.cpu()
    )
    return [flatten(vm[function](*[tvm.runtime.tensor(a) for a in arguments])) for arguments in inputs]


@pytest.fixture(scope="session")
def zoo() -> Any:
    """tests/support/zoo."""
    return zoo_of_programs


@pytest.fixture(scope="session")
def run() -> Callable[..., list[list[Any]]]:
    """`run(module, inputs)` on the Relax VM."""
    return run_on_vm


@pytest.fixture(scope="session")
def unplanned(zoo: Any) -> Callable[[str], tuple[Any, list[list[Any]]]]:
    """`unplanned(name)` -> (entry, outputs without any memory plan), computed once a session."""
    known: dict[str, tuple[Any, list[list[Any]]]] = {}

    def get(name: str) -> tuple[Any, list[list[Any]]]:
        if name not in known:
            entry = zoo.ZOO[name]()
            if entry is None:
                pytest.skip(f"{name}: its model file or optional package is not there")
            known[name] = (entry, run_on_vm(entry.module, entry.inputs))
        return known[name]

    return get
