"""Time on the host, roughly: cycles of a CPU for a host operator, from the operations that its PrimFunc says.

Invariant: an estimate is a function of (PrimFunc, costs of `targets/hosts.toml`) and of nothing else; it is never added
to the NPU's unless requested. What it is worth: docs/time_model.md.
"""

from .count import HostCosts, HostWork, host_costs, host_work

__all__ = ["HostCosts", "HostWork", "host_costs", "host_work"]
