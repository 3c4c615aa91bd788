"""How long the commands take that people type most, wall clock, median of ten."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figure import Figure

TIMES = 10


def wall(*arguments: str) -> float:
    delays = []
    for _ in range(TIMES):
        at = time.monotonic()
        subprocess.run([str(Path(sys.executable).with_name("harbortui")), *arguments], check=True, capture_output=True)
        delays.append(time.monotonic() - at)
    return statistics.median(delays)


def figures(quick: bool = False) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        os.environ |= {"HARBORTUI_RUNS": f"{folder}/runs", "HARBORTUI_RUNTIME": folder}
        version = wall("--version")
        subprocess.run(
            [sys.executable, "-m", "harbortui", "demo", "--detach", "--name", "bench"], check=True, capture_output=True
        )
        time.sleep(2 if quick else 10)
        try:
            status = wall("status", "bench", "--json")
        finally:
            subprocess.run(
                [sys.executable, "-m", "harbortui", "stop", "bench", "--now", "--wait", "--yes"], check=False
            )
    return [
        Figure("harbortui --version", version, "s", "<=", 0.25),
        Figure("harbortui status --json, of a live run", status, "s", "<=", 0.4),
    ]


if __name__ == "__main__":
    for figure in figures("--quick" in sys.argv):
        print(figure.line())
