"""Fixtures of the planner tests."""

from __future__ import annotations

from tests.support.random_problems import small_instances

__all__ = ["small_instances"]
