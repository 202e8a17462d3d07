"""Damages compiled command streams at random and requires a typed error or a result of whoever reads them.

Usage: python -m benchmarks.npu_model_flips [COUNT] [SEED] [--npu NAME ...] [--models MODEL.tflite ...]

Invariant: exit code 0 means that no stream hung, took 2 GiB of memory, crashed the process or raised anything but
`NpuMemplanError` (of the model: `NpuModelError`) in the model, the description, the lifting, the waits or the estimate.
Without models, single-operator models of the tests are used.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import collections
import itertools
import random
import resource
import signal
import sys
import time
import traceback

import numpy as np

from fvp_runner.npu_model.errors import ModelFaultError
from npu_memplan.errors import NpuMemplanError
from tests.support.damage import U85_CASES, damaged_streams, targets, wrong_registers

_LIMIT_S = 20  # of CPU, of one reader


class Hang(BaseException):
    """A run took longer than `_LIMIT_S`."""


def main() -> int:
    """TimedRun the experiment; 1 when a stream misbehaved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--npu", nargs="*", default=["ethos-u55-256", "ethos-u65-512"])
    parser.add_argument("--models", nargs="*", default=[])
    options = parser.parse_args()

    def on_alarm(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, on_alarm)
    outcomes: collections.Counter[str] = collections.Counter()
    bad, slowest, began = 0, 0.0, time.process_time()
    found = targets(options.models, options.npu, U85_CASES)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    chance, half = random.Random(options.seed), options.count // 2
    damaged = (damaged_streams(found, options.count - half, chance), wrong_registers(found, half, chance))
    for target, words in itertools.chain(*damaged):
        for reader, read in target.readers(words).items():
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, _LIMIT_S)
            try:
                with np.errstate(all="raise"):
                    read()
                outcomes[f"{reader}: a result"] += 1
            except (ModelFaultError, Hang, Exception) as error:
                if isinstance(error, NpuMemplanError) and not isinstance(error, ModelFaultError):
                    outcomes[f"{reader}: {type(error).__name__}"] += 1
                else:
                    bad += 1
                    outcomes[f"{reader}: MISBEHAVED"] += 1
                    if bad <= 10:
                        print(f"--- {target.name}: {target.difference(words)}")
                        traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            slowest = max(slowest, time.process_time() - start)
    for name, number in sorted(outcomes.items()):
        print(f"{number:7} {name}")
    spent = time.process_time() - began
    print(f"{options.count} streams, {bad} readings misbehaved, slowest {slowest:.2f} CPU s, {spent:.0f} CPU s in all")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
