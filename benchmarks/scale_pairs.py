"""Compares operators of one value with their reference over many pairs of (scale, zero point), all inputs each.

Usage: python -m benchmarks.scale_pairs [--pairs 2000] [--kinds EXP,LOG] [--types int8,uint8,int16]
       [--ways host,lowered,vela,tables]

Invariant: exit code 0 means that every operator was as its claim says.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.support.scale_pairs import KINDS, TABLES, TYPES, WAYS, compare, compare_tables, false_claims, pairs


def main() -> int:
    """Print a row for each kind, type, way, runner and claim; 1 where a claim is false."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_pairs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--ways", default=",".join((*WAYS, "tables")))
    given = parser.parse_args()
    print("| operator | type | way | runs on | claim | operators | that differ | elements | that differ | by |")
    print("|---" * 10 + "|")
    wrong = []
    for kind in given.kinds.split(","):
        for dtype in given.types.split(","):
            some = pairs(kind, dtype, given.pairs)
            for way in given.ways.split(","):
                began = time.monotonic()
                if way == "tables" and (kind not in TABLES or dtype == "int16"):
                    continue
                try:
                    found = compare_tables(kind, dtype, some) if way == "tables" else compare(kind, dtype, way, some)
                except Exception as error:
                    print(f"| {kind} | {dtype} | {way} | refused: {str(error).splitlines()[0][:100]} |", flush=True)
                    continue
                for (runner, claim), t in sorted(found.items()):
                    row = (kind, dtype, way, runner, claim, t.operators, t.operators_differing)
                    row = (*row, t.elements, t.differing, t.largest)
                    print("| " + " | ".join(map(str, row)) + " |", flush=True)
                wrong += [f"{kind} {dtype} {way}: {text}" for text in false_claims(found)]
                print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
