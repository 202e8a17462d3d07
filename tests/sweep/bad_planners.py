"""A plug-in of the tests: planners that do what no compiler should, for --import and --planner."""

import ctypes
import time

from npu_memplan.planners import register
from npu_memplan.planners.registry import find
from npu_memplan.process.incidents import Fallback, contain_faults, fall_back


@register("crash")
def crash(problem, context):
    ctypes.string_at(0)


@register("hang")
def hang(problem, context):
    while True:
        time.sleep(1)


@register("eat")
def eat(problem, context):
    """Eight GiB, touched in steps, as a search that grows would."""
    kept = []
    for _ in range(512):
        kept.append(b"x" * (16 << 20))
        time.sleep(0.01)


@register("defect")
def defect(problem, context):
    raise KeyError("a defect")


@register("half")
def half(problem, context):
    """Another planner, after a fault of its own."""
    with contain_faults("the better half"):
        raise KeyError("a defect")
    fall_back(Fallback.SEARCH, "the other half stands in, in sweep")
    return find("first-fit")(problem, context)
