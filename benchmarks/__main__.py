"""`make bench`: every figure that the project promises, measured here and now. `--quick` takes smaller samples."""

import os
import platform
import statistics
import sys
from collections.abc import Callable

from benchmarks import commands, peers, runs, supervision
from benchmarks.figure import Figure


def main() -> int:
    quick = "--quick" in sys.argv
    missed = 0
    ours: list[Figure] = []
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()}")
    parts: list[tuple[str, Callable[[], list[Figure]]]] = [
        ("commands", lambda: commands.figures(quick)),
        ("supervision", lambda: supervision.figures(quick)),
        ("peers", lambda: peers.figures(_noticed(ours), quick)),
        ("runs", lambda: runs.figures(quick)),
    ]
    for name, measure in parts:
        print(f"\n{name}", flush=True)
        for figure in measure():
            ours.append(figure)
            missed += not figure.holds
            print("  " + figure.line(), flush=True)
    print(f"\n{missed} of {len(ours)} figures missed" if missed else f"\nall {len(ours)} figures hold")
    return 1 if missed else 0


def _noticed(ours: list[Figure]) -> float:
    return statistics.median(f.value for f in ours if f.name == "death noticed, median")


if __name__ == "__main__":
    sys.exit(main())
