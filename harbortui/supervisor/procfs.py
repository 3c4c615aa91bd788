"""Processes as the kernel tells them: who lives, who descends from whom, who carries our mark.

Guarantees: a process is named by pid and start time together, so that a recycled pid is never taken for the old
one. One pass over /proc answers for all. A process that vanishes meanwhile is simply absent.
"""

import os
import signal
import time
from dataclasses import dataclass
from functools import cache

MARK = "HARBORTUI_OWNER"
PAGE = os.sysconf("SC_PAGESIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Proc:
    pid: int
    parent: int
    group: int
    session: int
    start: int
    state: str
    cpu: float
    rss: int


@cache
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def read(pid: int) -> Proc | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            rest = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    return Proc(
        pid,
        int(rest[1]),
        int(rest[2]),
        int(rest[3]),
        int(rest[19]),
        rest[0].decode(),
        (int(rest[11]) + int(rest[12])) / TICKS,
        int(rest[21]) * PAGE,
    )


def alive(pid: int, start: int) -> bool:
    """Whether this very process (not a later one with its pid) is there and no zombie."""
    found = read(pid)
    return found is not None and found.start == start and found.state not in "ZX"


def everything() -> dict[int, Proc]:
    return {p.pid: p for name in os.listdir("/proc") if name.isdigit() and (p := read(int(name)))}


def descendants(root: int, table: dict[int, Proc]) -> list[Proc]:
    children: dict[int, list[Proc]] = {}
    for proc in table.values():
        children.setdefault(proc.parent, []).append(proc)
    found: list[Proc] = []
    queue = [root]
    while queue:
        kids = children.get(queue.pop(), [])
        found += kids
        queue += [kid.pid for kid in kids]
    return found


def marked(owner: str) -> list[Proc]:
    """Living processes whose environment carries a mark that starts with `owner`, wherever they have gone."""
    wanted = f"{MARK}={owner}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                env = file.read()
        except OSError:
            continue
        if (
            wanted in env
            and any(item.startswith(wanted) for item in env.split(b"\0"))
            and (proc := read(int(name)))
            and proc.state not in "ZX"
        ):
            found.append(proc)
    return found


def kill(pid: int, start: int, sig: int = signal.SIGKILL) -> bool:
    """Signal this very process through a pidfd, never one that took over its pid."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not alive(pid, start):
            return False
        signal.pidfd_send_signal(fd, sig)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def gone(procs: list[tuple[int, int]], deadline: float) -> bool:
    """Wait until none of these (pid, start) lives."""
    end = time.monotonic() + deadline
    while any(alive(pid, start) for pid, start in procs):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
