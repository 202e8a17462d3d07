"""How far the estimate is off on a network that it has not seen: errors with one network left out.

    python -m benchmarks.time_left_out FOLDER [--details] [--page docs/time_validation.md]

FOLDER has the published counts (`benchmarks.time_cells`). The timing model has a constant that was chosen after
looking at counts. For each network it is chosen anew from the counts of all other networks, for the least squares of
errors, of Ethos-U55 and U65 together, which have it alike; then it predicts the counts of the network left
out. *Range* is that of published counts over these predictions (`LEFT_OUT` of `ethosu/time/assumptions.py`). *In the
others' range* are the counts of a network that lie in the range of the other networks of its family: what a range says
of a network that it has not seen.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from npu_memplan.ethosu.arch import Architecture, Product, accelerator
from npu_memplan.ethosu.stream.decode import Command
from npu_memplan.ethosu.time import MemoryMap, estimate

from .time_cells import MARK as NEXT_MARK
from .time_cells import STEP, measured_on, rows

MARK = "<!-- made by benchmarks/time_left_out.py -->"
Constants = tuple[tuple[str, float], ...]
CHOICES: Mapping[Product, Mapping[str, tuple[float, ...]]] = {
    Product.U55: {"launch_cycles": tuple(range(0, 161, 10))},
    Product.U65: {"launch_cycles": tuple(range(0, 161, 10))},
    Product.U85: {"launch_cycles": (0, 10, 20)},
}
ALIKE = ((Product.U55, Product.U65), (Product.U85,))  # families with the same constants


@dataclass(frozen=True, slots=True)
class Count:
    """A published count of a network."""

    npu: Architecture
    network: str
    name: str
    published: int
    reading: bool  # the cycle counter's, which goes on until its next step
    commands: tuple[Command, ...]
    memory_map: MemoryMap

    def ratio(self, constants: Constants) -> float:
        """Of the estimate with other `constants` to the count."""
        values: dict[str, Any] = {key: type(getattr(self.npu, key))(value) for key, value in constants}
        cycles = estimate(self.commands, replace(self.npu, **values), self.memory_map).total
        read = -(-cycles // STEP) * STEP + self.published % STEP if self.reading else cycles
        return read / self.published


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the constants chosen without a network say of one of its counts."""

    count: Count
    constants: Constants
    ratio: float


def counts(folder: Path) -> Iterator[Count]:
    """Of all networks on all NPUs."""
    for row in rows(folder / "cells_networks.csv") + rows(folder / "cells_yolo.csv"):
        npu = accelerator(f"ethos-{row['npu']}-{row['macs']}")
        words = (npu.name, row["model"], row["memory_mode"], row["system_config"], row["adapters"])
        published = int(row["active"] or row["total"])
        yield Count(npu, row["model"], " ".join(words), published, not row["active"], *measured_on(row, npu))


def left_out(found: Sequence[Count]) -> list[LeftOut]:
    """Each count of families with the same constants, predicted by those with the least cost of the other networks'."""
    choices = CHOICES[found[0].npu.product]
    ratios = {
        constants: [count.ratio(constants) for count in found]
        for values in product(*choices.values())
        for constants in [tuple(zip(choices, values, strict=True))]
    }
    predicted = []
    for network in dict.fromkeys(count.network for count in found):
        seen = [index for index, count in enumerate(found) if count.network != network]
        best = min(ratios, key=lambda constants: sum(math.log(ratios[constants][index]) ** 2 for index in seen))
        predicted += [
            LeftOut(count, best, ratios[best][index]) for index, count in enumerate(found) if count.network == network
        ]
    return predicted


def range_of(ratios: Sequence[float]) -> tuple[float, float]:
    """The range around 1 that has all of the published counts over the estimates."""
    published = [1 / ratio for ratio in ratios]
    return min(1.0, *published), max(1.0, *published)


def inside(predicted: Sequence[LeftOut], network: str) -> int:
    """Counts of a network over its predictions that lie in the range which the other networks have."""
    low, high = rounded(range_of([one.ratio for one in predicted if one.count.network != network]))
    return sum(low <= 1 / one.ratio <= high for one in predicted if one.count.network == network)


def rounded(between: tuple[float, float]) -> tuple[float, float]:
    """Outwards, to hundredths."""
    return math.floor(between[0] * 100 + 1e-9) / 100, math.ceil(between[1] * 100 - 1e-9) / 100


def families(folder: Path) -> dict[Product, list[LeftOut]]:
    """Each count of every family, predicted by what other networks say."""
    found = list(counts(folder))
    predicted = [one for alike in ALIKE for one in left_out([c for c in found if c.npu.product in alike])]
    return {family: [one for one in predicted if one.count.npu.product is family] for family in CHOICES}


def table(found: Mapping[Product, Sequence[LeftOut]]) -> list[str]:
    """Errors of each network left out, and the range of each family."""
    lines = ["| family | network left out | counts | lowest | highest | in the others' range | range |"]
    lines += ["|---|---|--:|--:|--:|--:|--:|"]
    for family, predicted in found.items():
        held = {name: inside(predicted, name) for name in dict.fromkeys(one.count.network for one in predicted)}
        for network in (*held, "all"):
            ratios = [one.ratio for one in predicted if network in ("all", one.count.network)]
            low, high = rounded(range_of(ratios))
            spread = f" {low:.2f} to {high:.2f} " if network == "all" else " "
            cells = f"{len(ratios)} | {min(ratios):.3f} | {max(ratios):.3f} | {held.get(network, sum(held.values()))}"
            lines.append(f"| {family.name} | {network} | {cells} |{spread}|")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--details", action="store_true", help="print every count")
    parser.add_argument("--page", type=Path, help="put the table into this page")
    requested = parser.parse_args()
    found = families(requested.folder)
    text = "\n".join(table(found))
    print(text)
    if requested.page is not None:
        before, mark, rest = requested.page.read_text(encoding="utf-8").partition(MARK)
        after = rest.partition(NEXT_MARK)[2]
        requested.page.write_text(f"{before}{mark}\n\n{text}\n\n{NEXT_MARK}{after}", encoding="utf-8")
    for one in (one for predicted in found.values() for one in predicted if requested.details):
        print(f"{one.ratio:.3f} {one.count.name} {one.count.published:,} {dict(one.constants)}")


if __name__ == "__main__":
    main()
