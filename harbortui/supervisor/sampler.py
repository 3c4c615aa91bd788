"""Samples of what the processes of a run use, and of what the host has left.

Guarantees: one pass over /proc serves all processes; a process is counted with its keeper's whole tree. The first
sample of a process has no CPU figure's history and says 0.

On failure: what cannot be read is left out of the sample.
"""

import os
import time
from collections import deque
from pathlib import Path

from harbortui.runs.events import Resources
from harbortui.supervisor import procfs

HISTORY = 600.0


class Sampler:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cpu: dict[str, tuple[float, float]] = {}
        self._free: deque[tuple[float, int]] = deque()

    def sample(self, roots: dict[str, int]) -> list[Resources]:
        """`roots`: the pid under which each process's tree hangs."""
        table = procfs.everything()
        now = time.monotonic()
        return [self._host(now), *(self._tree(name, root, table, now) for name, root in roots.items() if root in table)]

    def _tree(self, name: str, root: int, table: dict[int, procfs.Proc], now: float) -> Resources:
        procs = [table[root], *procfs.descendants(root, table)]
        cpu = sum(proc.cpu for proc in procs)
        before, at = self._cpu.get(name, (cpu, now))
        self._cpu[name] = (cpu, now)
        use = max(0.0, cpu - before) / (now - at) if now > at else 0.0
        return Resources(process=name, cpu=round(use, 4), rss=sum(proc.rss for proc in procs), count=len(procs))

    def _host(self, now: float) -> Resources:
        free = self.disk_free()
        if free is not None:
            self._free.append((now, free))
            while now - self._free[0][0] > HISTORY:
                self._free.popleft()
        return Resources(
            process="", cpu=0.0, count=0, disk_free=free, memory_free=_memory("MemAvailable"), load=os.getloadavg()[0]
        )

    def disk_free(self) -> int | None:
        try:
            found = os.statvfs(self.folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def disk_slope(self) -> float | None:
        """Bytes of free space gained a second over the last minutes; None until a minute has been seen."""
        if len(self._free) < 2 or self._free[-1][0] - self._free[0][0] < 60:
            return None
        (t0, f0), (t1, f1) = self._free[0], self._free[-1]
        return (f1 - f0) / (t1 - t0)


def _memory(field: str) -> int | None:
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))
    except (OSError, StopIteration, ValueError):
        return None


def memory_percent() -> float | None:
    free, total = _memory("MemAvailable"), _memory("MemTotal")
    return None if free is None or not total else 100 * (1 - free / total)
