"""A compiled model beside its reference on given inputs, in a process of its own: what `compile` reports of its
results.

Invariant: facts alone are said here; what they mean for what a compile claims is `npu_memplan.checking`'s to say.
"""
