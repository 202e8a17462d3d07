"""apache/tvm #20191 and #17348: StaticPlanBlockMemory uses a storage of one branch in the other one.

pip install "apache-tvm==0.27.*" "apache-tvm-ffi>=0.1.14,<0.1.15" pytest
python -m pytest test_storage_across_branches.py

The tests fail on 0.27 and are marked so; with a planner that is right the marks fail, and go. Nothing here needs more
than TVM. `python test_storage_across_branches.py` prints the wrong plan and runs it in a process of its own.
"""

import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import ir, relax
from tvm.script import ir as I
from tvm.script import relax as R

OPEN = pytest.mark.xfail(strict=True, reason="apache/tvm #20191")


@I.ir_module
class ReshapeChains:
    """The program of #20191: the identity on both sides."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), cond: R.Tensor((), "bool")):
        if cond:  # noqa: SIM108
            y = R.reshape(R.reshape(x, (32,)), (4, 8))
        else:
            y = R.reshape(R.reshape(x, (32,)), (4, 8))
        return y


@I.ir_module
class OperatorsInBranches:
    """The same without reshapes: a tensor that each side needs for itself (#17348)."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), cond: R.Tensor((), "bool")):
        if cond:  # noqa: SIM108
            y = R.negative(R.exp(x))
        else:
            y = R.negative(R.abs(x))
        return y


def planned(mod):
    """`mod` as TVM's default pipeline has it behind its planner."""
    passes = relax.transform
    return tvm.transform.Sequential(
        [
            passes.LegalizeOps(),
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.StaticPlanBlockMemory(),
        ]
    )(mod)


def undefined_storages(func):
    """Names of the variables that are used where no binding before, on the same side of every branch, defines them."""
    found = []

    def use(expr, defined):
        if isinstance(expr, relax.SeqExpr):
            defined = set(defined)
            for block in expr.blocks:
                for binding in block.bindings:
                    use(binding.value, defined)
                    defined.add(binding.var)
            use(expr.body, defined)
        elif isinstance(expr, relax.If):
            use(expr.cond, defined)
            use(expr.true_branch, defined)
            use(expr.false_branch, defined)
        elif isinstance(expr, ir.Call):
            for arg in expr.args:
                use(arg, defined)
        elif isinstance(expr, relax.Tuple):
            for field in expr.fields:
                use(field, defined)
        elif isinstance(expr, relax.Var) and expr not in defined:
            found.append(expr.name)

    use(func.body, set(func.params))
    return found


@OPEN
@pytest.mark.parametrize("mod", [ReshapeChains, OperatorsInBranches])
def test_storage_is_allocated_on_the_side_that_uses_it(mod):
    assert undefined_storages(planned(mod)["main"]) == []


def test_without_the_planner_every_storage_is_there():
    passes = relax.transform
    lower = [passes.LegalizeOps(), passes.ToNonDataflow(), passes.RemovePurityChecking(), passes.CallTIRRewrite()]
    for mod in (ReshapeChains, OperatorsInBranches):
        assert undefined_storages(tvm.transform.Sequential(lower)(mod)["main"]) == []


@OPEN
def test_both_sides_run():
    """In a process of its own: the virtual machine reads a register that nothing has written."""
    assert subprocess.run([sys.executable, __file__, "run"], capture_output=True).returncode == 0


def run():
    """Both programs on both sides."""
    x = np.arange(32, dtype="float32").reshape(4, 8) / 32
    expected = {
        ReshapeChains: {True: x, False: x},
        OperatorsInBranches: {True: -np.exp(x), False: -np.abs(x)},
    }
    for mod, sides in expected.items():
        built = tvm.compile(mod, target="llvm")
        vm = relax.VirtualMachine(built, tvm.cpu())
        for side, value in sides.items():
            result = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(np.array(side))).numpy()
            np.testing.assert_allclose(result, value, rtol=1e-6)


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    else:
        for mod in (ReshapeChains, OperatorsInBranches):
            print(planned(mod)["main"])
            print("used where it is not defined:", ", ".join(undefined_storages(planned(mod)["main"])))
        print("running it: exit code", subprocess.run([sys.executable, __file__, "run"]).returncode)
