"""A plug-in of the tests: planners that do what no compiler should, for --import and --planner."""

import ctypes
import time

from npu_memplan.planners import register


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
