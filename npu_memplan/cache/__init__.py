"""Compiled programs kept between processes: what a result depends on (`keys`), and the cache itself (`programs`).

Invariant: a compile gives the same bytes with a cache and without one.
"""
