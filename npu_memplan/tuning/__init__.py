"""The search for the best program: backend, stripes, slices and prefetched constants of each candidate.

Invariant: candidates are compared by the estimated cycles of their planned streams and by the bytes of verified plans.
The options given are respected, and no computed value changes.
"""
