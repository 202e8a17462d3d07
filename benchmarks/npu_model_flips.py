"""Damages compiled command streams at random and requires a typed error or a finished run.

Usage: python -m benchmarks.npu_model_flips [COUNT] [SEED] [MODEL.tflite ...]

Invariant: exit code 0 means that no stream hung, crashed the process or raised anything but `NpuModelError`.
Without models, single-operator models of the tests are used.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import collections
import random
import signal
import sys
import time
import traceback

import numpy as np

from fvp_runner.npu_model import ModelFaultError, NpuModel, NpuModelError
from tests.support.damage import damaged_streams, targets

_LIMIT_S = 20


class Hang(BaseException):
    """A run took longer than `_LIMIT_S`."""


def main() -> int:
    """Run the experiment; 1 when a stream misbehaved."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1

    def on_alarm(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, on_alarm)
    outcomes: collections.Counter[str] = collections.Counter()
    bad, slowest, began = 0, 0.0, time.monotonic()
    for target, words in damaged_streams(targets(sys.argv[3:]), count, random.Random(seed)):
        regions = target.memory()
        model = NpuModel(target.accelerator)
        start = time.monotonic()
        signal.alarm(_LIMIT_S)
        try:
            with np.errstate(all="raise"):
                model.run(words, regions)
            outcomes["finished"] += 1
        except (ModelFaultError, Hang):
            bad += 1
            outcomes["MISBEHAVED"] += 1
            if bad <= 10:
                print(f"--- {target.name}: {target.difference(words)}")
                traceback.print_exc()
        except NpuModelError as error:
            outcomes[type(error).__name__] += 1
        except Exception:
            bad += 1
            outcomes["MISBEHAVED"] += 1
            if bad <= 10:
                print(f"--- {target.name}: {target.difference(words)}")
                traceback.print_exc()
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.monotonic() - start)
    for name, number in outcomes.most_common():
        print(f"{number:7} {name}")
    print(f"{count} streams, {bad} misbehaved, slowest {slowest:.2f} s, {time.monotonic() - began:.0f} s in all")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
