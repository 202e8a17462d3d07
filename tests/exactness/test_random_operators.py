"""Random single operators on every Ethos-U85, in scheduled streams: a fixed slice of `benchmarks.random_operators`."""

from __future__ import annotations

import pytest

from benchmarks.random_operators import draw, trials

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")

NPUS = tuple(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048))


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_exact_or_on_the_host(seed: int) -> None:
    """A wrong element, an unsafe stream or a byte that nothing wrote raises."""
    verdicts = {verdict for verdict, _ in trials(seed, NPUS)}
    assert verdicts <= {"exact", "host", "no reference"}


def test_a_seed_is_a_model() -> None:
    assert draw(3) == draw(3) != draw(4)
